import type { CallbackRow } from "../../callback.ts";
import type { JobId } from "../../ids.ts";
import type { JobRow } from "../../job.ts";
import type { Statement } from "../port.ts";
import { date, decodeJob, jobColumns } from "../rows.ts";
import { callbackColumns, decodeCallback } from "./read-callback.ts";

/** A job and the database's clock, in whole milliseconds. */
export interface JobReading {
  readonly job: JobRow;
  readonly now: Date;
}

/** Reads a job; `null` where there is none. */
export function readJob(id: JobId): Statement<JobReading | null> {
  return {
    text: `SELECT ${jobColumns("j")}, date_trunc('milliseconds', now()) AS now FROM awa_edge.jobs j WHERE j.id = $1::bigint`,
    values: [id],
    decode: ([row]) => (row === undefined ? null : { job: decodeJob(row), now: date(row, "now") }),
  };
}

/** Reads the callbacks of a job, the oldest first. */
export function readCallbacksOfJob(id: JobId): Statement<readonly CallbackRow[]> {
  return {
    text: `SELECT ${callbackColumns("c")} FROM awa_edge.callbacks c WHERE c.job_id = $1::bigint ORDER BY c.created_at, c.id`,
    values: [id],
    decode: (rows) => rows.map(decodeCallback),
  };
}

/** Reads the jobs that a job's outcomes enqueued, the oldest first. */
export function readFollowUpsOfJob(id: JobId): Statement<readonly JobRow[]> {
  return {
    text: `SELECT ${jobColumns("j")} FROM awa_edge.jobs j WHERE j.trigger_job_id = $1::bigint ORDER BY j.id`,
    values: [id],
    decode: (rows) => rows.map(decodeJob),
  };
}

/** Jobs that one page of a drain reads at the most. */
export const DRAIN_PAGE_ROWS = 200;

/** Reads the jobs of a queue that nobody works on, by id, from after a given one: what a drain cancels. */
export function readDrainable(queue: string, after: JobId | null): Statement<readonly JobReading[]> {
  return {
    text: `SELECT ${jobColumns("j")}, date_trunc('milliseconds', now()) AS now
FROM awa_edge.jobs j
WHERE j.queue = $1::text AND j.state IN ('scheduled', 'available', 'retryable', 'waiting_external')
  AND ($2::bigint IS NULL OR j.id > $2::bigint)
ORDER BY j.id
LIMIT ${DRAIN_PAGE_ROWS}`,
    values: [queue, after],
    decode: (rows) => rows.map((row) => ({ job: decodeJob(row), now: date(row, "now") })),
  };
}
