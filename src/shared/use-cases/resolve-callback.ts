import type { CallbackRow } from "../callback.ts";
import { DatabaseError } from "../db/errors.ts";
import type { Database, Statement } from "../db/port.ts";
import { type InsertedJob, queuesDue } from "../db/statements/insert-jobs.ts";
import { type MoveResult, moveIfUnchanged, type PlannedMove } from "../db/statements/move-job.ts";
import { type CallbackReading, readCallback } from "../db/statements/read-callback.ts";
import type { CallbackId, JobId, RunLease } from "../ids.ts";
import type { JobState } from "../job.ts";
import type { Json } from "../json.ts";
import type { RegistryView } from "../registry/define.ts";
import { type Ended, type PlanFailure, planFollowUps } from "../registry/plan.ts";
import { err, ok, type Result } from "../result.ts";
import { applyCallback, CALLBACK_STATE_AFTER, type CallbackAction, decideByRules } from "../transitions.ts";

/** A resolution that moved its job, for the sender and for the log. */
export interface Moved {
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

/** What a resolution came to. */
export type Resolution = Moved | Settled;

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

/** The callback's rules don't care for a payload: it stays as it is. */
export interface Ignored {
  readonly status: "ignored";
  readonly reason: string;
  readonly jobId: JobId;
  readonly kind: string;
}

/** A planned resolution: the statement, not yet run, or the answer where there is nothing to run. */
export type PlannedResolution<S = Settled> =
  | { readonly statement: Statement<Moved | null>; readonly settled: null }
  | { readonly statement: null; readonly settled: S };

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
  return untilMoved(database, () => planResolution(database, registry, id, action, lease));
}

/**
 * Does with a payload what the callback itself says: {@link decideByRules}. Otherwise as {@link resolveCallback}.
 *
 * @throws DatabaseError as there; Error where this build evaluates no rules and the callback has some
 */
export async function resolveCallbackByRules(
  database: Database,
  registry: RegistryView,
  id: CallbackId,
  payload: Json,
): Promise<Resolution | Ignored> {
  return untilMoved(database, async (): Promise<PlannedResolution<Settled | Ignored>> => {
    const reading = await database.query(readCallback(id));
    if (reading === null) return settle({ status: "not_found" });
    const action = decideByRules(payload, reading.callback, registry.ruleEngine());
    const { id: jobId, kind } = reading.job;
    switch (action.type) {
      case "ignore":
        return settle({ status: "ignored", reason: action.reason, jobId, kind });
      case "undecided":
        throw new Error(action.reason);
      default:
        return planFrom(registry, reading, action);
    }
  });
}

async function untilMoved<S>(
  database: Database,
  plan: () => Promise<PlannedResolution<S>>,
): Promise<Moved | S> {
  for (let round = 1; ; round++) {
    try {
      const planned = await plan();
      if (planned.statement === null) return planned.settled;
      const moved = await database.query(planned.statement);
      if (moved !== null) return moved;
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
  return reading === null ? settle({ status: "not_found" }) : planFrom(registry, reading, action);
}

function planFrom(
  registry: RegistryView,
  reading: CallbackReading,
  action: CallbackAction,
): PlannedResolution {
  const planned = planMove(registry, reading, action);
  if (!planned.ok) return settle(planned.error);
  const { guard, move, resolution, followUps, now } = planned.value;
  const write = moveIfUnchanged(guard, move, resolution, followUps, now);
  const decode: Statement<Moved | null>["decode"] = (rows) =>
    movedBy(registry, planned.value, write.decode(rows));
  return { statement: { ...write, decode }, settled: null };
}

function settle<S>(settled: S): PlannedResolution<S> {
  return { statement: null, settled };
}

/** Plans what an action does to a callback's job, with its follow-ups, from a reading. Pure. */
export function planMove(
  registry: RegistryView,
  reading: CallbackReading,
  action: CallbackAction,
): Result<PlannedMove, Settled> {
  const { callback, job, now } = reading;
  const { id: jobId, kind } = job;
  if (callback.state !== "pending") return err(judgeResolved(callback, kind, action));

  // A pending callback is its job's callback: the schema and every statement keep it so.
  if ((job.state !== "running" && job.state !== "waiting_external") || job.callbackId !== callback.id) {
    throw new Error(`callback ${callback.id} is pending but job ${jobId} doesn't name it`);
  }
  const move = applyCallback(job, action, reading);
  if (move === null) return err({ status: "still_running", jobId, kind });
  const planned = move.ended === null ? ok([]) : planFollowUps(registry, move.ended, now);
  if (!planned.ok) return err({ status: "follow_up_failed", failure: planned.error, jobId, kind });
  return ok({
    guard: { jobId, state: job.state, runLease: job.runLease, callbackId: callback.id },
    move,
    resolution: {
      state: CALLBACK_STATE_AFTER[action.type],
      payload: action.type === "complete" || action.type === "resume" ? action.payload : undefined,
      error: action.type === "fail" ? action.error : null,
    },
    followUps: planned.value,
    now,
  });
}

/** What a planned move came to; `null`: stale, nothing happened. */
export function movedBy(
  registry: RegistryView,
  { move: { job, ended }, followUps }: PlannedMove,
  result: MoveResult,
): Moved | null {
  if (!result.moved) return null;
  return {
    status: "moved",
    jobId: job.id,
    kind: job.kind,
    state: job.state,
    ended,
    followUps: result.followUps,
    dueIn: queuesDue(result.followUps, job),
    deduplicated: followUps.length - result.followUps.length,
    knownKind: registry.knows(job.kind),
  };
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
