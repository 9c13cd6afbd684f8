import type { JobId } from "../../ids.ts";
import type { JobRow } from "../../job.ts";
import { RESCUE_REASONS, type RescueReason } from "../../outcome.ts";
import type { JobInsert } from "../../registry/job-insert.ts";
import type { Statement } from "../port.ts";
import { decodeJob, jobColumns, jobId, number, oneOf, records, text } from "../rows.ts";
import {
  decodeInsertedJobs,
  type InsertedJob,
  insertedJobsSql,
  insertJobsSql,
  jobRecord,
  jobRecordsSql,
  wakeUpSql,
} from "./insert-jobs.ts";

/** Outbox rows that one statement reads at the most, */
export const DISPATCH_PAGE_ROWS = 2000;
/** and their bytes: an answer of Neon's is 10 MB at the most, and one row may be large. */
const DISPATCH_PAGE_BYTES = 4_000_000;
/** A row too large for any answer: it must not keep the others from theirs. It stays, and ages in the backlog. */
const MAX_DISPATCH_BYTES = 9_000_000;
/** A follow-up that can't be planned this often is abandoned. With the back-off below that takes about 26 hours. */
export const MAX_DISPATCH_ATTEMPTS = 12;
/** The pause after the n-th failure is 2^n minutes, six hours at the most. */
const MAX_DISPATCH_BACKOFF_MINUTES = 360;

/** An outbox row that is due: a rescue whose follow-ups aren't enqueued yet. */
export interface RescueFollowUp {
  /** Decimal digits. */
  readonly id: string;
  readonly reason: RescueReason;
  /** The job as it was right after its rescue. */
  readonly job: JobRow;
  /** Failed plans so far. */
  readonly attempts: number;
}

/** A page of due rows, and whether more of them are due. */
export interface DispatchPage {
  readonly rows: readonly RescueFollowUp[];
  readonly more: boolean;
}

/**
 * Reads the outbox rows that are due, oldest first, a page by rows and bytes. Rows of kinds without a `rescued` follow-up in this
 * build stay for a build that has it.
 */
export function readDueRescueFollowUps(kinds: readonly string[]): Statement<DispatchPage> {
  return {
    text: READ_SQL,
    values: [kinds, DISPATCH_PAGE_ROWS],
    decode: (rows) => ({
      rows: rows.map((row) => ({
        id: text(row, "outbox_id"),
        reason: oneOf(row, "outbox_reason", RESCUE_REASONS),
        attempts: number(row, "outbox_attempts"),
        job: decodeJob(row),
      })),
      more: rows[0]?.more === true,
    }),
  };
}

const READ_SQL = `
WITH due AS (
  SELECT id, reason, attempts, job, count(*) OVER () AS found, row_number() OVER w AS place,
    sum(octet_length(job::text)) OVER w AS bytes
  FROM (
    SELECT id, reason, attempts, job, next_attempt_at FROM awa_edge.rescue_followups
    WHERE abandoned_at IS NULL AND next_attempt_at <= now() AND kind = ANY ($1::text[])
      AND octet_length(job::text) <= ${MAX_DISPATCH_BYTES}
    ORDER BY next_attempt_at, id LIMIT $2::int
  ) oldest
  WINDOW w AS (ORDER BY next_attempt_at, id)
), page AS (
  SELECT *, found >= $2::int OR found > count(*) OVER () AS more FROM due
  WHERE place = 1 OR bytes <= ${DISPATCH_PAGE_BYTES}
)
SELECT p.id::text AS outbox_id, p.reason AS outbox_reason, p.attempts AS outbox_attempts, p.more, ${jobColumns("j")}
FROM page p CROSS JOIN LATERAL jsonb_populate_record(NULL::awa_edge.jobs, p.job) j
ORDER BY p.place`;

/** One outbox row with its planned follow-ups, or with why they couldn't be planned. */
export type Dispatch =
  | { readonly row: RescueFollowUp; readonly followUps: readonly JobInsert[]; readonly failure: null }
  | { readonly row: RescueFollowUp; readonly followUps: null; readonly failure: string };

