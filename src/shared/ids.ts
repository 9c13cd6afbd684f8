declare const brand: unique symbol;

/** A job's id: a Postgres bigint as decimal digits, because bigints arrive as strings and JS numbers lose digits. */
export type JobId = string & { readonly [brand]: "JobId" };

/** The identity of one attempt: +1 on every claim, never reset. A bigint as decimal digits. */
export type RunLease = string & { readonly [brand]: "RunLease" };

/** A callback's id: a UUID in lower case with hyphens. */
export type CallbackId = string & { readonly [brand]: "CallbackId" };

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;
const BIGINT = /^(0|[1-9][0-9]{0,18})$/;
const MAX_BIGINT = 9_223_372_036_854_775_807n;

/** Parses a UUID of any version, in either case; `null` where the text is none. */
export function parseCallbackId(text: string): CallbackId | null {
  return UUID.test(text) ? (text.toLowerCase() as CallbackId) : null;
}

/** A fresh random (version 4) callback id. */
export function newCallbackId(): CallbackId {
  return crypto.randomUUID() as string as CallbackId;
}

/** Parses a job id (decimal digits, or a safe integer); `null` where the value is none. */
export function parseJobId(value: unknown): JobId | null {
  return isBigintText(String(value)) ? (String(value) as JobId) : null;
}

/** Parses a run lease (decimal digits, or a safe integer); `null` where the value is none. */
export function parseRunLease(value: unknown): RunLease | null {
  return isBigintText(String(value)) ? (String(value) as RunLease) : null;
}

function isBigintText(text: string): boolean {
  return BIGINT.test(text) && BigInt(text) <= MAX_BIGINT;
}
