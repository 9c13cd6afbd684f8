// What the model knows of the world: no ids and no times, only names and whether a time has passed; no text that isn't a promise.

import type { CallbackState } from "../../src/shared/callback.ts";
import type { DeliveryState } from "../../src/shared/delivery.ts";
import type { JobState } from "../../src/shared/job.ts";
import type { RescueReason } from "../../src/shared/outcome.ts";

/** `order` is followed by something on each outcome; `brittle` too, but in a broken build its closures throw; `plain` by nothing. */
export type Kind = "order" | "brittle" | "plain";

/** What an application asks for: a job to be run, or one to be parked. */
export interface Asked {
  /** "job 1": the jobs of a script are counted. */
  readonly name: string;
  readonly kind: Kind;
  readonly n: number;
  readonly maxAttempts: number;
  readonly isUnique: boolean;
  /** Its ordering key. */
  readonly line: string | null;
  readonly hasDeadline: boolean;
}

export interface Job extends Asked {
  /** Its place among all jobs, which the rules don't foretell: taken over from its id. */
  place: number;
  state: JobState;
  attempt: number;
  lease: number;
  /** Its time to run has come; of interest where it waits for a claim. */
  due: boolean;
  /** Its heartbeat is old, its deadline has passed; of interest where it runs. */
  stale: boolean;
  overdue: boolean;
  /** Its last attempt ended long ago: where it is over, it is deleted. */
  old: boolean;
  /** The pending callback. */
  callback: string | null;
  errors: string[];
  progress: number | null;
  result: number | null;
  deadLetter: string | null;
}

export interface Callback {
  /** "job 1's callback 2" */
  readonly name: string;
  readonly job: string;
  readonly lease: number;
  /** What its handler calls it; "" where none awaits it. */
  readonly label: string;
  /** Its correlation key. */
  readonly key: string | null;
  /** The attempt whose handler awaits it by its label. */
  readonly awaitedIn: number | null;
  state: CallbackState;
  resolvedTo: JobState | null;
  /** Its time-out has passed; of interest while it is pending. */
  expired: boolean;
  payload: number | null;
}

/** One who has claimed a job, for as long as they believe that they have it: what is known in their process only. */
export interface Attempt {
  /** "job 1/2": the job and the lease. */
  readonly name: string;
  readonly job: string;
  readonly kind: Kind;
  readonly lease: number;
  readonly number: number;
  readonly isBroken: boolean;
  /** The callback that it has registered and not taken back. */
  callback: string | null;
  progress: number | null;
  isProgressNew: boolean;
  /** It completed its job in a transaction of its own. */
  hasCompleted: boolean;
  /** It was about to. */
  hasPrepared: boolean;
  /** Its handler has come to an end. */
  over: boolean;
}

/** A rescue whose follow-ups aren't enqueued yet. */
export interface Outbox {
  readonly job: string;
  readonly lease: number;
  readonly kind: Kind;
  readonly reason: RescueReason;
  attempts: number;
  due: boolean;
  abandoned: boolean;
  old: boolean;
}

export type Action = "complete" | "resume" | "fail" | "retry";

/** What a webhook says; `resolve`: what the callback makes of it. */
export interface Told {
  readonly id: string;
  readonly does: Action | "resolve" | "heartbeat" | "ignore";
  /** A correlation key, or a callback by name; `null`: a callback that was never there. */
  readonly to: { readonly key: string } | { readonly callback: string | null };
}

export interface Delivery extends Told {
  /** Its place among all deliveries, and when it became due: taken over, as the place of a job. */
  place: number;
  dueSince: number;
  state: DeliveryState;
  job: string | null;
  attempts: number;
  /** Whether the tick tries it again. */
  again: "now" | "later" | null;
  /** Its place among those that a tick has taken and is about to try. */
  taken: number | null;
  old: boolean;
}

export interface Model {
  /** The build that does what comes next is one in which the closures of `brittle` throw. */
  broken: boolean;
  paused: boolean;
  jobs: Job[];
  /** The oldest first. */
  callbacks: Callback[];
  /** Which jobs have waited for which correlation key, also those that were deleted. */
  bearers: { readonly key: string; readonly job: string }[];
  attempts: Attempt[];
  /** All that was ever enqueued because of an outcome, or by a handler. */
  followUps: string[];
  outbox: Outbox[];
  deliveries: Delivery[];
}

export function emptyModel(): Model {
  return {
    broken: false,
    paused: false,
    jobs: [],
    callbacks: [],
    bearers: [],
    attempts: [],
    followUps: [],
    outbox: [],
    deliveries: [],
  };
}

/** A model that can be changed without changing this one. */
export function cloneOf(model: Model): Model {
  return {
    ...model,
    jobs: model.jobs.map((job) => ({ ...job, errors: [...job.errors] })),
    callbacks: model.callbacks.map((callback) => ({ ...callback })),
    bearers: [...model.bearers],
    attempts: model.attempts.map((attempt) => ({ ...attempt })),
    followUps: [...model.followUps],
    outbox: model.outbox.map((row) => ({ ...row })),
    deliveries: model.deliveries.map((delivery) => ({ ...delivery })),
  };
}

export const isTerminal = ({ state }: Job): boolean =>
  state === "completed" || state === "failed" || state === "cancelled";
export const isUnderWay = ({ state }: Job): boolean => state === "running" || state === "waiting_external";
export const isQueued = (job: Job): boolean => !isTerminal(job) && !isUnderWay(job);

export const jobOf = (model: Model, name: string | null): Job | undefined =>
  model.jobs.find((job) => job.name === name);
export const callbackOf = (model: Model, name: string | null): Callback | undefined =>
  model.callbacks.find((callback) => callback.name === name);

/** The attempt of that name. */
export function attemptOf(model: Model, name: string): Attempt {
  const attempt = model.attempts.find((candidate) => candidate.name === name);
  if (attempt === undefined) throw new Error(`nobody has claimed ${name}`);
  return attempt;
}

/** The job of an attempt, where it still has it. */
export function heldBy(model: Model, attempt: Attempt): Job | undefined {
  const job = jobOf(model, attempt.job);
  return job?.state === "running" && job.lease === attempt.lease ? job : undefined;
}

/** The live job, other than this one, that holds its unique key. */
export function holderOf(model: Model, { name, kind, n, isUnique }: Asked): Job | undefined {
  return model.jobs.find(
    (job) =>
      isUnique && job.isUnique && job.kind === kind && job.n === n && job.name !== name && !isTerminal(job),
  );
}
