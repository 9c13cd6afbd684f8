import { CALLBACK_STATES, type CallbackState } from "../../callback.ts";
import type { CallbackId, JobId } from "../../ids.ts";
import { JOB_STATES, type JobState } from "../../job.ts";
import type { Statement } from "../port.ts";
import { jobId, nullable, oneOf } from "../rows.ts";

/** `extendedIn`: the state of the job whose callback was extended; `null` where the guard held it back. */
export interface Extension {
  readonly jobId: JobId;
  readonly extendedIn: JobState | null;
  /** The callback's state before the statement. */
  readonly found: CallbackState;
}

/**
 * Heartbeat of a callback: it now times out `timeoutSeconds` from the database's clock. `null` where there is no such
 * callback.
 *
 * Guard: the callback is pending. Only the callback's row is written and locked; the expiry sweep locks that row as well and
 * looks at its time-out again after it got the lock, so that an extension which committed first always counts.
 */
export function extendIfPending(id: CallbackId, timeoutSeconds: number): Statement<Extension | null> {
  return {
    text: SQL,
    values: [id, timeoutSeconds],
    decode: ([row]) =>
      row === undefined
        ? null
        : {
            jobId: jobId(row, "job_id"),
            extendedIn: nullable(row, "extended_in", (r, column) => oneOf(r, column, JOB_STATES)),
            found: oneOf(row, "found", CALLBACK_STATES),
          },
  };
}

const SQL = `
WITH extended AS (
  UPDATE awa_edge.callbacks
  SET timeout_at = now() + make_interval(secs => $2::double precision)
  WHERE id = $1::uuid AND state = 'pending'
  RETURNING id
)
SELECT c.job_id, c.state AS found, CASE WHEN e.id IS NOT NULL THEN j.state END AS extended_in
FROM awa_edge.callbacks c
JOIN awa_edge.jobs j ON j.id = c.job_id
LEFT JOIN extended e ON e.id = c.id
WHERE c.id = $1::uuid`;
