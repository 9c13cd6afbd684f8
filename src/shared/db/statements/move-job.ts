import type { CallbackId, JobId, RunLease } from "../../ids.ts";
import type { JobState } from "../../job.ts";
import type { Json } from "../../json.ts";
import type { Outcome } from "../../outcome.ts";
import type { JobInsert } from "../../registry/job-insert.ts";
import type { Move } from "../../transitions.ts";
import type { Row, SqlValue, Statement } from "../port.ts";
import {
  decodeInsertedJobs,
  encodeJobInserts,
  type InsertedJob,
  insertedJobsSql,
  insertJobsSql,
  jobRecordsSql,
  wakeUpSql,
} from "./insert-jobs.ts";

/** What the move was planned for. Any difference, and the statement matches nothing. */
export interface MoveGuard {
  readonly jobId: JobId;
  readonly state: JobState;
  readonly runLease: RunLease;
  readonly callbackId: CallbackId | null;
}

/** What becomes of the pending callback. */
export interface CallbackResolution {
  readonly state: "completed" | "failed" | "retried" | "resumed" | "cancelled";
  readonly payload: Json | undefined;
  readonly error: string | null;
}

/** What a move is going to write, and the guard that it was planned for. */
export interface PlannedMove {
  readonly guard: MoveGuard;
  readonly move: Move;
  readonly resolution: CallbackResolution;
  readonly followUps: readonly JobInsert[];
  readonly now: Date;
}

/** `moved: false`: stale, nothing was changed and nothing enqueued. */
export type MoveResult =
  | { readonly moved: true; readonly followUps: readonly InsertedJob[] }
  | { readonly moved: false };

/** Who moves the job. A worker that runs an attempt is told where somebody else ends it. */
export type Mover = "its_attempt" | "somebody_else";

/** The channel that tells of ended attempts; the payload is "<job id> <run lease>". A hint only: heartbeats find out too. */
export const ENDED_CHANNEL = "awa_edge_ended";

/**
 * Moves a job, resolves its callback, inserts the follow-ups and wakes their queues, all in one statement: if any part
 * fails, Postgres undoes the whole of it.
 *
 * Guard: id, state, run lease and callback, in the WHERE of the UPDATE. A second writer on the same attempt waits for the
 * row, sees the guard no longer hold, and gets zero rows: no callback, no follow-up, no wake-up.
 *
 * The job's row is written before the callback's, as in every statement, so that no two of them can deadlock.
 *
 * @param resolution what becomes of the guard's callback; `null`: it stays pending, and the job's
 */
export function moveIfUnchanged(
  guard: MoveGuard,
  move: Move,
  resolution: CallbackResolution | null,
  followUps: readonly JobInsert[],
  now: Date,
  mover: Mover = "somebody_else",
): Statement<MoveResult> {
  return {
    text: `${MOVE_SQL}\nSELECT ${MOVE_REPORT}\nFROM moved`,
    values: moveValues(guard, move, resolution, followUps, now, mover),
    decode: decodeMove,
  };
}

/** Reads the one row of a move, or none. */
export function decodeMove([row]: readonly Row[]): MoveResult {
  return row === undefined
    ? { moved: false }
    : { moved: true, followUps: decodeInsertedJobs(row, "follow_ups") };
}

/**
 * The same for a transaction of the handler's own: where nothing is moved it raises, which aborts the whole transaction.
 */
export function moveOrRaise(
  guard: MoveGuard,
  move: Move,
  resolution: CallbackResolution,
  followUps: readonly JobInsert[],
  now: Date,
): Statement<void> {
  return {
    text: `${MOVE_SQL}\nSELECT ${MOVE_REPORT}, CASE WHEN NOT EXISTS (SELECT FROM moved)
  THEN awa_edge.raise_stale_attempt($1::bigint, $3::bigint) END AS stale`,
    values: moveValues(guard, move, resolution, followUps, now, "its_attempt"),
    decode: () => undefined,
  };
}

