import { backoffSecondsSql } from "../../backoff.ts";
import type { CallbackId, JobId } from "../../ids.ts";
import { JOB_STATES, type JobRow, type JobState } from "../../job.ts";
import type { RescueReason } from "../../outcome.ts";
import type { Statement } from "../port.ts";
import { callbackId, decodeJob, jobColumns, jobId, nullable, number, oneOf, text } from "../rows.ts";
import { wakeUpSql } from "./insert-jobs.ts";

/** A worker is presumed dead when its heartbeat is this old, in seconds (the reference's). */
export const HEARTBEAT_STALE_SECONDS = 90;

/** Rows that one statement rescues at the most. */
export const RESCUE_PAGE_ROWS = 2000;

/** Rescued jobs that come back whole for their hooks, in bytes: an answer of Neon's is 10 MB at the most. */
const MAX_OBSERVED_BYTES = 4_000_000;

/** A sweep: which attempts are lost, and what is said of them. The same row feeds the statement, the logs and the docs. */
interface Sweep {
  /** Which of the jobs `j` (and pending callbacks `c`, where joined) are lost. */
  readonly lost: string;
  readonly order: string;
  readonly joinsCallback: boolean;
  readonly error: string;
  readonly duplicate: string;
  readonly callbackState: "expired" | "cancelled";
  readonly deadLetterReason: string;
}

const SWEEPS: Record<RescueReason, Sweep> = {
  stale_heartbeat: {
    lost: `j.state = 'running' AND j.heartbeat_at < now() - make_interval(secs => ${HEARTBEAT_STALE_SECONDS})`,
    order: "j.heartbeat_at",
    joinsCallback: false,
    error: "heartbeat stale: worker presumed dead",
    duplicate: "rescued as duplicate: heartbeat stale and unique claim held by a newer job",
    callbackState: "cancelled",
    deadLetterReason: "max_attempts_exhausted",
  },
  deadline_exceeded: {
    lost: "j.state = 'running' AND j.deadline_at < now()",
    order: "j.deadline_at",
    joinsCallback: false,
    error: "hard deadline exceeded",
    duplicate: "rescued as duplicate: deadline expired and unique claim held by a newer job",
    callbackState: "cancelled",
    deadLetterReason: "max_attempts_exhausted",
  },
  expired_callback: {
    lost: "j.state = 'waiting_external' AND c.state = 'pending' AND c.timeout_at < now()",
    order: "c.timeout_at",
    joinsCallback: true,
    error: "callback timed out",
    duplicate: "rescued as duplicate: callback timed out and unique claim held by a newer job",
    callbackState: "expired",
    deadLetterReason: "callback_timeout",
  },
};

/** A job that a sweep took from its lost attempt. */
export interface Rescued {
  readonly jobId: JobId;
  readonly kind: string;
  /**
   * `retryable`, or `failed` at the last attempt; `cancelled` where a newer job holds its unique key; `available` where the handler
   * is to be told that its wait is over, which is no rescue.
   */
  readonly state: JobState;
  readonly callbackId: CallbackId | null;
  /** The whole job, where its kind has hooks (and the answer has room). */
  readonly job: JobRow | null;
}

/** One page of a sweep. `picked` counts the locked rows too that couldn't be moved now; fewer than a page: the sweep is done. */
export interface RescuePage {
  readonly picked: number;
  readonly rescued: readonly Rescued[];
}

/**
 * Ends up to a page of lost attempts, oldest first: retryable with back-off, or failed where no attempt is left. Resolves
 * their callbacks and writes the outbox row from which the follow-ups are dispatched, all in the same statement.
 *
 * Guard: the sweep's condition, held under FOR UPDATE SKIP LOCKED. A job whose row another writer has is left to that writer; one
 * that changed before its lock was got is looked at again by Postgres, for the callback sweep together with its callback,
 * so that an extended time-out counts. Overlapping ticks share the rows between them.
 *
 * A job whose handler awaits the expired callback has lost nothing: it becomes available with its attempt given back, and the handler
 * hears of the time-out when it runs again. No outcome, no follow-up.
 *
 * A job that would take back a unique key that a newer job holds by now is cancelled and gives up its key.
 *
 * @param followUpKinds the kinds with a `rescued` follow-up in this build: only they get an outbox row
 * @param hookKinds the kinds whose jobs come back whole
 */
export function rescueIfLost(
  reason: RescueReason,
  followUpKinds: readonly string[],
  hookKinds: readonly string[],
  limit: number = RESCUE_PAGE_ROWS,
): Statement<RescuePage> {
  return {
    text: sqlOf(reason),
    values: [limit, followUpKinds, hookKinds],
    decode: (rows) => ({
      picked: rows[0] === undefined ? 0 : number(rows[0], "picked"),
      rescued: rows
        .filter((row) => row.rescued_id !== null)
        .map((row) => ({
          jobId: jobId(row, "rescued_id"),
          kind: text(row, "rescued_kind"),
          state: oneOf(row, "rescued_state", JOB_STATES),
          callbackId: nullable(row, "ended_callback_id", callbackId),
          job: row.is_observed === true ? decodeJob(row) : null,
        })),
    }),
  };
}

