// What docs/states.md and docs/running-jobs.md promise of jobs and callbacks, as plain assignments.

import type { CallbackState } from "../../src/shared/callback.ts";
import type { JobState } from "../../src/shared/job.ts";
import type { Outcome, RescueReason } from "../../src/shared/outcome.ts";
import {
  type Action,
  type Asked,
  type Callback,
  callbackOf,
  holderOf,
  isQueued,
  isTerminal,
  isUnderWay,
  type Job,
  jobOf,
  type Model,
  type Outbox,
} from "./state.ts";

/** Whether the follow-ups of this job can be planned. */
export function canFollow(model: Model, { kind }: Pick<Job, "kind">): boolean {
  return !(model.broken && kind === "brittle");
}

/** Enqueues what follows an outcome: `once` has a unique key, and nobody runs it. */
export function follow(
  model: Model,
  job: Pick<Job, "name" | "kind" | "lease" | "n">,
  outcome: Outcome,
): void {
  if (job.kind === "plain") return;
  const because = `${outcome} of ${job.name}, lease ${job.lease}`;
  model.followUps.push(`after ${because}`);
  const once = `once ${job.n} `;
  const isHeld = model.followUps.some((other) => other.startsWith(once));
  if (job.kind === "order" && outcome === "completed" && !isHeld) model.followUps.push(`${once}${because}`);
}

/** A job as an application asks for it. */
export function newJob(asked: Asked, given: Pick<Job, "state" | "due" | "attempt" | "lease">): Job {
  const nothing = { callback: null, progress: null, result: null, deadLetter: null };
  const { name, kind, n, maxAttempts, isUnique, line, hasDeadline } = asked;
  return {
    ...{ name, kind, n, maxAttempts, isUnique, line, hasDeadline, ...given, ...nothing },
    ...{ place: Number.POSITIVE_INFINITY, stale: false, overdue: false, old: false, errors: [] },
  };
}

export function enqueue(model: Model, asked: Asked, isLater: boolean): string {
  const holder = holderOf(model, asked);
  if (holder !== undefined) return `deduplicated by ${holder.name}`;
  const state = isLater ? "scheduled" : "available";
  model.jobs.push(newJob(asked, { state, due: !isLater, attempt: 0, lease: 0 }));
  return `enqueued ${asked.name}`;
}

/** Adds a callback to its job. */
export function addCallback(
  model: Model,
  job: Job,
  { label, key, awaitedIn }: Pick<Callback, "label" | "key" | "awaitedIn">,
): Callback {
  const before = model.callbacks.filter((callback) => callback.job === job.name).length;
  const callback: Callback = {
    ...{
      name: `${job.name}'s callback ${before + 1}`,
      job: job.name,
      lease: job.lease,
      label,
      key,
      awaitedIn,
    },
    ...{ state: "pending", resolvedTo: null, expired: false, payload: null },
  };
  model.callbacks.push(callback);
  if (key !== null) model.bearers.push({ key, job: job.name });
  job.callback = callback.name;
  return callback;
}

/** Takes a job out of its attempt, or out of its queue, and says what becomes of its pending callback. */
export function leave(
  model: Model,
  job: Job,
  state: JobState,
  callbackState: CallbackState,
  isDue = false,
): void {
  const callback = callbackOf(model, job.callback);
  if (callback !== undefined) callback.state = callbackState;
  Object.assign(job, { state, callback: null, stale: false, overdue: false, due: isDue, old: false });
}

export function giveUp(job: Job, reason: string): void {
  job.state = "failed";
  job.deadLetter = reason;
}

