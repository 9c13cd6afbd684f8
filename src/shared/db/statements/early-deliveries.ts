import { type Meaning, parseMeaning } from "../../delivery.ts";
import type { SqlValue, Statement } from "../port.ts";
import { date, json } from "../rows.ts";
import { decodeRecordedDelivery } from "./read-delivery.ts";
import type { RecordedDelivery } from "./record-delivery.ts";

/** Early deliveries of one correlation key that a registration looks at; any further ones are left to the tick. */
const MAX_EARLY = 10;
/** And their bytes: an answer of Neon's is 10 MB at the most. One is always read. */
const MAX_EARLY_BYTES = 4_000_000;

/** A delivery that came before its callback. */
export interface EarlyDelivery extends RecordedDelivery {
  /** `null`: this build can't read it. */
  readonly meaning: Meaning | null;
}

/** The early deliveries of a correlation key. */
export interface EarlyDeliveries {
  /** The oldest first. */
  readonly deliveries: readonly EarlyDelivery[];
  /** Whether that is all of them. */
  readonly isAll: boolean;
  readonly now: Date | null;
}

/** Reads the parked deliveries of a correlation key, the oldest first. */
export function readEarlyDeliveries(source: string, correlationKey: string): Statement<EarlyDeliveries> {
  return {
    text: SQL,
    values: [source, correlationKey],
    decode: (rows) => ({
      deliveries: rows.map((row) => ({
        ...decodeRecordedDelivery(row),
        meaning: parseMeaning(json(row, "meaning")),
      })),
      isAll: rows[0]?.more !== true,
      now: rows[0] === undefined ? null : date(rows[0], "now"),
    }),
  };
}

const SQL = `
WITH found AS (
  SELECT id, state, attempts, meaning, row_number() OVER w AS place, count(*) OVER () AS found,
    sum(octet_length(meaning::text)) OVER w AS bytes
  FROM (
    SELECT * FROM awa_edge.deliveries
    WHERE source = $1::text AND correlation_key = $2::text AND state = 'parked'
    ORDER BY id LIMIT ${MAX_EARLY} + 1
  ) oldest
  WINDOW w AS (ORDER BY id)
)
SELECT id::text AS delivery__id, state AS delivery__state, attempts AS delivery__attempts, meaning,
  found > count(*) OVER () AS more, date_trunc('milliseconds', now()) AS now
FROM found
WHERE place = 1 OR (place <= ${MAX_EARLY} AND bytes <= ${MAX_EARLY_BYTES})
ORDER BY id`;

/**
 * How a registration deals with what came early for its callback.
 *
 * - `seen`: under `lockTarget`, and for its correlation key alone. These deliveries were read, by id; is there another one, nothing is
 *   registered.
 * - `isDue`: they are left to the tick, which is told to look at them.
 * - neither: nothing can have come early, as nobody knows of the callback.
 */
export type EarlyLook = { readonly seen: readonly string[] } | { readonly isDue: boolean };
export const LEAVE_TO_TICK: EarlyLook = { isDue: true };
export const NOTHING_EARLY: EarlyLook = { isDue: false };

/** The two parameters of a registration's {@link EarlyLook}. */
export function lookValues(look: EarlyLook): readonly SqlValue[] {
  return "seen" in look ? [look.seen, false] : [null, look.isDue];
}

/** SQL of a guard: no parked delivery of a correlation key is new to who planned. @param seen the ids that were read; NULL: any */
export function noNewEarlySql(source: string, correlationKey: string, seen: string): string {
  return `(${seen}::bigint[] IS NULL OR NOT EXISTS (
    SELECT FROM awa_edge.deliveries d
    WHERE d.source = ${source}::text AND d.correlation_key = ${correlationKey}::text AND d.state = 'parked'
      AND d.id <> ALL (${seen}::bigint[])))`;
}

/** What becomes of an early delivery that doesn't move the job. */
export interface SettledEarly {
  readonly id: string;
  readonly state: "ignored" | "late";
  readonly reason: string;
}

/**
 * Settles early deliveries beside the one that moved the job: those that a callback's rules don't care for, and those that came after it.
 * Guard: still parked, and the callback was registered by this transaction.
 */
export function settleEarly(callbackId: string, settled: readonly SettledEarly[]): Statement<void> {
  return {
    text: `
UPDATE awa_edge.deliveries d SET state = s.state, reason = s.reason, job_id = c.job_id, next_attempt_at = NULL
FROM jsonb_to_recordset($2::text::jsonb) AS s(id bigint, state text, reason text),
  (SELECT job_id FROM awa_edge.callbacks WHERE id = $1::uuid) c
WHERE d.id = s.id AND d.state = 'parked'`,
    values: [callbackId, JSON.stringify(settled)],
    decode: () => undefined,
  };
}
