/** The longest pause between two attempts, in seconds: a day. */
export const MAX_BACKOFF_SECONDS = 86_400;
/** The share of the pause that chance may add, so that jobs that failed together don't come back together. */
const JITTER = 0.25;

/** The exponent is capped where the day has long been reached, so that 1000 attempts don't overflow. */
const MAX_EXPONENT = 20;

/**
 * The pause before the next attempt, in seconds: 2^attempt, up to a quarter more by chance, a day at most (the reference's
 * back-off).
 *
 * @param attempt the number of the attempt that ended
 * @param chance from 0 (included) to 1 (excluded)
 */
export function backoffSeconds(attempt: number, chance: number): number {
  return Math.min(2 ** Math.min(attempt, MAX_EXPONENT) * (1 + chance * JITTER), MAX_BACKOFF_SECONDS);
}

/**
 * SQL for the pause before the next attempt, in seconds, as {@link backoffSeconds} has it.
 *
 * @param attempt SQL for the number of the attempt that ended
 */
export function backoffSecondsSql(attempt: string): string {
  return `least(power(2, least(${attempt}, ${MAX_EXPONENT})) * (1 + random() * ${JITTER}), ${MAX_BACKOFF_SECONDS})`;
}
