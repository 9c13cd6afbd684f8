import type { CallbackRow } from "./callback.ts";
import { type AttemptError, type JobRow, MAX_ERRORS } from "./job.ts";
import type { Json } from "./json.ts";
import type { DeadLetterReason, OutcomeContext } from "./outcome.ts";
import type { Ended } from "./registry/plan.ts";
import { type Judgement, NO_RULE_ENGINE, type RuleEngine } from "./rules.ts";

/** What the outside world may do with a pending callback. `resume` lets a handler go on with the payload. */
export type CallbackAction =
  | { readonly type: "complete"; readonly payload: Json }
  | { readonly type: "resume"; readonly payload: Json }
  /** `expression`: the rule of the callback that says so. */
  | { readonly type: "fail"; readonly error: string; readonly expression?: string }
  | { readonly type: "retry" };

/**
 * What a payload comes to for one callback: its rules decide. Where they complete, or it has none, a handler that awaits the callback
 * by its name is resumed, and otherwise the job completes.
 *
 * @param engine what this build evaluates rules with
 * @returns the action, or why there is none: the payload isn't of interest, or this build can't tell
 */
export function decideByRules(
  payload: Json,
  { rules, awaitedInAttempt }: Pick<CallbackRow, "rules" | "awaitedInAttempt">,
  engine: RuleEngine | null,
):
  | CallbackAction
  | { readonly type: "ignore"; readonly reason: string }
  | { readonly type: "undecided"; readonly reason: string } {
  if (rules !== null && engine === null) return { type: "undecided", reason: NO_RULE_ENGINE };
  let judged: Judgement = { type: "complete", payload };
  if (rules !== null && engine !== null) {
    try {
      judged = engine.judge(rules, payload);
    } catch {
      return { type: "undecided", reason: "this build can't read the callback's rules" };
    }
  }
  switch (judged.type) {
    case "complete":
      return { type: awaitedInAttempt === null ? "complete" : "resume", payload: judged.payload };
    case "fail": {
      const { error, expression } = judged;
      return { type: "fail", error, ...(expression !== null && { expression }) };
    }
    case "ignore":
      return judged;
  }
}

/** The state that an action leaves its callback in: a callback tells which action resolved it. */
export const CALLBACK_STATE_AFTER = {
  complete: "completed",
  resume: "resumed",
  fail: "failed",
  retry: "retried",
} as const satisfies Record<CallbackAction["type"], string>;

/**
 * What `job.errors` keeps of one error's text: a hundred long ones would make a job too large to be read in one answer. The
 * callback's row has the whole text, and so do the closures.
 */
export const MAX_ERROR_CHARACTERS = 10_000;

/** The text stored and given to follow-ups where a callback asks for another attempt. */
export const RETRY_REQUESTED = "retry requested by callback";

/** A job that a callback can still move. */
export type Waiting = JobRow<"running" | "waiting_external">;

/** A planned move: the job as it will be, and the outcome that closures and hooks hear of (a resume has none). */
export interface Move<E extends Ended | null = Ended | null> {
  readonly job: JobRow;
  readonly ended: E;
  /** The entry that the move adds to `job.errors`. */
  readonly error: AttemptError | null;
}

/** What a transition needs to know beside the job. */
export interface Circumstances {
  /** The database's time of the read. */
  readonly now: Date;
  /** Whether the job's queue marks failed jobs as dead letters. */
  readonly keepsDeadLetters: boolean;
}

/**
 * What a callback does to its job. Pure; the guard that makes it safe stands in the statement that writes it.
 *
 * A retry keeps the attempt count and so stays bounded by maxAttempts: at the last attempt it fails the job. (The reference
 * starts again at 0, without end.) A resume gives the attempt back: the claim that follows spends the same one.
 *
 * @returns the move, or `null` where the job has to be parked first: only complete, fail and resume are for a job that is
 *   still running
 */
