import type { JobId } from "../../ids.ts";
import { JOB_STATES, type JobState } from "../../job.ts";
import type { Statement } from "../port.ts";
import { oneOf } from "../rows.ts";
import { wakeUpSql } from "./insert-jobs.ts";

/** The states that a job can be retried from by hand. */
export const RETRIABLE_STATES = [
  "failed",
  "cancelled",
  "waiting_external",
] as const satisfies readonly JobState[];

/** `found`: the job's state before the statement, `null` where there is no such job. */
export interface Retried {
  readonly retried: boolean;
  readonly found: JobState | null;
}

/**
 * Starts a job afresh: available now, attempt 0, errors and progress kept, its pending callback cancelled. Emits no
 * outcome: nothing ended.
 *
 * Guard: failed, cancelled or waiting_external, and unchanged since this statement's snapshot, in the WHERE of the UPDATE.
 * The second half is for a job that went through another claim while we waited for its row: its new callback isn't visible
 * to this statement, which would leave it pending for ever. `retried: false` with a state that can be retried means just
 * that; a new statement sees the job as it is.
 */
export function retryIfEndedOrWaiting(id: JobId): Statement<Retried> {
  return {
    text: SQL,
    values: [id],
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
  UPDATE awa_edge.jobs j SET
    state = 'available',
    attempt = 0,
    run_at = now(),
    finalized_at = NULL,
    callback_id = NULL,
    dead_lettered_at = NULL,
    dead_letter_reason = NULL
  FROM found
  WHERE j.id = found.id
    AND j.state IN (${RETRIABLE_STATES.map((state) => `'${state}'`).join(", ")})
    AND j.state = found.state
    AND j.run_lease = found.run_lease
    AND j.callback_id IS NOT DISTINCT FROM found.callback_id
  RETURNING j.id, j.queue, j.state
), cancelled AS (
  UPDATE awa_edge.callbacks c SET state = 'cancelled', resolved_at = now()
  FROM retried
  WHERE c.job_id = retried.id AND c.state = 'pending'
), wake_up AS (
  ${wakeUpSql("retried")}
)
SELECT found.state AS found, retried.id IS NOT NULL AS retried, (SELECT count(*) FROM wake_up) AS woken
FROM found LEFT JOIN retried ON retried.id = found.id`;
