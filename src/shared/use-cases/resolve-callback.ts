import type { CallbackRow } from "../callback.ts";
import { DatabaseError } from "../db/errors.ts";
import type { Database, Statement } from "../db/port.ts";
import { type InsertedJob, queuesDue } from "../db/statements/insert-jobs.ts";
import { type MoveResult, moveIfUnchanged } from "../db/statements/move-job.ts";
import { readCallback } from "../db/statements/read-callback.ts";
import type { CallbackId, JobId, RunLease } from "../ids.ts";
import type { JobState } from "../job.ts";
import type { RegistryView } from "../registry/define.ts";
import { type Ended, type PlanFailure, planFollowUps } from "../registry/plan.ts";
import { applyCallback, CALLBACK_STATE_AFTER, type CallbackAction } from "../transitions.ts";

/** What a resolution came to, for the sender and for the log. */
export type Resolution =
  | {
      readonly status: "moved";
      readonly jobId: JobId;
      readonly kind: string;
      readonly state: JobState;
      readonly ended: Ended | null;
      readonly followUps: readonly InsertedJob[];
      /** The queues in which something is due now: a follow-up, or the job itself. */
      readonly dueIn: readonly string[];
      /** Follow-ups left out because a live job holds their unique key. */
      readonly deduplicated: number;
      /** This build has the job's kind. If not, the job moved without follow-ups. */
      readonly knownKind: boolean;
    }
  | Settled;

/** A resolution that changed nothing. */
export type Settled =
  /** The same action resolved it before: its recorded result. */
  | { readonly status: "duplicate"; readonly jobId: JobId; readonly kind: string; readonly state: JobState }
  | { readonly status: "not_found" }
  | { readonly status: "already_resolved"; readonly jobId: JobId; readonly kind: string }
  | {
      readonly status: "gone";
      readonly how: "expired" | "superseded" | "cancelled";
      readonly jobId: JobId;
      readonly kind: string;
    }
  /** A retry for a job that isn't parked yet. */
  | { readonly status: "still_running"; readonly jobId: JobId; readonly kind: string }
  | {
      readonly status: "follow_up_failed";
      readonly failure: PlanFailure;
      readonly jobId: JobId;
      readonly kind: string;
    };

/** A planned resolution: the statement, not yet run, or the answer where there is nothing to run. */
export type PlannedResolution =
  | { readonly statement: Statement<Resolution | null>; readonly settled: null }
  | { readonly statement: null; readonly settled: Settled };

/** Rounds of read, plan and write. Each further one needs another writer to have moved the job in between. */
const MAX_ROUNDS = 5;

/**
 * Resolves a callback: reads it with its job, plans the move and its follow-ups, and writes all of it in one guarded
 * statement. Two round trips; the callback, the job and the follow-ups change together or not at all.
 *
 * Safe to repeat, also when an earlier try died without an answer: a callback that the same action resolved before answers
 * `duplicate` with the recorded state, and nothing is written.
 *
 * @param lease where given, only the callback of this attempt
 * @throws DatabaseError where the database failed; nothing was changed as far as we know, and repeating finds out
 */
export async function resolveCallback(
  database: Database,
  registry: RegistryView,
  id: CallbackId,
  action: CallbackAction,
  lease: RunLease | null = null,
): Promise<Resolution> {
  for (let round = 1; ; round++) {
    try {
      const planned = await planResolution(database, registry, id, action, lease);
      if (planned.settled !== null) return planned.settled;
      const resolution = await database.query(planned.statement);
      if (resolution !== null) return resolution;
      // Stale: somebody was faster. The next reading says who, and what that means for us.
      if (round >= MAX_ROUNDS) throw new DatabaseError("contended", null);
    } catch (error) {
      const again = error instanceof DatabaseError && error.kind === "contended" && round < MAX_ROUNDS;
      if (!again) throw error;
    }
  }
}

/**
 * The first half of {@link resolveCallback}: for an application that runs the statement in a transaction of its own. Where the
 * statement decodes to `null` the plan went stale: roll back, and plan again.
 */
export async function planResolution(
  database: Database,
  registry: RegistryView,
  id: CallbackId,
  action: CallbackAction,
  lease: RunLease | null = null,
): Promise<PlannedResolution> {
  const reading = await database.query(readCallback(id, lease));
  if (reading === null) return settle({ status: "not_found" });
  const { callback, job, now } = reading;
  const { id: jobId, kind } = job;
  if (callback.state !== "pending") return settle(judgeResolved(callback, kind, action));

  // A pending callback is its job's callback: the schema and every statement keep it so.
  if ((job.state !== "running" && job.state !== "waiting_external") || job.callbackId !== id) {
    throw new Error(`callback ${id} is pending but job ${jobId} doesn't name it`);
  }
  const move = applyCallback(job, action, reading);
  if (move === null) return settle({ status: "still_running", jobId, kind });
  const planned = move.ended === null ? null : planFollowUps(registry, move.ended, now);
  if (planned?.ok === false)
    return settle({ status: "follow_up_failed", failure: planned.error, jobId, kind });
  const followUps = planned?.value ?? [];

  const write = moveIfUnchanged(
    { jobId, state: job.state, runLease: job.runLease, callbackId: id },
    move,
    {
      state: CALLBACK_STATE_AFTER[action.type],
      payload: action.type === "complete" || action.type === "resume" ? action.payload : undefined,
      error: action.type === "fail" ? action.error : null,
    },
    followUps,
    now,
  );
  const decode = (result: MoveResult): Resolution | null =>
    result.moved
      ? {
          status: "moved",
          jobId,
          kind,
          state: move.job.state,
          ended: move.ended,
          followUps: result.followUps,
          dueIn: queuesDue(result.followUps, move.job),
          deduplicated: followUps.length - result.followUps.length,
          knownKind: registry.knows(kind),
        }
      : null;
  return { statement: { ...write, decode: (rows) => decode(write.decode(rows)) }, settled: null };
}

/** What an action means for a callback that isn't pending any more. */
function judgeResolved(callback: CallbackRow, kind: string, action: CallbackAction): Settled {
  const { jobId } = callback;
  switch (callback.state) {
    case "expired":
    case "superseded":
    case "cancelled":
      return { status: "gone", how: callback.state, jobId, kind };
    default:
      return CALLBACK_STATE_AFTER[action.type] === callback.state && callback.resolvedTo !== null
        ? { status: "duplicate", jobId, kind, state: callback.resolvedTo }
        : { status: "already_resolved", jobId, kind };
  }
}

function settle(settled: Settled): PlannedResolution {
  return { statement: null, settled };
}
