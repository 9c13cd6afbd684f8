import type { RegisteredQueue } from "../shared/registry/handler.ts";
import type { ExecutorDeps } from "./deps.ts";
import { handBackAll } from "./hand-back.ts";
import type { Heart } from "./heart.ts";
import { Latch } from "./latch.ts";
import { runJobs } from "./run-jobs.ts";
import { endsWithin } from "./sleep.ts";

/**
 * How often a worker looks for due jobs by itself, in milliseconds. Wake-ups come at once; polling is for what nobody tells of: jobs
 * that come due by time, and wake-ups that were lost with a connection.
 */
export const POLL_INTERVAL_MS = 1_000;

/** How long a claim is waited for that is still under way when the grace is over, in milliseconds: while the others are handed back. */
const LAST_CLAIM_MS = 2_000;

/** How a long-lived process runs jobs. */
export interface WorkerOptions {
  readonly queues: readonly RegisteredQueue[];
  readonly heart: Heart;
  /** Set by whoever hears of something that is due. */
  readonly wakeUp: Latch;
  /** Aborted when the worker is to end: from then on it claims nothing. */
  readonly stop: AbortSignal;
  /** How long handlers may go on after that, in milliseconds, before their jobs are handed back. */
  readonly graceMs: number;
  /** Default: {@link POLL_INTERVAL_MS}. */
  readonly pollMs?: number;
  /** How long handlers have that listen to their signal, in milliseconds. Default: two seconds. */
  readonly listeningMs?: number;
}

/**
 * Runs jobs until it is stopped: claims when it is woken and every so often, and as soon as a job has ended. When it is stopped it lets
 * its handlers come to an end, with their heartbeats, and hands back what hasn't by the end of the grace.
 *
 * @returns once nothing is left that counts; a handler that never ends doesn't keep it
 */
export async function runWorker(deps: ExecutorDeps, options: WorkerOptions): Promise<void> {
  const { queues, heart, wakeUp, stop, graceMs, pollMs = POLL_INTERVAL_MS, listeningMs } = options;
  const stopped = new Promise<void>((resolve) => {
    if (stop.aborted) resolve();
    else stop.addEventListener("abort", () => resolve(), { once: true });
  });
  const poll = setInterval(() => wakeUp.set(), pollMs);
  const claimedLast = new Latch();
  const run = runJobs(deps, { queues, heart, wakeUp, claimedLast, goesOn: () => !stop.aborted });
  try {
    await Promise.race([run, stopped]);
    wakeUp.set();
    if (await endsWithin(run, graceMs)) return;
    await Promise.all([
      handBackAll(deps, heart, listeningMs),
      // It brings jobs that nobody runs and no heart has: they are handed back while there is still a database.
      endsWithin(claimedLast.wait(), LAST_CLAIM_MS),
    ]);
  } finally {
    clearInterval(poll);
  }
}