/** The parameters of {@link MOVE_SQL}. */
export function moveValues(
  guard: MoveGuard,
  { job, ended, error }: Move,
  resolution: CallbackResolution | null,
  followUps: readonly JobInsert[],
  now: Date,
  mover: Mover,
): readonly SqlValue[] {
  const fromOutside = resolution !== null && resolution.state !== "cancelled";
  const outcome: Outcome | null = ended?.outcome ?? null;
  return [
    guard.jobId,
    guard.state,
    guard.runLease,
    guard.callbackId,
    job.state,
    job.attempt,
    job.runAt.toISOString(),
    job.finalizedAt?.toISOString() ?? null,
    error === null ? null : JSON.stringify(error),
    job.state === "completed" ? JSON.stringify(job.result) : null,
    job.deadLetter?.at.toISOString() ?? null,
    job.deadLetter?.reason ?? null,
    resolution?.state ?? null,
    now.toISOString(),
    fromOutside ? job.state : null,
    resolution?.payload === undefined ? null : JSON.stringify(resolution.payload),
    resolution?.error ?? null,
    encodeJobInserts(followUps),
    outcome,
    // Only the attempt itself knows its progress; from anybody else it would be what they once read.
    mover === "its_attempt" ? JSON.stringify(job.progress) : null,
    mover === "its_attempt",
  ];
}

/** The parameters that {@link MOVE_SQL} takes: what a statement adds to it counts on from here. */
export const MOVE_PARAMETERS = 21;

/** The parts of {@link moveIfUnchanged}, for a statement that does more; `moved` has the job, or nothing. */
export const MOVE_SQL = `
WITH moved AS (
  UPDATE awa_edge.jobs SET
    state = $5::text,
    attempt = $6::smallint,
    run_at = $7::timestamptz,
    finalized_at = $8::timestamptz,
    heartbeat_at = CASE WHEN $5::text = 'running' THEN heartbeat_at END,
    deadline_at = CASE WHEN $5::text = 'running' THEN deadline_at END,
    callback_id = CASE WHEN $13::text IS NULL THEN callback_id END,
    errors = CASE
      WHEN $9::text IS NULL THEN errors
      WHEN jsonb_array_length(errors) >= 100 THEN (errors - 0) || $9::text::jsonb
      ELSE errors || $9::text::jsonb END,
    progress = CASE
      WHEN $5::text = 'completed' THEN NULL
      WHEN $20::text IS NULL THEN progress
      ELSE nullif($20::text::jsonb, 'null') END,
    result = CASE WHEN $5::text = 'completed' THEN $10::text::jsonb ELSE result END,
    dead_lettered_at = $11::timestamptz,
    dead_letter_reason = $12::text
  WHERE id = $1::bigint
    AND state = $2::text
    AND run_lease = $3::bigint
    AND callback_id IS NOT DISTINCT FROM $4::uuid
  RETURNING id, queue, state, run_lease
), resolved AS (
  UPDATE awa_edge.callbacks c SET
    state = $13::text,
    resolved_at = $14::timestamptz,
    resolved_to = $15::text,
    payload = $16::text::jsonb,
    error = $17::text
  FROM moved
  WHERE c.id = $4::uuid AND c.job_id = moved.id AND c.state = 'pending' AND $13::text IS NOT NULL
), follow_up AS (
  ${insertJobsSql(`moved, ${jobRecordsSql("$18")}`, {
    jobId: "moved.id",
    outcome: "$19::text",
    runLease: "moved.run_lease",
  })}
), wake_up AS (
  ${wakeUpSql("(SELECT queue, state FROM follow_up UNION ALL SELECT queue, state FROM moved) ready")}
), told AS (
  SELECT pg_notify('${ENDED_CHANNEL}', moved.id || ' ' || moved.run_lease) AS told
  FROM moved WHERE $2::text = 'running' AND moved.state <> 'running' AND NOT $21::boolean
)`;

/** What a move reports, one row for each of `moved`: {@link decodeMove}. */
export const MOVE_REPORT = `${insertedJobsSql("follow_up")} AS follow_ups, (SELECT count(*) FROM wake_up) AS woken,
  (SELECT count(*) FROM told) AS told`;
