// What the model knows of the world: no times, only whether they have passed; no text that isn't a promise.

import type { CallbackState } from "../../src/shared/callback.ts";
import type { DeliveryState } from "../../src/shared/delivery.ts";
import type { JobState } from "../../src/shared/job.ts";
import type { Outcome, RescueReason } from "../../src/shared/outcome.ts";

/** `order` is followed by something on each outcome; `brittle` too, unless its closures are broken; `plain` by nothing. */
export type Kind = "order" | "brittle" | "plain";

export interface Job {
  readonly id: string;
  readonly kind: Kind;
  readonly n: number;
  readonly maxAttempts: number;
  readonly isUnique: boolean;
  readonly line: string | null;
  state: JobState;
  attempt: number;
  lease: number;
  /** Whether its time to run has come; of interest where it waits for a claim. */
  due: boolean;
  /** Its heartbeat is old, its deadline has passed. */
  stale: boolean;
  overdue: boolean;
  readonly hasDeadline: boolean;
  /** It ended long enough ago to be deleted. */
  old: boolean;
  callback: string | null;
  errors: string[];
  progress: number | null;
  result: number | null;
  deadLetter: string | null;
}

export interface Callback {
  readonly id: string;
  readonly job: string;
  readonly lease: number;
  readonly name: string;
  readonly key: string | null;
  /** The attempt whose handler awaits it by its name. */
  readonly awaitedIn: number | null;
  state: CallbackState;
  resolvedTo: JobState | null;
  /** Its time-out has passed; of interest while it is pending. */
  expired: boolean;
  payload: number | null;
}

/** One who has claimed a job, for as long as they believe that they have it. */
export interface Attempt {
  readonly job: string;
  readonly lease: number;
  readonly number: number;
  /** The callback that it has registered and not taken back. */
  callback: string | null;
  progress: number | null;
  isProgressNew: boolean;
  /** It completed its job in a transaction of its own. */
  hasCompleted: boolean;
  /** It has told its end, once. */
  over: boolean;
}

export interface FollowUp {
  readonly job: string;
  readonly lease: number;
  readonly outcome: Outcome;
  readonly kind: "after" | "once";
  readonly n: number;
  live: boolean;
}

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

/** What a webhook says. */
export interface Told {
  readonly does: "complete" | "resume" | "fail" | "retry" | "heartbeat" | "ignore";
  readonly to: { readonly key: string } | { readonly callback: string };
}

export interface Delivery extends Told {
  readonly id: string;
  state: DeliveryState;
  job: string | null;
  attempts: number;
  /** Its place among those that the tick tries again; `Infinity`: its time hasn't come; `null`: it isn't tried again. */
  dueAt: number | null;
  old: boolean;
}

export interface Model {
  broken: boolean;
  paused: boolean;
  /** By id, in the order of ids. */
  jobs: Job[];
  /** The oldest first. */
  callbacks: Callback[];
  attempts: Attempt[];
  followUps: FollowUp[];
  children: number;
  outbox: Outbox[];
  /** In the order in which they came. */
  deliveries: Delivery[];
  /** What each delivery said, also after it was deleted: a provider repeats itself word by word. */
  told: Record<string, Told>;
  /** Every callback that there ever was. */
  knownCallbacks: string[];
  /** How often a delivery became due. */
  clock: number;
}

export function emptyModel(): Model {
  return {
    broken: false,
    paused: false,
    jobs: [],
    callbacks: [],
    attempts: [],
    followUps: [],
    children: 0,
    outbox: [],
    deliveries: [],
    told: {},
    knownCallbacks: [],
    clock: 0,
  };
}

const TERMINAL: readonly JobState[] = ["completed", "failed", "cancelled"];

export const isTerminal = (job: Job): boolean => TERMINAL.includes(job.state);
export const isUnderWay = (job: Job): boolean => job.state === "running" || job.state === "waiting_external";
export const isQueued = (job: Job): boolean =>
  job.state === "scheduled" || job.state === "available" || job.state === "retryable";

export const jobOf = (model: Model, id: string | null): Job | undefined =>
  model.jobs.find((job) => job.id === id);
export const callbackOf = (model: Model, id: string | null): Callback | undefined =>
  model.callbacks.find((callback) => callback.id === id);

/** The job of an attempt, where it still has it. */
export function heldBy(model: Model, { job: id, lease }: Attempt): Job | undefined {
  const job = jobOf(model, id);
  return job?.state === "running" && job.lease === lease ? job : undefined;
}

/** The live job that holds a unique key, other than this one. */
export function holderOf(model: Model, { kind, n, id }: Pick<Job, "kind" | "n" | "id">): Job | undefined {
  return model.jobs.find(
    (job) => job.isUnique && job.kind === kind && job.n === n && job.id !== id && !isTerminal(job),
  );
}
