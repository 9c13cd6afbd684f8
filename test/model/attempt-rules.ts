// What docs/running-jobs.md promises of how an attempt ends.

import { cancel, canFollow, complete, follow, giveUp, leave } from "./job-rules.ts";
import { type Attempt, heldBy, type Job, jobOf, type Model } from "./state.ts";

/** How a handler ends its attempt. */
export const ENDS = [
  "complete",
  "fail",
  "fail terminally",
  "retry later",
  "snooze",
  "cancel",
  "wait",
  "hand back",
] as const;
export type End = (typeof ENDS)[number];

/** What a handler says when it ends. */
export const TEXTS = {
  fail: "no luck",
  terminal: "never",
  retryLater: "not yet",
  cancel: "not wanted",
} as const;
const NO_CALLBACK = "WaitForCallback returned without calling register_callback";

/** What a job's result is where its handler completes it: by its return, in a transaction of its own, or once more. */
export const RESULTS = { returned: 1, prepared: 3, again: 3 } as const;

/**
 * Whether somebody else left the job just as this end would have, under the same lease, with the same result: by hand, or by a callback.
 * Who ends an attempt recognizes what an earlier try of theirs has written by its words and its times, which are in whole milliseconds:
 * they may take the other's for their own, and say that they moved the job.
 */
export function looksEnded(model: Model, attempt: Attempt, how: End): boolean {
  const job = jobOf(model, attempt.job);
  if (heldBy(model, attempt) !== undefined || job?.lease !== attempt.lease) return false;
  if (job.state === "available") return how === "hand back" || how === "wait";
  const results: (number | null)[] = [
    ...(how === "complete" ? [RESULTS.returned, RESULTS.again] : []),
    ...(attempt.hasPrepared ? [RESULTS.prepared] : []),
  ];
  return job.state === "completed" && results.includes(job.result);
}

/** What a broken closure of an outcome leaves in the job's errors. */
const faultOf = (outcome: string) => `follow-up 1 of brittle, ${outcome}: threw Error: Error: broken`;

/** An attempt ends. @returns whether that moved its job; `stale`: somebody else had ended it */
export function endAttempt(model: Model, attempt: Attempt, how: End): "moved" | "stale" {
  const job = heldBy(model, attempt);
  if (job === undefined) {
    // Its own transaction has: that is recognized by its time, unless a step has changed that.
    const found = jobOf(model, attempt.job);
    const isOurs =
      attempt.hasCompleted && found?.state === "completed" && found.lease === attempt.lease && !found.old;
    return isOurs ? "moved" : "stale";
  }
  job.progress = attempt.progress;
  const waitsForNothing = how === "wait" && attempt.callback === null;
  const end = waitsForNothing ? "no callback" : how;
  if (canFollow(model, job)) endAsAsked(model, job, end);
  else endUnfollowed(model, job, end);
  return "moved";
}

/** Another attempt later, or none. */
function failAttempt(model: Model, job: Job, text: string, follows = true): void {
  job.errors.push(`${job.attempt}: ${text}`);
  leave(model, job, "retryable", "cancelled");
  if (job.attempt >= job.maxAttempts) giveUp(job, "max_attempts_exhausted");
  if (follows) follow(model, job, job.state === "failed" ? "exhausted" : "retried");
}

function failForGood(model: Model, job: Job, text: string, reason: string, follows = true): void {
  job.errors.push(`${job.attempt}: ${text}`);
  leave(model, job, "failed", "cancelled");
  giveUp(job, reason);
  if (follows) follow(model, job, "exhausted");
}

function giveBack(model: Model, job: Job, state: "scheduled" | "available"): void {
  leave(model, job, state, "cancelled", state === "available");
  job.attempt = Math.max(0, job.attempt - 1);
}

function endAsAsked(model: Model, job: Job, how: End | "no callback"): void {
  switch (how) {
    case "complete":
      complete(model, job, RESULTS.returned, "cancelled");
      return;
    case "fail":
      failAttempt(model, job, TEXTS.fail);
      return;
    case "fail terminally":
      failForGood(model, job, TEXTS.terminal, "terminal_error");
      return;
    case "no callback":
      failForGood(model, job, NO_CALLBACK, "wait_for_callback_contract_violation");
      return;
    case "retry later": {
      const asked = "max_attempts exhausted (handler requested retry after 3600 s): ";
      const isLast = job.attempt >= job.maxAttempts;
      failAttempt(model, job, `${isLast ? asked : ""}${TEXTS.retryLater}`);
      return;
    }
    case "snooze":
      giveBack(model, job, "scheduled");
      return;
    case "hand back":
      giveBack(model, job, "available");
      return;
    case "cancel":
      cancel(model, job, TEXTS.cancel);
      return;
    case "wait":
      // Its callback was resumed before the job was parked: it goes on at once.
      if (job.callback === null) {
        giveBack(model, job, "available");
        return;
      }
      Object.assign(job, { state: "waiting_external", stale: false, overdue: false });
      follow(model, job, "waiting_for_callback");
      return;
  }
}

/** The follow-ups can't be planned: the attempt fails with that, and without follow-ups, as those of its failure fail as well. */
function endUnfollowed(model: Model, job: Job, how: End | "no callback"): void {
  const failed = (text: string) => {
    const next = faultOf(job.attempt < job.maxAttempts ? "retried" : "exhausted");
    failAttempt(model, job, `${text} (${next})`, false);
  };
  const failedForGood = (text: string, reason: string) =>
    failForGood(model, job, `${text} (${faultOf("exhausted")})`, reason, false);
  switch (how) {
    case "complete":
      failed(faultOf("completed"));
      return;
    case "cancel":
      failed(faultOf("cancelled"));
      return;
    case "wait":
      failed(faultOf("waiting_for_callback"));
      return;
    case "fail":
      failed(TEXTS.fail);
      return;
    case "retry later":
      failed(TEXTS.retryLater);
      return;
    case "fail terminally":
      failedForGood(TEXTS.terminal, "terminal_error");
      return;
    case "no callback":
      failedForGood(NO_CALLBACK, "wait_for_callback_contract_violation");
      return;
    case "snooze":
    case "hand back":
      endAsAsked(model, job, how);
      return;
  }
}
