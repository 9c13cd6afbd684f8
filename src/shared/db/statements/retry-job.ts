import type { JobId } from "../../ids.ts";
import { JOB_STATES, type JobState } from "../../job.ts";
import type { SqlValue, Statement } from "../port.ts";
import { oneOf } from "../rows.ts";
import { wakeUpSql } from "./insert-jobs.ts";

/** The states that a job can be retried from by hand. */
export const RETRIABLE_STATES = [
  "failed",
  "cancelled",
  "waiting_external",
] as const satisfies readonly JobState[];

/** Where and when a job starts afresh. What isn't named stays as it is; without `runAt` it is due at once. */
export interface RetryOptions {
  /** 1 to 200 characters. */
  readonly queue?: string;
  /** 1 (first) to 4. */
  readonly priority?: 1 | 2 | 3 | 4;
  readonly runAt?: Date;
}

/** The parameters of {@link startAfreshSql}. */
export function retryValues({ queue, priority, runAt }: RetryOptions): readonly SqlValue[] {
  return [queue ?? null, priority ?? null, runAt?.toISOString() ?? null];
}

/**
 * SQL of an UPDATE's SET that starts a job afresh: attempt 0, available or scheduled; errors, progress and lease are kept.
 *
 * @param first the number of the first of the three parameters of {@link retryValues}
 */
export function startAfreshSql(first: number): string {
  const [queue, priority, runAt] = [
    `$${first}::text`,
    `$${first + 1}::smallint`,
    `$${first + 2}::timestamptz`,
  ];
  return `
    state = CASE WHEN ${runAt} > now() THEN 'scheduled' ELSE 'available' END,
    attempt = 0,
    queue = coalesce(${queue}, j.queue),
    priority = coalesce(${priority}, j.priority),
    run_at = coalesce(${runAt}, now()),
    finalized_at = NULL,
    callback_id = NULL,
    dead_lettered_at = NULL,
    dead_letter_reason = NULL`;
}

/**
 * SQL of an UPDATE that ends the callbacks of the jobs `retried`: the pending one is cancelled, and a wait that timed out is
 * superseded, so that the job isn't told of it in its new life.
 */
export const END_CALLBACKS_SQL = `
  UPDATE awa_edge.callbacks c SET
    state = CASE WHEN c.state = 'pending' THEN 'cancelled' ELSE 'superseded' END,
    resolved_at = coalesce(c.resolved_at, now())
  WHERE c.job_id = ANY (ARRAY (SELECT id FROM retried))
    AND (c.state = 'pending' OR (c.state = 'expired' AND c.awaited_in_attempt IS NOT NULL))`;

/** `found`: the job's state before the statement, `null` where there is no such job. */
export interface Retried {
  readonly retried: boolean;
  readonly found: JobState | null;
}

/**
 * Starts a job afresh: available, or scheduled where `runAt` is ahead, attempt 0, errors and progress kept, its pending callback
 * cancelled. Emits no outcome: nothing ended.
 *
 * Guard: failed, cancelled or waiting_external, and unchanged since this statement's snapshot, in the WHERE of the UPDATE.
 * The second half is for a job that went through another claim while we waited for its row: its new callback isn't visible
 * to this statement, which would leave it pending for ever. `retried: false` with a state that can be retried means just
 * that; a new statement sees the job as it is.
 */
export function retryIfEndedOrWaiting(id: JobId, options: RetryOptions = {}): Statement<Retried> {
  return {
    text: SQL,
    values: [id, ...retryValues(options)],
    decode: ([row]) =>
      row === undefined
        ? { retried: false, found: null }
        : { retried: row.retried === true, found: oneOf(row, "found", JOB_STATES) },
  };
}

const SQL = `
WITH found AS MATERIALIZED (
  SELECT id, state, run_lease, callback_id FROM awa_edge.jobs WHERE id = $1::bigint
), retried AS (
  UPDATE awa_edge.jobs j SET ${startAfreshSql(2)}
  FROM found
  WHERE j.id = found.id
    AND j.state IN (${RETRIABLE_STATES.map((state) => `'${state}'`).join(", ")})
    AND j.state = found.state
    AND j.run_lease = found.run_lease
    AND j.callback_id IS NOT DISTINCT FROM found.callback_id
  RETURNING j.id, j.queue, j.state
), ended AS (${END_CALLBACKS_SQL}
), wake_up AS (
  ${wakeUpSql("retried")}
)
SELECT found.state AS found, retried.id IS NOT NULL AS retried, (SELECT count(*) FROM wake_up) AS woken
FROM found LEFT JOIN retried ON retried.id = found.id`;
