import type { JsonObject } from "../json.ts";
import type { UniqueOptions } from "../unique-key.ts";

/** Where and how a job is enqueued. Everything has a default. */
export interface EnqueueOptions {
  /** 1 to 200 characters. Default "default". */
  readonly queue?: string;
  /** 1 (first) to 4. Default 2. */
  readonly priority?: 1 | 2 | 3 | 4;
  /** 1 to 1000. Default 25. */
  readonly maxAttempts?: number;
  /** Anything that should travel with the job. Default {}. */
  readonly metadata?: JsonObject;
  /** 20 at most. */
  readonly tags?: readonly string[];
  /** Enqueue only if no live job has the same key; `true` for the defaults. */
  readonly unique?: boolean | UniqueOptions;
  /** Not due before. Default: at once. */
  readonly runAt?: Date;
  /** The longest one attempt may run, in seconds; above 0 and up to a year. Default: no limit. */
  readonly deadlineSeconds?: number;
  /** Jobs of a queue with the same key run one at a time, first in first out. 1 to 200 characters. */
  readonly orderingKey?: string;
}

/** Makes a FollowUp something that only `registry.enqueue` returns. */
export const FOLLOW_UP: unique symbol = Symbol("awa-edge follow-up");

/** A job to be enqueued because of an outcome: what a closure returns. Made by `registry.enqueue` only. */
export interface FollowUp {
  readonly [FOLLOW_UP]: true;
  readonly kind: string;
  readonly args: unknown;
  readonly options: EnqueueOptions;
}
