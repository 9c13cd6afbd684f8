import { runJobs } from "../executor/run-jobs.ts";
import type { Task } from "./task.ts";

/**
 * Jobs that one tick begins at the most; a queue that has more for long needs a worker. A job takes one statement to three, and the
 * platform lets an invocation make 1,000 requests.
 */
const MAX_JOBS = 250;

/** Runs the jobs that are due in the queues of this build, until none is left or the tick's time is over. */
export const runDueJobs: Task = {
  name: "run_due_jobs",
  async runOnce(deps) {
    const queues = deps.registry.queues();
    if (queues.length === 0) return { counts: { claimed: 0, finished: 0, lost: 0 }, exhausted: false };
    const { exhausted, ...counts } = await runJobs(deps, {
      queues,
      maxJobs: MAX_JOBS,
      goesOn: () => deps.clock() < deps.deadlineMs,
    });
    return { counts, exhausted };
  },
};
