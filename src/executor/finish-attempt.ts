import { DatabaseError } from "../shared/db/errors.ts";
import type { InsertedJob } from "../shared/db/statements/insert-jobs.ts";
import { moveIfUnchanged } from "../shared/db/statements/move-job.ts";
import { readJob } from "../shared/db/statements/read-job.ts";
import { type AttemptEnd, applyAttemptEnd } from "../shared/end-attempt.ts";
import type { JobRow } from "../shared/job.ts";
import { canonicalJson } from "../shared/json.ts";
import { inFull, type JobInsert } from "../shared/registry/job-insert.ts";
import { planFollowUps } from "../shared/registry/plan.ts";
import { err, ok, type Result } from "../shared/result.ts";
import type { Move } from "../shared/transitions.ts";
import type { Attempt } from "./attempt.ts";
import type { ExecutorDeps } from "./deps.ts";

/** What the end of an attempt came to. */
export type Finished =
  | {
      readonly status: "moved";
      readonly move: Move;
      /** Empty where an earlier try committed without our hearing of it. */
      readonly followUps: readonly InsertedJob[];
      readonly deduplicated: number;
    }
  /** Its callback was resumed before the job could be parked: nothing is left to wait for. */
  | { readonly status: "resumed_early" }
  /** Somebody else has ended the attempt: nothing was changed, enqueued or observed. */
  | { readonly status: "stale" }
  /** The database didn't take it. The job stays as it is, and is rescued when its heartbeat is old. */
  | { readonly status: "lost"; readonly error: DatabaseError };

/** Pauses between tries while the database is unavailable, in milliseconds. Within the time that a lease is good for. */
const PAUSES_MS = [100, 400, 1_500, 4_000, 10_000];
const MAX_ROUNDS = 12;

/** What is to be written, and how much of it: see {@link worse}. */
interface Intent {
  readonly end: AttemptEnd;
  readonly withFollowUps: boolean;
}

/**
 * Ends an attempt: plans the move and its follow-ups, and writes all of it in one statement, guarded by the run lease.
 *
 * Where it can't be planned, or Postgres refuses it, the attempt fails with that as its error, and so is bounded by max_attempts. Where
 * the follow-ups of the failure can't be planned either, the job fails without them: a closure that always throws must
 * not keep a job alive. Both are logged, and stand in the job's errors.
 *
 * Safe to repeat after an answer that didn't come: a try that had committed is recognized by the row it left.
 */
export async function finishAttempt(
  deps: ExecutorDeps,
  attempt: Attempt,
  end: AttemptEnd,
): Promise<Finished> {
  const { database } = deps;
  const tried: Move[] = [...attempt.prepared];
  const pauses = PAUSES_MS.values();
  const chance = Math.random();
  let intent: Intent = { end, withFollowUps: true };
  let callbackId = end.type === "wait" ? end.callbackId : attempt.callbackId;
  for (let round = 1; ; round++) {
    const { now, keepsDeadLetters, progress, job } = attempt;
    const move = applyAttemptEnd(job, intent.end, { now, keepsDeadLetters, progress, chance });
    const planned = plan(deps, attempt, intent, move, now);
    if (!planned.ok) {
      intent = planned.error;
      continue;
    }
    const followUps = planned.value;
    const guard = { jobId: job.id, state: job.state, runLease: job.runLease, callbackId };
    const resolution =
      intent.end.type === "wait" ? null : ({ state: "cancelled", payload: undefined, error: null } as const);
    try {
      tried.push(move);
      const result = await database.query(
        moveIfUnchanged(guard, move, resolution, followUps, now, "its_attempt"),
      );
      if (result.moved) {
        const deduplicated = followUps.length - result.followUps.length;
        return { status: "moved", move, followUps: result.followUps, deduplicated };
      }
      const found = (await database.query(readJob(job.id)))?.job ?? null;
      const ours = tried.find((made) => found !== null && isLeftBy(found, made));
      if (ours !== undefined) return { status: "moved", move: ours, followUps: [], deduplicated: 0 };
      if (found?.state !== "running" || found.runLease !== job.runLease || round >= MAX_ROUNDS) {
        return { status: "stale" };
      }
      // Still ours, with another callback than we knew of: ours was resumed early, or the handler has registered another one.
      callbackId = found.callbackId;
      if (intent.end.type !== "wait") continue;
      if (callbackId === null) return { status: "resumed_early" };
      intent = { ...intent, end: { type: "wait", callbackId } };
    } catch (thrown) {
      if (!(thrown instanceof DatabaseError)) throw thrown;
      const next = await afterError(deps, attempt, intent, thrown, pauses);
      if (next === null || round >= MAX_ROUNDS) return { status: "lost", error: thrown };
      intent = next;
    }
  }
}

