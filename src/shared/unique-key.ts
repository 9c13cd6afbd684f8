import { blake3 } from "@noble/hashes/blake3.js";
import { bytesToHex, utf8ToBytes } from "@noble/hashes/utils.js";
import { DEFAULT_UNIQUE_STATES, type JobState } from "./job.ts";
import { canonicalJson, type Json } from "./json.ts";

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
