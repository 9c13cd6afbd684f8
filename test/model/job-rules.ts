// What docs/states.md and docs/running-jobs.md promise of jobs, attempts and callbacks, as plain assignments.

import type { Outcome, RescueReason } from "../../src/shared/outcome.ts";
import {
  type Attempt,
  type Callback,
  callbackOf,
  heldBy,
  holderOf,
  isQueued,
  isTerminal,
  isUnderWay,
  type Job,
  jobOf,
  type Model,
} from "./state.ts";

/** How a handler ends its attempt. */
export type End =
  | "complete"
  | "fail"
  | "fail terminally"
  | "retry later"
  | "snooze"
  | "cancel"
  | "wait"
  | "hand back";

/** What the outside world does with a callback. */
export type Action = "complete" | "resume" | "fail" | "retry";

const ACTION_STATE = { complete: "completed", resume: "resumed", fail: "failed", retry: "retried" } as const;

/** What a broken closure of an outcome leaves in the job's errors. */
const faultOf = (outcome: Outcome) => `follow-up 1 of brittle, ${outcome}: threw Error: Error: broken`;

export function canFollow(model: Model, job: Pick<Job, "kind">): boolean {
  return !(model.broken && job.kind === "brittle");
}

/** Enqueues what follows an outcome. */
export function follow(
  model: Model,
  { id, kind, lease, n }: Pick<Job, "id" | "kind" | "lease" | "n">,
  outcome: Outcome,
): void {
  if (kind === "plain") return;
  model.followUps.push({ job: id, lease, outcome, kind: "after", n, live: true });
  const isHeld = model.followUps.some((other) => other.kind === "once" && other.n === n && other.live);
  if (kind === "order" && outcome === "completed" && !isHeld) {
    model.followUps.push({ job: id, lease, outcome, kind: "once", n, live: true });
  }
}

/** Takes a job out of its attempt, or out of its queue. */
function leave(model: Model, job: Job, state: Job["state"], callbackState: Callback["state"]): void {
  const callback = callbackOf(model, job.callback);
  if (callback !== undefined) callback.state = callbackState;
  Object.assign(job, { state, callback: null, stale: false, overdue: false, due: false, old: false });
}

function giveUp(job: Job, reason: string): void {
  job.state = "failed";
  job.deadLetter = reason;
}

/** An attempt failed: another one later, or none. */
function failAttempt(model: Model, job: Job, text: string, { follows = true } = {}): void {
  job.errors.push(`${job.attempt}: ${text}`);
  leave(model, job, "retryable", "cancelled");
  if (job.attempt >= job.maxAttempts) giveUp(job, "max_attempts_exhausted");
  if (follows) follow(model, job, job.state === "failed" ? "exhausted" : "retried");
}

function failForGood(model: Model, job: Job, text: string, reason: string, { follows = true } = {}): void {
  job.errors.push(`${job.attempt}: ${text}`);
  leave(model, job, "failed", "cancelled");
  giveUp(job, reason);
  if (follows) follow(model, job, "exhausted");
}

export const TEXTS = {
  fail: "no luck",
  terminal: "never",
  retryLater: "not yet",
  cancel: "not wanted",
  contract: "WaitForCallback returned without calling register_callback",
} as const;

/** Whether somebody else has ended the attempt, or what its end came to. */
export type Ended = "stale" | "moved" | "recognized";

export function endAttempt(model: Model, attempt: Attempt, how: End): Ended {
  const job = heldBy(model, attempt);
  const { over } = attempt;
  attempt.over = true;
  if (job === undefined) {
    return attempt.hasCompleted && jobOf(model, attempt.job)?.state === "completed" ? "recognized" : "stale";
  }
  if (over) return "stale";
  job.progress = attempt.progress;
  const waitsForNothing = how === "wait" && attempt.callback === null;
  if (canFollow(model, job)) endAsAsked(model, job, waitsForNothing ? "contract" : how);
  else endUnfollowed(model, job, waitsForNothing ? "contract" : how);
  return "moved";
}

