import { backoffSeconds } from "./backoff.ts";
import type { CallbackId } from "./ids.ts";
import type { JobRow } from "./job.ts";
import type { Json } from "./json.ts";
import type { DeadLetterReason, OutcomeContext } from "./outcome.ts";
import {
  AT_REST,
  applyCancel,
  attemptError,
  type Circumstances,
  end,
  fail,
  type Move,
  withError,
} from "./transitions.ts";

/** How an attempt ends, or that it is parked. */
export type AttemptEnd =
  | { readonly type: "complete"; readonly result: Json }
  | { readonly type: "retry_after"; readonly seconds: number; readonly error: string }
  | { readonly type: "fail"; readonly error: string }
  | { readonly type: "fail_terminally"; readonly error: string; readonly reason: DeadLetterReason }
  | { readonly type: "snooze"; readonly seconds: number }
  | { readonly type: "cancel"; readonly reason: string }
  | { readonly type: "wait"; readonly callbackId: CallbackId }
  /** Makes the job available as if it hadn't been claimed: the process ends, or its callback was resumed before it was parked. */
  | { readonly type: "hand_back" };

/** What a finished attempt is planned from, beside its job. */
export interface AttemptCircumstances extends Circumstances {
  /** What the handler told of its progress. */
  readonly progress: Json;
  /** From 0 (included) to 1 (excluded), for the back-off. */
  readonly chance: number;
}

/** The error of a handler that returned `waitForCallback()` without a callback: the reference's words. */
export const WAITED_WITHOUT_CALLBACK = "WaitForCallback returned without calling register_callback";

/**
 * What the end of an attempt does to its job, as the reference does it. Pure; the guard that makes it safe stands in the statement
 * that writes it.
 */
export function applyAttemptEnd(
  running: JobRow<"running">,
  attemptEnd: AttemptEnd,
  circumstances: AttemptCircumstances,
): Move {
  const { now, progress, chance } = circumstances;
  const job = { ...running, progress };
  switch (attemptEnd.type) {
    case "complete": {
      const completed: JobRow<"completed"> = {
        ...end(job, now),
        state: "completed",
        progress: null,
        result: attemptEnd.result,
      };
      return { job: completed, ended: { outcome: "completed", job: completed, context: {} }, error: null };
    }
    case "retry_after": {
      const { seconds, error } = attemptEnd;
      if (job.attempt < job.maxAttempts) return retry(job, error, seconds, now);
      const asked = `max_attempts exhausted (handler requested retry after ${seconds} s)`;
      return fail(job, error === "" ? asked : `${asked}: ${error}`, "max_attempts_exhausted", circumstances);
    }
    case "fail":
      return job.attempt < job.maxAttempts
        ? retry(job, attemptEnd.error, backoffSeconds(job.attempt, chance), now)
        : fail(job, attemptEnd.error, "max_attempts_exhausted", circumstances);
    case "fail_terminally":
      return fail(job, attemptEnd.error, attemptEnd.reason, circumstances, { terminal: true });
    case "snooze": {
      const runAt = after(now, attemptEnd.seconds);
      const scheduled: JobRow<"scheduled"> = { ...unspent(job), state: "scheduled", runAt };
      return { job: scheduled, ended: null, error: null };
    }
    case "cancel":
      return applyCancel(job, attemptEnd.reason, now);
    case "wait": {
      const waiting: JobRow<"waiting_external"> = {
        ...job,
        ...AT_REST,
        state: "waiting_external",
        callbackId: attemptEnd.callbackId,
      };
      return {
        job: waiting,
        ended: { outcome: "waiting_for_callback", job: waiting, context: {} },
        error: null,
      };
    }
    case "hand_back": {
      const available: JobRow<"available"> = { ...unspent(job), state: "available", runAt: now };
      return { job: available, ended: null, error: null };
    }
  }
}

function retry(job: JobRow<"running">, text: string, seconds: number, now: Date): Move {
  const error = text === "" ? null : attemptError(job, text, now);
  const retryable: JobRow<"retryable"> = {
    ...end(error === null ? job : withError(job, error), now),
    state: "retryable",
    runAt: after(now, seconds),
  };
  const context: OutcomeContext["retried"] = {
    error: text,
    attempt: job.attempt,
    nextRunAt: retryable.runAt,
  };
  return { job: retryable, ended: { outcome: "retried", job: retryable, context }, error };
}

/** A job at rest whose attempt doesn't count. */
function unspent(job: JobRow<"running">) {
  return { ...job, ...AT_REST, attempt: Math.max(0, job.attempt - 1) };
}

function after(now: Date, seconds: number): Date {
  return new Date(now.getTime() + seconds * 1000);
}
