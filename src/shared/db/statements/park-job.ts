import type { CallbackId, JobId } from "../../ids.ts";
import type { JobInsert } from "../../registry/job-insert.ts";
import type { Statement } from "../port.ts";
import { callbackId, date, jobId, nullable } from "../rows.ts";
import {
  decodeInsertedJobs,
  encodeJobInserts,
  type InsertedJob,
  insertedJobsSql,
  insertJobsSql,
  jobRecordsSql,
  wakeUpSql,
} from "./insert-jobs.ts";

/** A job that waits: the one just parked, or the live one that holds its unique key. */
export interface ParkedRow {
  readonly jobId: JobId;
  /** The pending callback; `null` where the holder of the unique key waits for none. */
  readonly callbackId: CallbackId | null;
  readonly deduplicated: boolean;
  readonly followUps: readonly InsertedJob[];
}

/** What the closures of `waiting_for_callback` are planned from: the id that the job will have, and the time. */
export interface Reservation {
  readonly jobId: JobId;
  readonly now: Date;
}

/** Takes the next job id, so that follow-ups can be planned from a job that isn't inserted yet. */
export function reserveJobId(): Statement<Reservation> {
  return {
    text: `SELECT nextval(pg_get_serial_sequence('awa_edge.jobs', 'id')) AS id, date_trunc('milliseconds', now()) AS now`,
    values: [],
    decode: ([row = {}]) => ({ jobId: jobId(row, "id"), now: date(row, "now") }),
  };
}

/**
 * Inserts a job that is already parked, as its first attempt, with its callback and its follow-ups, in one statement. Guard:
 * the unique key's index. `null` as in `insertUnlessDuplicate`.
 *
 * @param reservation the id and time that the follow-ups were planned from; `null` where there are none
 */
export function parkUnlessDuplicate(
  insert: JobInsert,
  callback: { readonly id: CallbackId; readonly name: string; readonly timeoutSeconds: number },
  followUps: readonly JobInsert[],
  reservation: Reservation | null,
): Statement<ParkedRow | null> {
  return {
    text: SQL,
    values: [
      encodeJobInserts([insert]),
      reservation?.jobId ?? null,
      reservation?.now.toISOString() ?? null,
      callback.id,
      callback.name,
      callback.timeoutSeconds,
      encodeJobInserts(followUps),
    ],
    decode: ([row]) =>
      row === undefined
        ? null
        : {
            jobId: jobId(row, "id"),
            callbackId: nullable(row, "callback_id", callbackId),
            deduplicated: row.deduplicated === true,
            followUps: decodeInsertedJobs(row, "follow_ups"),
          },
  };
}

const SQL = `
WITH parked AS (
  INSERT INTO awa_edge.jobs (id, kind, queue, args, state, priority, attempt, max_attempts, run_at, run_lease, attempted_at,
    created_at, metadata, tags, unique_key, unique_states, deadline_seconds, ordering_key, callback_id)
  OVERRIDING SYSTEM VALUE
  SELECT coalesce($2::bigint, nextval(pg_get_serial_sequence('awa_edge.jobs', 'id'))), r.kind, r.queue, r.args,
    'waiting_external', r.priority, 1, r.max_attempts, t.now, 1, t.now, t.now, r.metadata, r.tags,
    decode(r.unique_key, 'hex'), r.unique_states, r.deadline_seconds, r.ordering_key, $4::uuid
  FROM ${jobRecordsSql("$1")}, (SELECT coalesce($3::timestamptz, now()) AS now) t
  ON CONFLICT (unique_key) WHERE unique_key IS NOT NULL AND state = ANY (unique_states) DO NOTHING
  RETURNING id, queue, run_lease, callback_id
), registered AS (
  INSERT INTO awa_edge.callbacks (id, job_id, run_lease, name, timeout_at)
  SELECT callback_id, id, run_lease, $5::text, now() + make_interval(secs => $6::double precision) FROM parked
), follow_up AS (
  ${insertJobsSql(`parked, ${jobRecordsSql("$7")}`, {
    jobId: "parked.id",
    outcome: "'waiting_for_callback'",
    runLease: "parked.run_lease",
  })}
), wake_up AS (
  ${wakeUpSql("follow_up")}
)
SELECT id, callback_id, false AS deduplicated, ${insertedJobsSql("follow_up")} AS follow_ups,
  (SELECT count(*) FROM wake_up) AS woken
FROM parked
UNION ALL
SELECT j.id, CASE WHEN j.state = 'waiting_external' THEN j.callback_id END, true, '[]', 0
FROM ${jobRecordsSql("$1")}
JOIN awa_edge.jobs j ON j.unique_key = decode(r.unique_key, 'hex') AND j.state = ANY (j.unique_states)
WHERE NOT EXISTS (SELECT FROM parked)`;