function endAsAsked(model: Model, job: Job, how: End | "contract"): void {
  switch (how) {
    case "complete":
      complete(model, job, 1, "cancelled");
      return;
    case "fail":
      failAttempt(model, job, TEXTS.fail);
      return;
    case "fail terminally":
      failForGood(model, job, TEXTS.terminal, "terminal_error");
      return;
    case "contract":
      failForGood(model, job, TEXTS.contract, "wait_for_callback_contract_violation");
      return;
    case "retry later": {
      const isLast = job.attempt >= job.maxAttempts;
      const asked = "max_attempts exhausted (handler requested retry after 3600 s): ";
      failAttempt(model, job, `${isLast ? asked : ""}${TEXTS.retryLater}`);
      return;
    }
    case "snooze":
    case "hand back": {
      leave(model, job, how === "snooze" ? "scheduled" : "available", "cancelled");
      job.attempt--;
      job.due = how === "hand back";
      return;
    }
    case "cancel":
      cancel(model, job, TEXTS.cancel);
      return;
    case "wait":
      // Its callback was resumed before the job was parked: it goes on at once.
      if (job.callback === null) {
        endAsAsked(model, job, "hand back");
        return;
      }
      Object.assign(job, { state: "waiting_external", stale: false, overdue: false });
      follow(model, job, "waiting_for_callback");
      return;
  }
}

/** The follow-ups can't be planned: the attempt fails with that, and goes without follow-ups as they fail as well. */
function endUnfollowed(model: Model, job: Job, how: End | "contract"): void {
  const next = faultOf(job.attempt < job.maxAttempts ? "retried" : "exhausted");
  const without = { follows: false };
  const failed = (text: string) => {
    failAttempt(model, job, `${text} (${next})`, without);
  };
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
    case "fail terminally": {
      const text = `${TEXTS.terminal} (${faultOf("exhausted")})`;
      failForGood(model, job, text, "terminal_error", without);
      return;
    }
    case "contract": {
      const text = `${TEXTS.contract} (${faultOf("exhausted")})`;
      failForGood(model, job, text, "wait_for_callback_contract_violation", without);
      return;
    }
    case "snooze":
    case "hand back":
      endAsAsked(model, job, how);
      return;
  }
}

export function complete(model: Model, job: Job, result: number, callbackState: Callback["state"]): void {
  leave(model, job, "completed", callbackState);
  Object.assign(job, { result, progress: null });
  follow(model, job, "completed");
}

export function cancel(model: Model, job: Job, reason: string): void {
  job.errors.push(`${job.attempt}: cancelled: ${reason}`);
  leave(model, job, "cancelled", "cancelled");
  follow(model, job, "cancelled");
}

/** A job that the application cancels. */
export function cancelByHand(model: Model, id: string): string {
  const job = jobOf(model, id);
  if (job === undefined) return "not_found";
  if (isTerminal(job)) return "already_ended";
  if (!canFollow(model, job)) return "follow_up_failed";
  cancel(model, job, "by hand");
  return "cancelled";
}

/** A job that is started afresh by hand. */
export function startAfresh(model: Model, job: Job): void {
  for (const callback of model.callbacks) {
    if (callback.job !== job.id) continue;
    if (callback.state === "pending") callback.state = "cancelled";
    else if (callback.state === "expired" && callback.awaitedIn !== null) callback.state = "superseded";
  }
  const afresh = { state: "available", due: true, attempt: 0, callback: null, deadLetter: null, old: false };
  Object.assign(job, afresh);
}

export function retryByHand(model: Model, id: string): string {
  const job = jobOf(model, id);
  if (job === undefined) return "not_found";
  const isWaiting = job.state === "waiting_external";
  if (job.state !== "failed" && job.state !== "cancelled" && !isWaiting) return "not_retriable";
  // A newer live job has the key, which this one let go of when it ended.
  if (!isWaiting && job.isUnique && holderOf(model, job) !== undefined) return "unique_violation";
  startAfresh(model, job);
  return "retried";
}

