import { JOB_STATES } from "../job.ts";
import { whyUnstorable, whyUnstorableText } from "../json.ts";

// Says why a value can't be an option of a job, a kind or a queue; `null` where it can. No value is quoted.

const CLAIMABLE = ["scheduled", "available", "retryable"] as const;
const MAX_TAGS = 20;
const MAX_DEADLINE_SECONDS = 31_536_000;
/** What both JavaScript and Postgres can hold and no sane schedule exceeds: years 1970 to 9999. */
const MAX_RUN_AT_MS = Date.UTC(9999, 11, 31);

export function whyNoName(value: unknown, at: string): string | null {
  if (typeof value !== "string") return `${at} isn't a string`;
  // Postgres counts characters, not UTF-16 units.
  const characters = [...value].length;
  if (characters < 1 || characters > 200) return `${at} must have 1 to 200 characters`;
  return whyUnstorableText(value, at);
}

export function whyNoInteger(value: unknown, at: string, min: number, max: number): string | null {
  return Number.isInteger(value) && Number(value) >= min && Number(value) <= max
    ? null
    : `${at} must be a whole number from ${min} to ${max}`;
}

export function whyNoObject(value: unknown, at: string): string | null {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return `${at} isn't an object`;
  return whyUnstorable(value, at);
}

export function whyNoTags(tags: unknown): string | null {
  if (!Array.isArray(tags) || tags.length > MAX_TAGS) return `tags must be a list of ${MAX_TAGS} at most`;
  return tags.some((tag) => typeof tag !== "string")
    ? "tags must be strings"
    : whyUnstorableText(tags.join(), "tags");
}

export function whyNoTime(value: unknown, at: string): string | null {
  if (!(value instanceof Date) || Number.isNaN(value.getTime())) return `${at} isn't a valid Date`;
  return value.getTime() < 0 || value.getTime() > MAX_RUN_AT_MS
    ? `${at} must be between 1970 and 9999`
    : null;
}

/** A deadline of one attempt, in seconds. */
export function whyNoDeadline(value: unknown): string | null {
  return typeof value === "number" && value > 0 && value <= MAX_DEADLINE_SECONDS
    ? null
    : `deadlineSeconds must be above 0 and at most ${MAX_DEADLINE_SECONDS}`;
}

export function whyNotUnique(unique: unknown): string | null {
  if (typeof unique === "boolean") return null;
  if (typeof unique !== "object" || unique === null) return "unique must be a boolean or an object";
  const { byPeriodSeconds, states }: { byPeriodSeconds?: unknown; states?: unknown } = unique;
  if (
    byPeriodSeconds !== undefined &&
    !(typeof byPeriodSeconds === "number" && byPeriodSeconds > 0 && Number.isFinite(byPeriodSeconds))
  ) {
    return "unique.byPeriodSeconds must be above 0";
  }
  if (states === undefined) return null;
  if (!Array.isArray(states) || states.length === 0 || !states.every((state) => JOB_STATES.includes(state))) {
    return "unique.states must be a list of job states";
  }
  // A claim would take the key then: one that is held by then would make it fail, with all that it was to claim.
  const isTakenByClaims = states.includes("running") && !CLAIMABLE.every((state) => states.includes(state));
  return isTakenByClaims ? `unique.states with running must have ${CLAIMABLE.join(", ")} as well` : null;
}
