import type { JobId, RunLease } from "../../ids.ts";
import type { Json } from "../../json.ts";
import type { Statement } from "../port.ts";
import { jobId } from "../rows.ts";

/** A sign of life of one attempt. */
export interface Beat {
  readonly jobId: JobId;
  readonly runLease: RunLease;
  /** `undefined`: as it is. */
  readonly progress: Json | undefined;
}

/** Attempts that one statement beats for at the most. */
export const MAX_BEATS = 1000;

/**
 * Heartbeat of running attempts, with their progress where it is new.
 *
 * Guard: running under this lease. Whoever isn't in the result has been ended by somebody else.
 *
 * @returns the jobs that are still their attempts'
 */
export function beatIfRunning(beats: readonly Beat[]): Statement<ReadonlySet<JobId>> {
  const given = beats.map(({ jobId: id, runLease, progress }) => ({
    id,
    run_lease: runLease,
    progress,
    has_progress: progress !== undefined,
  }));
  return {
    text: SQL,
    values: [JSON.stringify(given), beats.map((beat) => beat.jobId)],
    decode: (rows) => new Set(rows.map((row) => jobId(row, "id"))),
  };
}

// By the ids as well: the planner can't tell how many beats there are, and would rather read all that is running.
const SQL = `
UPDATE awa_edge.jobs j SET
  heartbeat_at = now(),
  progress = CASE WHEN b.has_progress THEN nullif(b.progress, 'null') ELSE j.progress END
FROM jsonb_to_recordset($1::text::jsonb) AS b(id bigint, run_lease bigint, progress jsonb, has_progress boolean)
WHERE j.id = ANY ($2::bigint[]) AND j.id = b.id AND j.state = 'running' AND j.run_lease = b.run_lease
RETURNING j.id`;
