import type { CallbackId, JobId, RunLease } from "./ids.ts";
import type { JobState } from "./job.ts";
import type { Json, JsonObject } from "./json.ts";

/**
 * The states of a callback, and who leaves it there:
 *
 * - `pending`: its job waits for it, or runs and will. Exactly one per job.
 * - `completed`, `failed`, `retried`, `resumed`: resolved from outside, by that action.
 * - `expired`: the expiry sweep gave it up.
 * - `cancelled`: its job was cancelled, retried by hand, or rescued while running.
 * - `superseded`: its attempt registered another one; or it had expired under a handler that awaits it by its name, and the job was
 *   started afresh by hand.
 */
export const CALLBACK_STATES = [
  "pending",
  "completed",
  "failed",
  "retried",
  "resumed",
  "expired",
  "cancelled",
  "superseded",
] as const;
export type CallbackState = (typeof CALLBACK_STATES)[number];

/** One wait of one attempt. */
export interface CallbackRow {
  readonly id: CallbackId;
  readonly jobId: JobId;
  readonly runLease: RunLease;
  /** What the handler calls this wait; "" for the only one. */
  readonly name: string;
  readonly state: CallbackState;
  readonly timeoutAt: Date;
  readonly createdAt: Date;
  readonly resolvedAt: Date | null;
  /** The state its resolution moved the job to, where it was resolved from outside. */
  readonly resolvedTo: JobState | null;
  readonly payload: Json;
  readonly error: string | null;
  /** The source of webhooks that it belongs to; `null`: any may name it by its id. */
  readonly source: string | null;
  /** What that source's provider knows it by. */
  readonly correlationKey: string | null;
  /** What `resolve` does with a payload; `null`: it completes. */
  readonly rules: JsonObject | null;
  /** The attempt whose handler awaits it by its name; `null`: it decides what becomes of the job. */
  readonly awaitedInAttempt: number | null;
}

/** How long a wait may last where nobody says, in seconds: every wait ends. The reference's default. */
export const DEFAULT_CALLBACK_TIMEOUT_SECONDS = 3600;
/** The longest wait, in seconds: a year. */
export const MAX_CALLBACK_TIMEOUT_SECONDS = 31_536_000;
