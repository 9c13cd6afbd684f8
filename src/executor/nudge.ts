import { nameOf } from "../shared/thrown.ts";
import type { ExecutorDeps } from "./deps.ts";
import { handBackAll } from "./hand-back.ts";
import { Heart } from "./heart.ts";
import { runJobs } from "./run-jobs.ts";
import { endsWithin } from "./sleep.ts";

/** Jobs that one nudge runs at the most. What is left is the tick's. */
const MAX_JOBS = 100;

/** The times of a nudge, in milliseconds. The platform ends what waits for it 30 s after the answer. */
export const NUDGE_TIMES = {
  /** No claim after this, */
  claimingMs: 15_000,
  /** and whatever still runs by then is handed back, */
  runningMs: 25_000,
  /** with so much time for handlers that listen to their signal. */
  listeningMs: 2_000,
};

/**
 * Runs what is due in some queues, right after something was enqueued there: so that follow-ups start within milliseconds instead of
 * with the next tick. A hint: whatever it misses, the tick finds. Never rejects.
 *
 * @param names queues in which something became available; those that the build doesn't run are left out
 */
export async function nudge(
  deps: ExecutorDeps,
  names: readonly string[],
  times: typeof NUDGE_TIMES = NUDGE_TIMES,
): Promise<void> {
  const queues = deps.registry.queues().filter(({ queue }) => names.includes(queue));
  if (queues.length === 0) return;
  const untilMs = deps.clock() + times.claimingMs;
  const heart = new Heart(deps);
  const run = runJobs(deps, { queues, maxJobs: MAX_JOBS, goesOn: () => deps.clock() < untilMs, heart });
  try {
    if (!(await endsWithin(run, times.runningMs))) await handBackAll(deps, heart, times.listeningMs);
  } catch (thrown) {
    const reason = nameOf(thrown);
    deps.log({ level: "warn", event: "nudge_failed", reason });
  }
}
