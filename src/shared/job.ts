import type { CallbackId, JobId, RunLease } from "./ids.ts";
import type { Json, JsonObject } from "./json.ts";
import type { DeadLetterReason, Outcome } from "./outcome.ts";

/**
 * The states of a job, and who moves it on:
 *
 * - `scheduled`: due later; a claim takes it when `runAt` has passed.
 * - `available`: due; a claim takes it.
 * - `running`: a worker has it, under `runLease`. The worker ends it, a callback that came early does, or a rescue.
 * - `waiting_external`: parked until its callback is resolved. The ingress moves it, or the expiry sweep.
 * - `retryable`: an attempt ended and another is due at `runAt`; a claim takes it.
 * - `completed`, `failed`, `cancelled`: terminal. Retention deletes it; `retry` brings a failed or cancelled one back.
 */
export const JOB_STATES = [
  "scheduled",
  "available",
  "running",
  "waiting_external",
  "retryable",
  "completed",
  "failed",
  "cancelled",
] as const;
export type JobState = (typeof JOB_STATES)[number];

export type TerminalState = "completed" | "failed" | "cancelled";
export const TERMINAL_STATES: readonly TerminalState[] = ["completed", "failed", "cancelled"];

/** States in which a job holds its unique key unless told otherwise: all that aren't terminal, so parking keeps it. */
export const DEFAULT_UNIQUE_STATES: readonly JobState[] = [
  "scheduled",
  "available",
  "running",
  "waiting_external",
  "retryable",
];

/** One failed or lost attempt. The newest {@link MAX_ERRORS} are kept. */
export interface AttemptError {
  readonly error: string;
  readonly attempt: number;
  /** ISO 8601, UTC. */
  readonly at: string;
  /** The error ended the job whatever attempts were left. */
  readonly terminal?: true;
  /** The rule of a callback that failed the job. */
  readonly expression?: string;
}
export const MAX_ERRORS = 100;

/** Which transition enqueued a follow-up. */
export interface Trigger {
  readonly jobId: JobId;
  readonly outcome: Outcome;
  readonly runLease: RunLease;
}

interface JobFields {
  readonly id: JobId;
  readonly kind: string;
  readonly queue: string;
  /** As stored, not yet validated: closures and handlers get theirs through the kind's schema. */
  readonly args: Json;
  /** 1 (first) to 4. */
  readonly priority: number;
  /** Claims so far, the running one included. */
  readonly attempt: number;
  readonly maxAttempts: number;
  readonly runAt: Date;
  readonly runLease: RunLease;
  readonly attemptedAt: Date | null;
  readonly createdAt: Date;
  /** The longest that one attempt may run, in seconds. */
  readonly deadlineSeconds: number | null;
  readonly errors: readonly AttemptError[];
  readonly metadata: JsonObject;
  readonly progress: Json;
  /** What the callback or the handler completed the job with. */
  readonly result: Json;
  readonly tags: readonly string[];
  /** Hexadecimal. */
  readonly uniqueKey: string | null;
  readonly uniqueStates: readonly JobState[] | null;
  readonly orderingKey: string | null;
  readonly trigger: Trigger | null;
}

interface Pending {
  readonly heartbeatAt: null;
  readonly deadlineAt: null;
  readonly finalizedAt: null;
  readonly callbackId: null;
  readonly deadLetter: null;
}
interface Ended {
  readonly heartbeatAt: null;
  readonly deadlineAt: null;
  /** When the last attempt ended. */
  readonly finalizedAt: Date;
  readonly callbackId: null;
  readonly deadLetter: null;
}
interface ByState {
  scheduled: Pending;
  available: Pending;
  running: {
    readonly heartbeatAt: Date;
    readonly deadlineAt: Date | null;
    readonly finalizedAt: null;
    /** Registered but not yet parked on. */
    readonly callbackId: CallbackId | null;
    readonly deadLetter: null;
  };
  waiting_external: Omit<Pending, "callbackId"> & { readonly callbackId: CallbackId };
  retryable: Ended;
  completed: Ended;
  failed: Omit<Ended, "deadLetter"> & {
    readonly deadLetter: { readonly at: Date; readonly reason: DeadLetterReason } | null;
  };
  cancelled: Ended;
}

/** A job as the database holds it, as a union by state: `JobRow<"completed">` has a `finalizedAt`, and so on. */
export type JobRow<S extends JobState = JobState> = {
  [K in S]: JobFields & { readonly state: K } & ByState[K];
}[S];