/** What a dispatch did. A row in neither list was taken by another tick. */
export interface Dispatched {
  readonly dispatched: readonly { readonly jobId: JobId; readonly rescueId: string }[];
  readonly followUps: readonly InsertedJob[];
  readonly failed: readonly { readonly rescueId: string; readonly abandoned: boolean }[];
}

/**
 * Inserts the follow-ups of rescues and deletes their outbox rows in one statement, so each rescue's follow-ups are inserted
 * exactly once, by whichever tick deletes the row. Rows that couldn't be planned are put off, or abandoned.
 *
 * Guard: the outbox row is still there with the attempts that were read, held under FOR UPDATE SKIP LOCKED.
 */
export function dispatchIfDue(dispatches: readonly Dispatch[]): Statement<Dispatched> {
  const outbox = dispatches.map(({ row, failure }) => ({ id: row.id, attempts: row.attempts, failure }));
  const inserts = dispatches.flatMap(({ row, followUps }) =>
    (followUps ?? []).map((insert) => ({ insert, extra: { rescue_id: row.id } })),
  );
  return {
    text: DISPATCH_SQL,
    values: [
      JSON.stringify(outbox),
      JSON.stringify(inserts.map(({ insert, extra }, position) => jobRecord(insert, position, extra))),
    ],
    decode: ([row = {}]) => ({
      dispatched: records(row, "dispatched").map((done) => ({
        jobId: jobId(done, "job_id"),
        rescueId: text(done, "id"),
      })),
      followUps: decodeInsertedJobs(row, "follow_ups"),
      failed: records(row, "failed").map((failed) => ({
        rescueId: text(failed, "id"),
        abandoned: failed.abandoned === true,
      })),
    }),
  };
}

const DISPATCH_SQL = `
WITH planned AS (
  SELECT * FROM jsonb_to_recordset($1::text::jsonb) AS p(id bigint, attempts smallint, failure text)
), held AS MATERIALIZED (
  SELECT o.id, p.failure
  FROM awa_edge.rescue_followups o JOIN planned p ON p.id = o.id AND p.attempts = o.attempts
  WHERE o.abandoned_at IS NULL
  ORDER BY o.id
  FOR UPDATE OF o SKIP LOCKED
), dispatched AS (
  DELETE FROM awa_edge.rescue_followups o USING held
  WHERE o.id = held.id AND held.failure IS NULL
  RETURNING o.id, o.job_id, o.run_lease
), follow_up AS (
  ${insertJobsSql(`${jobRecordsSql("$2", ", rescue_id bigint")} JOIN dispatched d ON d.id = r.rescue_id`, {
    jobId: "d.job_id",
    outcome: "'rescued'",
    runLease: "d.run_lease",
  })}
), failed AS (
  UPDATE awa_edge.rescue_followups o SET
    attempts = o.attempts + 1,
    last_error = held.failure,
    next_attempt_at = now() + make_interval(mins => least(power(2, o.attempts + 1), ${MAX_DISPATCH_BACKOFF_MINUTES})::int),
    abandoned_at = CASE WHEN o.attempts + 1 >= ${MAX_DISPATCH_ATTEMPTS} THEN now() END
  FROM held
  WHERE o.id = held.id AND held.failure IS NOT NULL
  RETURNING o.id, o.abandoned_at IS NOT NULL AS abandoned
), wake_up AS (
  ${wakeUpSql("follow_up")}
)
SELECT (SELECT count(*) FROM wake_up) AS woken,
  coalesce((SELECT jsonb_agg(jsonb_build_object('id', d.id::text, 'job_id', d.job_id::text)) FROM dispatched d), '[]') AS dispatched,
  coalesce((SELECT jsonb_agg(jsonb_build_object('id', x.id::text, 'abandoned', x.abandoned)) FROM failed x), '[]') AS failed,
  ${insertedJobsSql("follow_up")} AS follow_ups`;
