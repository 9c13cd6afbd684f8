/**
 * How an attempt ended, or that it now waits. Each moves in exactly one guarded statement, together with its follow-ups
 * (`rescued`: with its row in the outbox).
 */
export const OUTCOMES = [
  "completed",
  "retried",
  "exhausted",
  "cancelled",
  "waiting_for_callback",
  "rescued",
] as const;
export type Outcome = (typeof OUTCOMES)[number];

/** Why maintenance ended an attempt. */
export const RESCUE_REASONS = ["stale_heartbeat", "deadline_exceeded", "expired_callback"] as const;
export type RescueReason = (typeof RESCUE_REASONS)[number];

/** Why a job is a dead letter. */
export const DEAD_LETTER_REASONS = [
  "callback_failed",
  "callback_timeout",
  "max_attempts_exhausted",
  "terminal_error",
  "wait_for_callback_contract_violation",
] as const;
export type DeadLetterReason = (typeof DEAD_LETTER_REASONS)[number];

/** What is known of an outcome beside the job: what closures and hooks get as their third argument. */
export type OutcomeContext = {
  readonly completed: Record<never, never>;
  /** `nextRunAt`: when the job is due again. */
  readonly retried: { readonly error: string; readonly attempt: number; readonly nextRunAt: Date };
  readonly exhausted: { readonly error: string; readonly attempt: number };
  readonly cancelled: { readonly reason: string };
  readonly waiting_for_callback: Record<never, never>;
  readonly rescued: { readonly reason: RescueReason };
};
