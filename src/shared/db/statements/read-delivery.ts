import { columnsOf, DELIVERY_STATES, type Target } from "../../delivery.ts";
import type { Row, Statement } from "../port.ts";
import { date, decodeJob, jobColumns, number, oneOf, text } from "../rows.ts";
import { type CallbackReading, callbackColumns, decodeCallback } from "./read-callback.ts";
import type { RecordedDelivery } from "./record-delivery.ts";

/** Everything that a delivery is planned from. */
export interface DeliveryReading {
  /** The same delivery, where it was recorded before. */
  readonly recorded: RecordedDelivery | null;
  /** The callback that it is for with its job: the pending one, else the newest. */
  readonly callback: CallbackReading | null;
}

/**
 * Reads what is known of a delivery, and the callback that it is for, if it is for any. A callback that was registered for another source isn't found. A
 * snapshot: what is planned from it is guarded when it is written.
 */
export function readDelivery(
  source: string,
  deliveryId: string,
  target: Target | null,
): Statement<DeliveryReading> {
  const { callbackId, correlationKey } = columnsOf(target);
  return {
    text: correlationKey === null ? BY_ID_SQL : BY_KEY_SQL,
    values: [source, deliveryId, callbackId ?? correlationKey],
    decode: ([row = {}]) => ({
      recorded: row.delivery__id === null ? null : decodeRecordedDelivery(row),
      callback:
        row.callback__id === null
          ? null
          : {
              callback: decodeCallback(row),
              job: decodeJob(row),
              now: date(row, "now"),
              keepsDeadLetters: row.keeps_dead_letters === true,
            },
    }),
  };
}

/** Reads a recorded delivery from the columns delivery__id, delivery__state and delivery__attempts. @throws Error where they don't fit */
export function decodeRecordedDelivery(row: Row): RecordedDelivery {
  return {
    id: text(row, "delivery__id"),
    state: oneOf(row, "delivery__state", DELIVERY_STATES),
    attempts: number(row, "delivery__attempts"),
  };
}

const sql = (callback: string) => `
SELECT d.id::text AS delivery__id, d.state AS delivery__state, d.attempts AS delivery__attempts,
  ${callbackColumns("c")}, ${jobColumns("j")}, coalesce(q.keeps_dead_letters, true) AS keeps_dead_letters,
  date_trunc('milliseconds', now()) AS now
FROM (SELECT) one
LEFT JOIN awa_edge.deliveries d ON d.source = $1::text AND d.delivery_id = $2::text
LEFT JOIN LATERAL (${callback}) c ON true
LEFT JOIN awa_edge.jobs j ON j.id = c.job_id
LEFT JOIN awa_edge.queues q ON q.queue = j.queue`;

const BY_ID_SQL = sql(`
  SELECT * FROM awa_edge.callbacks WHERE id = $3::uuid AND (source IS NULL OR source = $1::text)`);
// The pending one has an index of its own, and there is one at the most.
const BY_KEY_SQL = sql(`
  SELECT * FROM (
    (SELECT * FROM awa_edge.callbacks WHERE source = $1::text AND correlation_key = $3::text AND state = 'pending')
    UNION ALL
    (SELECT * FROM awa_edge.callbacks WHERE source = $1::text AND correlation_key = $3::text
      ORDER BY created_at DESC LIMIT 1)
  ) found ORDER BY state = 'pending' DESC LIMIT 1`);