export function applyCallback(
  job: Waiting,
  action: CallbackAction,
  circumstances: Circumstances,
): Move | null {
  const { now } = circumstances;
  switch (action.type) {
    case "complete": {
      const completed: JobRow<"completed"> = {
        ...end(job, now),
        state: "completed",
        progress: null,
        result: action.payload,
      };
      return { job: completed, ended: { outcome: "completed", job: completed, context: {} }, error: null };
    }
    case "fail":
      return fail(job, action.error, "callback_failed", circumstances, { expression: action.expression });
    case "retry": {
      if (job.state === "running") return null;
      if (job.attempt >= job.maxAttempts) {
        return fail(job, RETRY_REQUESTED, "max_attempts_exhausted", circumstances);
      }
      const error = attemptError(job, RETRY_REQUESTED, now);
      const available: JobRow<"available"> = {
        ...withError(job, error),
        ...AT_REST,
        state: "available",
        runAt: now,
      };
      const context: OutcomeContext["retried"] = {
        error: RETRY_REQUESTED,
        attempt: job.attempt,
        nextRunAt: now,
      };
      return { job: available, ended: { outcome: "retried", job: available, context }, error };
    }
    case "resume": {
      // Early: the handler is still running and finds the payload when it comes to wait.
      if (job.state === "running") return { job: { ...job, callbackId: null }, ended: null, error: null };
      const available: JobRow<"available"> = {
        ...job,
        ...AT_REST,
        state: "available",
        runAt: now,
        attempt: Math.max(0, job.attempt - 1),
      };
      return { job: available, ended: null, error: null };
    }
  }
}

/** A job that can be cancelled: every one that isn't terminal. */
export type Cancellable = JobRow<"scheduled" | "available" | "running" | "waiting_external" | "retryable">;

/** Cancels a job, for a reason that is stored and given to follow-ups. Pure, as {@link applyCallback}. */
export function applyCancel(job: Cancellable, reason: string, now: Date): Move<Ended> {
  const error = attemptError(job, `cancelled: ${reason}`, now);
  const cancelled: JobRow<"cancelled"> = { ...withError(end(job, now), error), state: "cancelled" };
  return { job: cancelled, ended: { outcome: "cancelled", job: cancelled, context: { reason } }, error };
}

/** What only a job under way, or one that ended, has. */
export const AT_REST = {
  heartbeatAt: null,
  deadlineAt: null,
  finalizedAt: null,
  callbackId: null,
  deadLetter: null,
} as const;

/** A job whose attempt has ended, but for its state. */
export function end(job: Cancellable, now: Date) {
  return { ...job, ...AT_REST, finalizedAt: now };
}

/** Fails a job for good. @param about what else its error's entry says: that the error itself is final, or the rule behind it */
export function fail(
  job: Waiting,
  text: string,
  reason: DeadLetterReason,
  { now, keepsDeadLetters }: Circumstances,
  { terminal = false, expression }: { terminal?: boolean; expression?: string | undefined } = {},
): Move<Ended> {
  const error = {
    ...attemptError(job, text, now),
    ...(terminal && { terminal: true as const }),
    ...(expression !== undefined && { expression }),
  };
  const failed: JobRow<"failed"> = {
    ...withError(end(job, now), error),
    state: "failed",
    deadLetter: keepsDeadLetters ? { at: now, reason } : null,
  };
  const context: OutcomeContext["exhausted"] = { error: text, attempt: job.attempt };
  return { job: failed, ended: { outcome: "exhausted", job: failed, context }, error };
}

/** The entry of an error in `job.errors`. */
export function attemptError(job: JobRow, error: string, now: Date): AttemptError {
  const kept =
    error.length > MAX_ERROR_CHARACTERS ? `${error.slice(0, MAX_ERROR_CHARACTERS).toWellFormed()}…` : error;
  return { error: kept, attempt: job.attempt, at: now.toISOString() };
}

/** Adds an entry to `job.errors`. */
export function withError<J extends { readonly errors: readonly AttemptError[] }>(
  job: J,
  error: AttemptError,
): J {
  return { ...job, errors: [...job.errors, error].slice(-MAX_ERRORS) };
}
