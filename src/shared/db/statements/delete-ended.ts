import type { Statement } from "../port.ts";
import { number } from "../rows.ts";

/** How long ended jobs are kept, in seconds, on queues that don't say otherwise. */
export interface Retention {
  readonly completedSeconds: number;
  /** Failed jobs that are no dead letters, and cancelled ones. */
  readonly failedSeconds: number;
  /** Dead letters, abandoned rescue follow-ups, and deliveries that were late or failed. */
  readonly deadLetterSeconds: number;
  /** Deliveries that were resolved or ignored. Longer than any provider goes on retrying: a redelivery is known by them. */
  readonly deliverySeconds: number;
  /** Deliveries that came before their callback, which may still come. One that the tick is about to try stays until it was tried. */
  readonly parkedDeliverySeconds: number;
}

/** The reference's: a day, three days, thirty days. And a week for deliveries: providers retry for three days, some for a week. */
export const DEFAULT_RETENTION: Retention = {
  completedSeconds: 24 * 3600,
  failedSeconds: 72 * 3600,
  deadLetterSeconds: 30 * 24 * 3600,
  deliverySeconds: 7 * 24 * 3600,
  parkedDeliverySeconds: 7 * 24 * 3600,
};

/** Rows of each sort that one statement deletes at the most. */
export const RETENTION_PAGE_ROWS = 1000;

export interface Deleted {
  readonly completed: number;
  readonly failedOrCancelled: number;
  readonly deadLetters: number;
  readonly abandonedFollowUps: number;
  readonly doneDeliveries: number;
  readonly parkedDeliveries: number;
  readonly lateOrFailedDeliveries: number;
}

/**
 * Deletes up to a page of each sort of what has been kept long enough, the oldest first, with the callbacks of the jobs.
 *
 * Guard: state and age, looked at again under FOR UPDATE SKIP LOCKED: a job that is being retried by hand stays.
 */
export function deleteIfKeptLongEnough(retention: Retention): Statement<Deleted> {
  return {
    text: SQL,
    values: [
      retention.completedSeconds,
      retention.failedSeconds,
      retention.deadLetterSeconds,
      RETENTION_PAGE_ROWS,
      retention.deliverySeconds,
      retention.parkedDeliverySeconds,
    ],
    decode: ([row = {}]) => ({
      completed: number(row, "completed"),
      failedOrCancelled: number(row, "failed_or_cancelled"),
      deadLetters: number(row, "dead_letters"),
      abandonedFollowUps: number(row, "abandoned_follow_ups"),
      doneDeliveries: number(row, "done_deliveries"),
      parkedDeliveries: number(row, "parked_deliveries"),
      lateOrFailedDeliveries: number(row, "late_or_failed_deliveries"),
    }),
  };
}

/**
 * One sort of job. The index finds what is older than the shortest period of any queue; each row is then held against the
 * period of its own.
 */
function deleteSql(ended: string, since: string, column: string, parameter: string): string {
  const period = `coalesce(q.${column}, ${parameter}::double precision)`;
  // ANY (ARRAY (…)) and not IN: the ids are looked up in the primary key, whatever the planner thinks of the table's size.
  return `
  DELETE FROM awa_edge.jobs WHERE id = ANY (ARRAY (
    SELECT j.id FROM awa_edge.jobs j LEFT JOIN awa_edge.queues q ON q.queue = j.queue
    WHERE ${ended}
      AND j.${since} < now() - make_interval(secs => least(${parameter}::double precision,
        (SELECT min(shortest.${column}) FROM awa_edge.queues shortest)))
      AND j.${since} < now() - make_interval(secs => ${period})
    ORDER BY j.${since}
    LIMIT $4::int
    FOR UPDATE OF j SKIP LOCKED))
  RETURNING id`;
}

function deleteDeliveriesSql(states: string, parameter: string): string {
  return `
  DELETE FROM awa_edge.deliveries WHERE id = ANY (ARRAY (
    SELECT d.id FROM awa_edge.deliveries d
    WHERE d.${states} AND d.received_at < now() - make_interval(secs => ${parameter}::double precision)
    ORDER BY d.received_at
    LIMIT $4::int
    FOR UPDATE SKIP LOCKED))
  RETURNING id`;
}

const SQL = `
WITH completed AS (${deleteSql("j.state = 'completed'", "finalized_at", "completed_retention_seconds", "$1")}
), failed_or_cancelled AS (${deleteSql("j.state IN ('failed', 'cancelled') AND j.dead_lettered_at IS NULL", "finalized_at", "failed_retention_seconds", "$2")}
), dead_letters AS (${deleteSql("j.dead_lettered_at IS NOT NULL", "dead_lettered_at", "dead_letter_retention_seconds", "$3")}
), abandoned AS (
  DELETE FROM awa_edge.rescue_followups WHERE id = ANY (ARRAY (
    SELECT o.id FROM awa_edge.rescue_followups o
    WHERE o.abandoned_at < now() - make_interval(secs => $3::double precision)
    ORDER BY o.abandoned_at
    LIMIT $4::int
    FOR UPDATE SKIP LOCKED))
  RETURNING id
), done_deliveries AS (${deleteDeliveriesSql("state IN ('resolved', 'ignored')", "$5")}
), parked_deliveries AS (${deleteDeliveriesSql("state = 'parked' AND d.next_attempt_at IS NULL", "$6")}
), late_or_failed_deliveries AS (${deleteDeliveriesSql("state IN ('late', 'failed')", "$3")}
)
SELECT (SELECT count(*) FROM completed) AS completed,
  (SELECT count(*) FROM failed_or_cancelled) AS failed_or_cancelled,
  (SELECT count(*) FROM dead_letters) AS dead_letters,
  (SELECT count(*) FROM abandoned) AS abandoned_follow_ups,
  (SELECT count(*) FROM done_deliveries) AS done_deliveries,
  (SELECT count(*) FROM parked_deliveries) AS parked_deliveries,
  (SELECT count(*) FROM late_or_failed_deliveries) AS late_or_failed_deliveries`;