export function complete(model: Model, job: Job, result: number, callbackState: CallbackState): void {
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
export function cancelByHand(model: Model, name: string): string {
  const job = jobOf(model, name);
  if (job === undefined) return "not_found";
  if (isTerminal(job)) return "already_ended";
  if (!canFollow(model, job)) return "follow_up_failed";
  cancel(model, job, "by hand");
  return "cancelled";
}

/** A job that is started afresh by hand. */
export function startAfresh(model: Model, job: Job): void {
  leave(model, job, "available", "cancelled", true);
  Object.assign(job, { attempt: 0, deadLetter: null });
  for (const callback of model.callbacks) {
    const isToBeTold = callback.state === "expired" && callback.awaitedIn !== null;
    if (callback.job === job.name && isToBeTold) callback.state = "superseded";
  }
}

export function retryByHand(model: Model, name: string): string {
  const job = jobOf(model, name);
  if (job === undefined) return "not_found";
  const isWaiting = job.state === "waiting_external";
  if (job.state !== "failed" && job.state !== "cancelled" && !isWaiting) return "not_retriable";
  // It let go of its unique key when it ended, and a newer one may have it.
  if (!isWaiting && holderOf(model, job) !== undefined) return "unique_violation";
  startAfresh(model, job);
  return "retried";
}

const STATE_AFTER = { complete: "completed", resume: "resumed", fail: "failed", retry: "retried" } as const;

/** What the outside world does with a callback. */
export function resolve(
  model: Model,
  callback: Callback | undefined,
  action: Action,
  payload: number,
): string {
  if (callback === undefined) return "not_found";
  const { state } = callback;
  if (state === "expired" || state === "superseded" || state === "cancelled") return `gone: ${state}`;
  if (state !== "pending") {
    return state === STATE_AFTER[action] ? `duplicate: ${callback.resolvedTo}` : "already_resolved";
  }
  const job = jobOf(model, callback.job);
  if (job === undefined) throw new Error(`${callback.name} has no job`);
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
    case "retry":
      job.errors.push(`${job.attempt}: retry requested by callback`);
      leave(model, job, "available", "retried", true);
      if (job.attempt >= job.maxAttempts) {
        job.due = false;
        giveUp(job, "max_attempts_exhausted");
      }
      follow(model, job, job.state === "failed" ? "exhausted" : "retried");
      break;
    case "resume":
      callback.state = "resumed";
      job.callback = null;
      if (job.state === "running") break;
      leave(model, job, "available", "resumed", true);
      job.attempt = Math.max(0, job.attempt - 1);
  }
  callback.resolvedTo = job.state;
  if (action === "complete" || action === "resume") callback.payload = payload;
  return `moved: ${job.state}`;
}

/** Puts off the time-out of a callback. */
export function extend(model: Model, name: string | null): string {
  const callback = callbackOf(model, name);
  if (callback === undefined) return "not_found";
  const { state } = callback;
  if (state === "expired" || state === "superseded" || state === "cancelled") return `gone: ${state}`;
  if (state !== "pending") return "already_resolved";
  callback.expired = false;
  return "extended";
}

/** The jobs that a claim may take: of a line only the first, and none while another is under way. */
export function claimable(model: Model): readonly Job[] {
  if (model.paused) return [];
  const isAhead = (other: Job, job: Job) =>
    isUnderWay(other) || (isQueued(other) && other.place < job.place && (other.lease > 0 || other.due));
  return model.jobs.filter(
    (job) =>
      isQueued(job) &&
      job.due &&
      !model.jobs.some(
        (other) => other !== job && job.line !== null && other.line === job.line && isAhead(other, job),
      ),
  );
}

export function claim(model: Model, job: Job): void {
  Object.assign(job, {
    state: "running",
    attempt: job.attempt + 1,
    lease: job.lease + 1,
    due: false,
    old: false,
  });
  const { name, kind, lease, attempt: number, progress } = job;
  model.attempts.push({
    ...{ name: `${name}/${lease}`, job: name, kind, lease, number, isBroken: model.broken, callback: null },
    ...{ progress, isProgressNew: false, hasPrepared: false, hasCompleted: false, over: false },
  });
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
    leave(model, job, "available", "expired", true);
    job.attempt = Math.max(0, job.attempt - 1);
    return;
  }
  job.errors.push(`${job.attempt}: ${RESCUE_TEXTS[reason]}`);
  leave(model, job, "retryable", isExpiry ? "expired" : "cancelled");
  if (job.attempt >= job.maxAttempts) giveUp(job, isExpiry ? "callback_timeout" : "max_attempts_exhausted");
  if (job.kind === "plain") return;
  const { name, lease, kind } = job;
  model.outbox.push({
    ...{ job: name, lease, kind, reason, attempts: 0, due: true, abandoned: false, old: false },
  });
}

/** The tick enqueues what follows a rescue, or puts it off. */
export function dispatch(model: Model, { job: name, lease }: Outbox): void {
  const row = model.outbox.find((candidate) => candidate.job === name && candidate.lease === lease);
  if (row === undefined) return;
  if (canFollow(model, row)) {
    model.outbox = model.outbox.filter((other) => other !== row);
    follow(model, { name, lease, kind: row.kind, n: 0 }, "rescued");
    return;
  }
  row.attempts++;
  row.due = false;
  row.abandoned = row.attempts >= 12;
}
