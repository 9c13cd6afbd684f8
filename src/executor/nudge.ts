import type { RegisteredQueue } from "../shared/registry/handler.ts";
import type { ExecutorDeps } from "./deps.ts";
import { runJobs } from "./run-jobs.ts";

/** Jobs that one nudge runs at the most. What is left is the tick's. */
const MAX_JOBS = 100;
/** How long a nudge goes on claiming, in milliseconds: the platform ends what waits for it 30 s after the answer. */
const BUDGET_MS = 15_000;

/**
 * Runs what is due in some queues, right after something was enqueued there: so that follow-ups start within milliseconds instead of
 * with the next tick. A hint: whatever it misses, the tick finds. Never rejects.
 *
 * @param names queues in which something became available; those that the build doesn't run are left out
 */
export async function nudge(deps: ExecutorDeps, names: readonly string[]): Promise<void> {
  const queues: RegisteredQueue[] = deps.registry.queues().filter(({ queue }) => names.includes(queue));
  if (queues.length === 0) return;
  const untilMs = deps.clock() + BUDGET_MS;
  try {
    await runJobs(deps, { queues, maxJobs: MAX_JOBS, goesOn: () => deps.clock() < untilMs });
  } catch (thrown) {
    const reason = thrown instanceof Error ? thrown.name : typeof thrown;
    deps.log({ level: "warn", event: "nudge_failed", reason });
  }
}