/** What an action comes to, for a callback of the job. */
export function resolve(
  model: Model,
  callback: Callback | undefined,
  action: Action,
  payload: number,
): string {
  if (callback === undefined) return "not_found";
  const { state } = callback;
  if (state === "expired" || state === "superseded" || state === "cancelled") return "gone";
  if (state !== "pending") return state === ACTION_STATE[action] ? "duplicate" : "already_resolved";
  const job = jobOf(model, callback.job);
  if (job === undefined) throw new Error(`the model has a callback without a job: ${callback.id}`);
  if (action === "retry" && job.state === "running") return "still_running";
  if (action !== "resume" && !canFollow(model, job)) return "follow_up_failed";
  switch (action) {
    case "complete":
      complete(model, job, payload, "completed");
      break;
    case "fail":
      job.errors.push(`${job.attempt}: declined`);
      leave(model, job, "failed", "failed");
      giveUp(job, "callback_failed");
      follow(model, job, "exhausted");
      break;
    case "retry": {
      job.errors.push(`${job.attempt}: retry requested by callback`);
      const isLast = job.attempt >= job.maxAttempts;
      leave(model, job, isLast ? "failed" : "available", "retried");
      if (isLast) giveUp(job, "max_attempts_exhausted");
      else job.due = true;
      follow(model, job, isLast ? "exhausted" : "retried");
      break;
    }
    case "resume":
      callback.state = "resumed";
      job.callback = null;
      if (job.state === "running") break;
      leave(model, job, "available", "resumed");
      job.attempt--;
      job.due = true;
  }
  callback.resolvedTo = job.state;
  if (action === "complete" || action === "resume") callback.payload = payload;
  return "moved";
}

/** The jobs that a claim may take. */
export function claimable(model: Model): readonly Job[] {
  if (model.paused) return [];
  const isBefore = (job: Job, other: Job) =>
    isUnderWay(other) ||
    (isQueued(other) && BigInt(other.id) < BigInt(job.id) && (other.lease > 0 || other.due));
  return model.jobs.filter(
    (job) =>
      isQueued(job) &&
      job.due &&
      (job.line === null ||
        !model.jobs.some((other) => other.line === job.line && other.id !== job.id && isBefore(job, other))),
  );
}

/** The jobs that a sweep rescues. */
export function lost(model: Model, reason: RescueReason): readonly Job[] {
  return model.jobs.filter((job) => {
    if (reason === "expired_callback") {
      return job.state === "waiting_external" && callbackOf(model, job.callback)?.expired === true;
    }
    return job.state === "running" && (reason === "stale_heartbeat" ? job.stale : job.overdue);
  });
}

const RESCUE_TEXTS = {
  stale_heartbeat: "heartbeat stale: worker presumed dead",
  deadline_exceeded: "hard deadline exceeded",
  expired_callback: "callback timed out",
} as const satisfies Record<RescueReason, string>;

export function rescue(model: Model, job: Job, reason: RescueReason): void {
  const isExpiry = reason === "expired_callback";
  if (isExpiry && callbackOf(model, job.callback)?.awaitedIn !== null) {
    // Nothing was lost: the handler is there to be told.
    leave(model, job, "available", "expired");
    job.attempt--;
    job.due = true;
    return;
  }
  job.errors.push(`${job.attempt}: ${RESCUE_TEXTS[reason]}`);
  leave(model, job, "retryable", isExpiry ? "expired" : "cancelled");
  if (job.attempt >= job.maxAttempts) {
    giveUp(job, isExpiry ? "callback_timeout" : "max_attempts_exhausted");
  }
  if (job.kind === "plain") return;
  const { id, lease, kind } = job;
  const row = { job: id, lease, kind, reason, attempts: 0, due: true, abandoned: false, old: false };
  model.outbox.push(row);
}

/** The tick dispatches what follows the rescues. */
export function dispatch(model: Model): void {
  for (const row of model.outbox) {
    if (!row.due || row.abandoned) continue;
    if (canFollow(model, row)) {
      follow(model, { id: row.job, kind: row.kind, lease: row.lease, n: 0 }, "rescued");
      continue;
    }
    row.attempts++;
    row.due = false;
    row.abandoned = row.attempts >= 12;
  }
  model.outbox = model.outbox.filter((row) => !row.due || row.abandoned);
}
