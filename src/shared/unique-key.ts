import { blake3 } from "@noble/hashes/blake3.js";
import { bytesToHex, utf8ToBytes } from "@noble/hashes/utils.js";
import { DEFAULT_UNIQUE_STATES, type JobState } from "./job.ts";
import { isJsonObject, type Json } from "./json.ts";

/** What makes a job a duplicate of another one of its kind. */
export interface UniqueOptions {
  /** Jobs with other args are other jobs. Default true. */
  readonly byArgs?: boolean;
  /** Jobs on other queues are other jobs. Default false. */
  readonly byQueue?: boolean;
  /** Time is cut into periods of this many seconds, counted from the Unix epoch; a new period is a new job. Default: none. */
  readonly byPeriodSeconds?: number;
  /** While the holder is in one of these states its key is taken. Default: every state that isn't terminal. */
  readonly states?: readonly JobState[];
}

/** A computed key and the states in which it is held. */
export interface UniqueKey {
  /** 32 hexadecimal digits. */
  readonly key: string;
  readonly states: readonly JobState[];
}

/**
 * Computes a unique key: the first 16 bytes of BLAKE3 over the canonical JSON (RFC 8785) of the parts that count.
 *
 * Each part stands under its name. The reference joins them without names, so that a queue called "{}" and empty args give
 * one key; here two different choices never do.
 *
 * @param now the time that decides the period
 */
export function uniqueKey(
  job: { readonly kind: string; readonly queue: string; readonly args: Json },
  options: UniqueOptions,
  now: Date,
): UniqueKey {
  const { byArgs = true, byQueue = false, byPeriodSeconds, states = DEFAULT_UNIQUE_STATES } = options;
  const parts = canonicalJson({
    kind: job.kind,
    ...(byQueue && { queue: job.queue }),
    ...(byArgs && { args: job.args }),
    ...(byPeriodSeconds !== undefined && {
      period: Math.floor(now.getTime() / 1000 / byPeriodSeconds),
      periodSeconds: byPeriodSeconds,
    }),
  });
  return { key: bytesToHex(blake3(utf8ToBytes(parts), { dkLen: 16 })), states: [...new Set(states)] };
}

/**
 * Canonical JSON, RFC 8785: members by name in the order of UTF-16, nothing between tokens; numbers and texts as JSON.stringify has them. Five
 * lines, as the library would be a hundredth of the bundle; the tests hold it against the library.
 */
export function canonicalJson(value: Json): string {
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(",")}]`;
  if (!isJsonObject(value)) return JSON.stringify(value);
  const members = Object.entries(value).filter(([, member]) => member !== undefined);
  const written = members.sort(([a], [b]) => (a < b ? -1 : 1));
  return `{${written.map(([name, member]) => `${JSON.stringify(name)}:${canonicalJson(member)}`).join(",")}}`;
}
