import type { Statement } from "../port.ts";
import { nullable, number } from "../rows.ts";
import { PLACE } from "./claim-jobs.ts";
import { dueSql } from "./manage-deliveries.ts";
import { HEARTBEAT_STALE_SECONDS } from "./rescue-jobs.ts";

/** What should be zero or `null`, or soon be so again; early deliveries may wait for longer. Ages in seconds; `null`: there is none. */
export interface Backlog {
  readonly oldestStaleHeartbeatSeconds: number | null;
  readonly oldestOverrunDeadlineSeconds: number | null;
  readonly oldestExpiredCallbackSeconds: number | null;
  readonly oldestDueRescueFollowUpSeconds: number | null;
  /** The job that has been due for longest in a queue that this build runs and that isn't paused. */
  readonly oldestDueJobSeconds: number | null;
  /** Rescue follow-ups of kinds that have none in this build: they wait for a build that has. */
  readonly unknownRescueFollowUps: number;
  /** Rescue follow-ups that failed too often and now need a person. */
  readonly abandonedRescueFollowUps: number;
  /** Deliveries that the tick is about to try again. */
  readonly dueDeliveries: number;
  /** Failed deliveries of sources that this build doesn't have: they wait for a build that does. */
  readonly unknownDeliveries: number;
  /** Deliveries that failed too often and now need a person. */
  readonly abandonedDeliveries: number;
  /** The early delivery that has been waiting for its callback for longest. */
  readonly oldestParkedDeliverySeconds: number | null;
}

/**
 * Measures what the tick left behind, through an index each.
 *
 * @param followUpKinds the kinds with a `rescued` follow-up in this build
 * @param queues the queues that this build runs
 * @param sources the sources of webhooks that this build has
 */
export function measureBacklog(
  followUpKinds: readonly string[],
  queues: readonly string[],
  sources: readonly string[],
): Statement<Backlog> {
  return {
    text: SQL,
    values: [followUpKinds, queues, sources],
    decode: ([row = {}]) => ({
      oldestStaleHeartbeatSeconds: nullable(row, "heartbeat", number),
      oldestOverrunDeadlineSeconds: nullable(row, "deadline", number),
      oldestExpiredCallbackSeconds: nullable(row, "callback", number),
      oldestDueRescueFollowUpSeconds: nullable(row, "follow_up", number),
      oldestDueJobSeconds: nullable(row, "due_job", number),
      unknownRescueFollowUps: number(row, "unknown"),
      abandonedRescueFollowUps: number(row, "abandoned"),
      dueDeliveries: number(row, "due_deliveries"),
      unknownDeliveries: number(row, "unknown_deliveries"),
      abandonedDeliveries: number(row, "abandoned_deliveries"),
      oldestParkedDeliverySeconds: nullable(row, "parked_delivery", number),
    }),
  };
}

const seconds = (since: string) => `round(extract(epoch FROM now() - ${since}))::float8`;

const SQL = `
SELECT
  (SELECT ${seconds("min(heartbeat_at)")}
    FROM awa_edge.jobs WHERE state = 'running' AND heartbeat_at < now() - make_interval(secs => ${HEARTBEAT_STALE_SECONDS})) AS heartbeat,
  (SELECT ${seconds("min(deadline_at)")} FROM awa_edge.jobs WHERE state = 'running' AND deadline_at < now()) AS deadline,
  (SELECT ${seconds("min(timeout_at)")} FROM awa_edge.callbacks WHERE state = 'pending' AND timeout_at < now()) AS callback,
  (SELECT ${seconds("min(next_attempt_at)")} FROM awa_edge.rescue_followups
    WHERE abandoned_at IS NULL AND next_attempt_at < now() AND kind = ANY ($1::text[])) AS follow_up,
  (SELECT ${seconds("min(oldest.run_at)")}
    FROM unnest($2::text[]) AS run(queue) LEFT JOIN awa_edge.queues q ON q.queue = run.queue
    CROSS JOIN LATERAL (
      SELECT j.run_at FROM awa_edge.jobs j
      WHERE j.queue = run.queue AND j.state IN ('scheduled', 'available', 'retryable')
        AND ${PLACE} <= (now() AT TIME ZONE 'UTC') AND j.run_at <= now()
      ORDER BY ${PLACE}, j.id LIMIT 1) oldest
    WHERE q.paused_at IS NULL) AS due_job,
  (SELECT count(*) FROM awa_edge.rescue_followups
    WHERE abandoned_at IS NULL AND kind <> ALL ($1::text[])) AS unknown,
  (SELECT count(*) FROM awa_edge.rescue_followups WHERE abandoned_at IS NOT NULL) AS abandoned,
  (SELECT count(*) FROM awa_edge.deliveries d WHERE ${dueSql("$3")}) AS due_deliveries,
  (SELECT count(*) FROM awa_edge.deliveries
    WHERE next_attempt_at IS NOT NULL AND state = 'failed' AND source <> ALL ($3::text[])) AS unknown_deliveries,
  (SELECT count(*) FROM awa_edge.deliveries WHERE state = 'failed' AND next_attempt_at IS NULL) AS abandoned_deliveries,
  (SELECT ${seconds("min(received_at)")} FROM awa_edge.deliveries WHERE state = 'parked') AS parked_delivery`;
