import type { Database, Statement } from "../db/port.ts";
import type { InsertedJob } from "../db/statements/insert-jobs.ts";
import { moveIfUnchanged } from "../db/statements/move-job.ts";
import { type JobReading, readJob } from "../db/statements/read-job.ts";
import type { JobId } from "../ids.ts";
import type { JobRow, TerminalState } from "../job.ts";
import type { RegistryView } from "../registry/define.ts";
import { type Ended, planFollowUps } from "../registry/plan.ts";
import { applyCancel, type Cancellable } from "../transitions.ts";

/** What a cancel came to. */
export type CancelResult =
  | { readonly status: "cancelled"; readonly jobId: JobId; readonly followUps: readonly InsertedJob[] }
  | { readonly status: "not_found" }
  | { readonly status: "already_ended"; readonly state: TerminalState }
  /** A follow-up of `cancelled` couldn't be planned: nothing was changed. */
  | { readonly status: "follow_up_failed"; readonly reason: string };

/**
 * A planned cancel: the statement, not yet run (it decodes to `null` where the plan went stale), and the outcome to observe once
 * it committed; or the answer, where there is nothing to run.
 */
export type PlannedCancel =
  | {
      readonly statement: Statement<CancelResult | null>;
      readonly settled: null;
      readonly ended: Ended | null;
    }
  | { readonly statement: null; readonly settled: CancelResult };

/** Plans the cancel of a job that hasn't ended, with its callback and the follow-ups of `cancelled`. One read. */
export async function planCancel(
  database: Database,
  registry: RegistryView,
  id: JobId,
  reason: string,
): Promise<PlannedCancel> {
  const reading = await database.query(readJob(id));
  if (reading === null) return { statement: null, settled: { status: "not_found" } };
  return planCancelOf(registry, reading, reason);
}

/** The second half of {@link planCancel}, from a reading. Pure. */
export function planCancelOf(
  registry: RegistryView,
  { job, now }: JobReading,
  reason: string,
): PlannedCancel {
  if (!isCancellable(job)) return { statement: null, settled: { status: "already_ended", state: job.state } };

  const move = applyCancel(job, reason, now);
  const followUps = planFollowUps(registry, move.ended, now);
  if (!followUps.ok) {
    return { statement: null, settled: { status: "follow_up_failed", reason: followUps.error.reason } };
  }
  const write = moveIfUnchanged(
    { jobId: job.id, state: job.state, runLease: job.runLease, callbackId: job.callbackId },
    move,
    { state: "cancelled", payload: undefined, error: null },
    followUps.value,
    now,
  );
  const decode: Statement<CancelResult | null>["decode"] = (rows) => {
    const result = write.decode(rows);
    return result.moved ? { status: "cancelled", jobId: job.id, followUps: result.followUps } : null;
  };
  return { statement: { ...write, decode }, settled: null, ended: move.ended };
}

function isCancellable(job: JobRow): job is Cancellable {
  return job.state !== "completed" && job.state !== "failed" && job.state !== "cancelled";
}
