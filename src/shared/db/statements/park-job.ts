import type { CallbackId, JobId } from "../../ids.ts";
import type { JobInsert } from "../../registry/job-insert.ts";
import type { Statement } from "../port.ts";
import { callbackId, date, jobId, nullable } from "../rows.ts";
import { callbackValues, type NewCallback } from "./attempt-callbacks.ts";
import { type EarlyLook, lookValues, noNewEarlySql } from "./early-deliveries.ts";
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
  /** Whether the job's queue marks failed jobs as dead letters. */
  readonly keepsDeadLetters: boolean;
}

/** Takes the next job id, so that follow-ups can be planned from a job that isn't inserted yet. */
export function reserveJobId(queue: string): Statement<Reservation> {
  return {
    text: `SELECT nextval(pg_get_serial_sequence('awa_edge.jobs', 'id')) AS id, date_trunc('milliseconds', now()) AS now,
  coalesce((SELECT keeps_dead_letters FROM awa_edge.queues WHERE queue = $1::text), true) AS keeps_dead_letters`,
    values: [queue],
    decode: ([row = {}]) => ({
      jobId: jobId(row, "id"),
      now: date(row, "now"),
      keepsDeadLetters: row.keeps_dead_letters === true,
    }),
  };
}

/**
 * Inserts a job that is already parked, as its first attempt, with its callback and its follow-ups, in one statement. Guard:
 * the unique key's index. `null` as in `insertUnlessDuplicate`, and where a delivery is there that the caller hasn't seen.
 *
 * @param reservation the id and time that the follow-ups were planned from; `null` where there are none
 */
export function parkUnlessDuplicate(
  insert: JobInsert,
  callback: Omit<NewCallback, "awaitedInAttempt">,
  followUps: readonly JobInsert[],
  reservation: Reservation | null,
  look: EarlyLook,
): Statement<ParkedRow | null> {
  return {
    text: SQL,
    values: [
      encodeJobInserts([insert]),
      reservation?.jobId ?? null,
      reservation?.now.toISOString() ?? null,
      ...callbackValues(callback),
      encodeJobInserts(followUps),
      ...lookValues(look),
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
  WHERE ${noNewEarlySql("$7", "$8", "$11")}
  ON CONFLICT (unique_key) WHERE unique_key IS NOT NULL AND state = ANY (unique_states) DO NOTHING
  RETURNING id, queue, run_lease, callback_id
), registered AS (
  INSERT INTO awa_edge.callbacks (id, job_id, run_lease, name, timeout_at, source, correlation_key, rules)
  SELECT callback_id, id, run_lease, $5::text, now() + make_interval(secs => $6::double precision),
    $7::text, $8::text, $9::text::jsonb
  FROM parked
), follow_up AS (
  ${insertJobsSql(`parked, ${jobRecordsSql("$10")}`, {
    jobId: "parked.id",
    outcome: "'waiting_for_callback'",
    runLease: "parked.run_lease",
  })}
), wake_up AS (
  ${wakeUpSql("follow_up")}
), made_due AS (
  SELECT awa_edge.make_early_due($7::text, $8::text, $4::uuid) FROM parked WHERE $12::boolean
)
SELECT id, callback_id, false AS deduplicated, ${insertedJobsSql("follow_up")} AS follow_ups,
  (SELECT count(*) FROM wake_up) AS woken, (SELECT count(*) FROM made_due) AS made_due
FROM parked
UNION ALL
SELECT j.id, CASE WHEN j.state = 'waiting_external' THEN j.callback_id END, true, '[]', 0, 0
FROM ${jobRecordsSql("$1")}
JOIN awa_edge.jobs j ON j.unique_key = decode(r.unique_key, 'hex') AND j.state = ANY (j.unique_states)
WHERE NOT EXISTS (SELECT FROM parked)`;