/**
 * `claims` says whether the move would take back a unique key that the job had let go of. Then, by `judged`, whoever holds the key keeps
 * it; of several in this page the first gets it.
 *
 * `rescued` leaves a job alone whose callback was registered after this statement's snapshot: it is invisible to it and would stay
 * pending. Next time, then. (A scalar subquery and not EXISTS: one look-up for each of the page's rows, never a pass over all that is
 * pending.)
 */
function sqlOf(reason: RescueReason): string {
  const sweep = SWEEPS[reason];
  // A callback that its handler awaits: the handler is told. Only the callback sweep can meet one.
  const isAwaited = sweep.joinsCallback ? "c.awaited_in_attempt IS NOT NULL" : "false";
  const isTold = "(judged.target = 'available' AND NOT judged.is_duplicate)";
  const becomesDeadLetter =
    "judged.target = 'failed' AND NOT judged.is_duplicate AND coalesce(q.keeps_dead_letters, true)";
  return `
WITH due AS MATERIALIZED (
  SELECT j.id, j.queue, j.state, j.callback_id, j.unique_key, j.unique_states,
    CASE WHEN ${isAwaited} THEN 'available' WHEN j.attempt < j.max_attempts THEN 'retryable' ELSE 'failed' END AS target
  FROM awa_edge.jobs j
  ${sweep.joinsCallback ? "JOIN awa_edge.callbacks c ON c.job_id = j.id AND c.id = j.callback_id" : ""}
  WHERE ${sweep.lost}
  ORDER BY ${sweep.order}
  LIMIT $1::int
  FOR UPDATE OF j${sweep.joinsCallback ? ", c" : ""} SKIP LOCKED
), claims AS (
  SELECT due.*, coalesce(target = ANY (unique_states) AND NOT state = ANY (unique_states), false) AS takes_key FROM due
), judged AS MATERIALIZED (
  SELECT claims.*, takes_key AND (
    row_number() OVER (PARTITION BY unique_key, takes_key ORDER BY id) > 1
    OR EXISTS (SELECT FROM awa_edge.jobs o
      WHERE o.unique_key = claims.unique_key AND o.state = ANY (o.unique_states) AND o.id <> claims.id)) AS is_duplicate
  FROM claims
), rescued AS (
  UPDATE awa_edge.jobs j SET
    state = CASE WHEN judged.is_duplicate THEN 'cancelled' ELSE judged.target END,
    attempt = CASE WHEN ${isTold} THEN greatest(j.attempt - 1, 0) ELSE j.attempt END,
    run_at = CASE
      WHEN ${isTold} THEN now()
      WHEN judged.target = 'retryable' AND NOT judged.is_duplicate
        THEN now() + make_interval(secs => ${backoffSecondsSql("j.attempt")})
      ELSE j.run_at END,
    finalized_at = CASE WHEN NOT ${isTold} THEN now() END,
    heartbeat_at = NULL,
    deadline_at = NULL,
    callback_id = NULL,
    errors = CASE WHEN ${isTold} THEN j.errors ELSE
      CASE WHEN jsonb_array_length(j.errors) >= 100 THEN j.errors - 0 ELSE j.errors END || jsonb_build_object(
      'error', CASE WHEN judged.is_duplicate THEN '${sweep.duplicate}' ELSE '${sweep.error}' END,
      'attempt', j.attempt,
      'at', to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')) END,
    unique_key = CASE WHEN NOT judged.is_duplicate THEN j.unique_key END,
    unique_states = CASE WHEN NOT judged.is_duplicate THEN j.unique_states END,
    dead_lettered_at = CASE WHEN ${becomesDeadLetter} THEN now() END,
    dead_letter_reason = CASE WHEN ${becomesDeadLetter} THEN '${sweep.deadLetterReason}' END
  FROM judged LEFT JOIN awa_edge.queues q ON q.queue = judged.queue
  WHERE j.id = judged.id
    AND (judged.callback_id IS NULL
      OR 'pending' = (SELECT c.state FROM awa_edge.callbacks c WHERE c.id = judged.callback_id))
  RETURNING j.*, judged.callback_id AS ended_callback_id
), resolved AS (
  UPDATE awa_edge.callbacks c SET state = '${sweep.callbackState}', resolved_at = now()
  WHERE c.id = ANY (ARRAY (SELECT ended_callback_id FROM rescued)) AND c.state = 'pending'
), outbox AS (
  INSERT INTO awa_edge.rescue_followups (job_id, run_lease, kind, reason, job)
  SELECT id, run_lease, kind, '${reason}', to_jsonb(rescued) - 'ended_callback_id'
  FROM rescued
  WHERE kind = ANY ($2::text[]) AND state IN ('retryable', 'failed')
), wake_up AS (
  ${wakeUpSql("rescued")}
), report AS (
  SELECT id AS rescued_id, kind AS rescued_kind, state AS rescued_state, ended_callback_id,
    kind = ANY ($3::text[]) AND state <> 'available' AND sum(CASE WHEN kind = ANY ($3::text[]) THEN octet_length(to_jsonb(rescued)::text) ELSE 0 END)
      OVER (ORDER BY id) <= ${MAX_OBSERVED_BYTES} AS is_observed
  FROM rescued
)
SELECT page.picked, (SELECT count(*) FROM wake_up) AS woken, report.*, ${jobColumns("observed")}
FROM (SELECT count(*) AS picked FROM due) page
LEFT JOIN report ON true
LEFT JOIN rescued observed ON observed.id = report.rescued_id AND report.is_observed
ORDER BY report.rescued_id`;
}