/** The follow-ups of a move, or what to do instead of it. */
function plan(
  { registry, log }: ExecutorDeps,
  { job }: Attempt,
  { end, withFollowUps }: Intent,
  { ended }: Move,
  now: Date,
): Result<readonly JobInsert[], Intent> {
  if (ended === null || !withFollowUps) return ok([]);
  const followUps = planFollowUps(registry, ended, now);
  if (followUps.ok) return followUps;
  const { reason } = followUps.error;
  const { outcome } = ended;
  log({ level: "error", event: "follow_up_failed", jobId: job.id, kind: job.kind, outcome, reason });
  return err(worse(end, inFull(followUps.error)));
}

/** What to do after a database error; `null`: nothing more can be done. */
async function afterError(
  { log }: ExecutorDeps,
  { job }: Attempt,
  intent: Intent,
  error: DatabaseError,
  pauses: Iterator<number>,
): Promise<Intent | null> {
  switch (error.kind) {
    case "contended":
      return intent;
    case "unavailable": {
      const pause = pauses.next();
      if (pause.done === true) return null;
      await new Promise((resolve) => setTimeout(resolve, pause.value));
      return intent;
    }
    case "unique_violation":
      // The job gave up its unique key while it ran, and a newer one has it: two with the same key mustn't be.
      if (intent.end.type === "cancel") return null;
      return { end: { type: "cancel", reason: DUPLICATE }, withFollowUps: true };
    case "rejected": {
      if (!intent.withFollowUps) return null;
      const { id: jobId, kind } = job;
      log({ level: "error", event: "follow_up_failed", jobId, kind, reason: error.message });
      return worse(intent.end, error.message);
    }
    default:
      return null;
  }
}

const DUPLICATE = "duplicate: its unique key is held by a newer job";

/** The next worse end, where one couldn't be written for a fault of its own. */
function worse(end: AttemptEnd, fault: string): Intent {
  switch (end.type) {
    case "fail":
    case "fail_terminally":
      return { end: { ...end, error: `${end.error} (${fault})` }, withFollowUps: false };
    case "retry_after":
      return {
        end: { type: "fail", error: end.error === "" ? fault : `${end.error} (${fault})` },
        withFollowUps: false,
      };
    default:
      return { end: { type: "fail", error: fault }, withFollowUps: true };
  }
}

/**
 * Whether a job is as a move of this attempt would have left it: under the same lease somebody else may have come to the same end in the
 * same millisecond, but hardly with the same words.
 */
function isLeftBy(found: JobRow, { job }: Move): boolean {
  return (
    found.state === job.state &&
    found.runLease === job.runLease &&
    found.attempt === job.attempt &&
    found.runAt.getTime() === job.runAt.getTime() &&
    found.finalizedAt?.getTime() === job.finalizedAt?.getTime() &&
    found.callbackId === job.callbackId &&
    lastWords(found) === lastWords(job)
  );
}

function lastWords({ result, errors }: JobRow): string {
  const { error, at } = errors.at(-1) ?? {};
  return canonicalJson([result, error ?? null, at ?? null]);
}
