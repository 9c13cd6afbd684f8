import { DatabaseError } from "../shared/db/errors.ts";
import { countRoundTrips, type Database } from "../shared/db/port.ts";
import { nameOf } from "../shared/thrown.ts";
import { backlog } from "./backlog.ts";
import { dispatchRescueFollowUps } from "./dispatch-rescue-follow-ups.ts";
import { enqueuePeriodicJobs } from "./periodic-jobs.ts";
import { rescueTask } from "./rescue.ts";
import { retention } from "./retention.ts";
import { retryDeliveries } from "./retry-deliveries.ts";
import { runDueJobs } from "./run-due-jobs.ts";
import type { CountsBefore, Task, TaskReport, TickDeps } from "./task.ts";

/**
 * The tasks of a tick, in their order: rescues first, then what follows from them, then what the time brings, and running jobs with
 * the time that is left.
 */
export const TASKS: readonly Task[] = [
  rescueTask("rescue_stale_heartbeats", "stale_heartbeat"),
  rescueTask("rescue_overrun_deadlines", "deadline_exceeded"),
  rescueTask("rescue_expired_callbacks", "expired_callback"),
  dispatchRescueFollowUps,
  enqueuePeriodicJobs,
  retention,
  backlog,
  retryDeliveries,
  runDueJobs,
];

/** How long a tick goes on beginning pages, in milliseconds: it should be over before the next one begins. */
const TICK_BUDGET_MS = 45_000;

/** What a task came to. */
export type TaskResult =
  | ({ readonly task: string; readonly ok: true } & TaskReport)
  | { readonly task: string; readonly ok: false; readonly error: unknown };

/**
 * Runs every task once, one after the other. A task that fails is reported and the next one runs. A tick may come late, twice,
 * or while another is running: every statement is guarded, and skips the rows that another tick holds.
 *
 * @returns one result a task; the caller decides what a failure means
 */
export async function runTick(
  deps: Omit<TickDeps, "database" | "deadlineMs"> & { readonly database: () => Database },
  tasks: readonly Task[] = TASKS,
): Promise<readonly TaskResult[]> {
  const { clock, log } = deps;
  const deadlineMs = clock() + TICK_BUDGET_MS;
  const results: TaskResult[] = [];
  const before: Record<string, TaskReport["counts"]> = {};
  for (const task of tasks) {
    const startedAt = clock();
    const database = countRoundTrips(deps.database);
    const result = await runTask(task, { ...deps, database, deadlineMs }, before);
    results.push(result);
    const line = {
      event: "tick_task",
      task: task.name,
      durationMs: clock() - startedAt,
      roundTrips: database.roundTrips,
    };
    if (result.ok) {
      before[task.name] = result.counts;
      log({ ...line, level: "info", counts: { ...result.counts, exhausted: result.exhausted } });
    } else {
      const { error } = result;
      const reason = error instanceof DatabaseError ? error.message : nameOf(error);
      log({
        ...line,
        level: "error",
        sqlState: error instanceof DatabaseError ? error.sqlState : null,
        reason,
      });
    }
  }
  return results;
}

async function runTask(task: Task, deps: TickDeps, before: CountsBefore): Promise<TaskResult> {
  try {
    return { task: task.name, ok: true, ...(await task.runOnce(deps, before)) };
  } catch (error) {
    return { task: task.name, ok: false, error };
  }
}
