import type { JobState } from "../../job.ts";
import type { JobInsert } from "../../registry/job-insert.ts";
import type { Row } from "../port.ts";
import { records, text } from "../rows.ts";

/** One record of the JSON parameter that {@link insertJobsSql} reads. */
type JobRecord = Readonly<Record<string, unknown>>;

/** The jobs to insert as one text parameter, in their order. Strings within are checked: no driver sees a value it can't send. */
export function encodeJobInserts(inserts: readonly JobInsert[], extra: JobRecord = {}): string {
  return JSON.stringify(inserts.map((insert, position) => jobRecord(insert, position, extra)));
}

/** One job to insert, with further fields for the query around it. */
export function jobRecord(insert: JobInsert, position: number, extra: JobRecord = {}): JobRecord {
  return {
    position,
    kind: insert.kind,
    queue: insert.queue,
    args: insert.args,
    priority: insert.priority,
    max_attempts: insert.maxAttempts,
    run_at: insert.runAt,
    metadata: insert.metadata,
    tags: insert.tags,
    unique_key: insert.uniqueKey,
    unique_states: insert.uniqueStates,
    deadline_seconds: insert.deadlineSeconds,
    ordering_key: insert.orderingKey,
    ...extra,
  };
}

/** The records of a JSON parameter as a table `r`; `extra` adds columns to it. */
export function jobRecordsSql(parameter: string, extra = ""): string {
  return `jsonb_to_recordset(${parameter}::text::jsonb) AS r(
    position int, kind text, queue text, args jsonb, priority smallint, max_attempts smallint, run_at timestamptz,
    metadata jsonb, tags text[], unique_key text, unique_states text[], deadline_seconds double precision,
    ordering_key text${extra})`;
}

/**
 * An INSERT of the jobs `r` of `from`, in order of position, with RETURNING id, kind, queue, state. A job whose unique key is
 * held by a live job is left out: the key's index decides, so two statements at once can't both insert it.
 *
 * @param from what follows FROM: {@link jobRecordsSql}, joined with whatever guards the insert
 * @param trigger SQL for the three trigger columns; `null` for a job that nothing triggered
 */
export function insertJobsSql(
  from: string,
  trigger: { readonly jobId: string; readonly outcome: string; readonly runLease: string } | null,
): string {
  return `INSERT INTO awa_edge.jobs (kind, queue, args, state, priority, max_attempts, run_at, metadata, tags,
      unique_key, unique_states, deadline_seconds, ordering_key, trigger_job_id, trigger_outcome, trigger_run_lease)
    SELECT r.kind, r.queue, r.args, CASE WHEN r.run_at > now() THEN 'scheduled' ELSE 'available' END,
      r.priority, r.max_attempts, coalesce(r.run_at, now()), r.metadata, r.tags,
      decode(r.unique_key, 'hex'), r.unique_states, r.deadline_seconds, r.ordering_key,
      ${trigger === null ? "NULL, NULL, NULL" : `${trigger.jobId}, ${trigger.outcome}, ${trigger.runLease}`}
    FROM ${from}
    ORDER BY r.position
    ON CONFLICT (unique_key) WHERE unique_key IS NOT NULL AND state = ANY (unique_states) DO NOTHING
    RETURNING id, kind, queue, state`;
}

/** The channel of wake-ups; the payload is a queue's name. A hint only: what is due is found by polling too. */
export const WAKE_UP_CHANNEL = "awa_edge";

/** Wakes the listeners of every queue in which `table` (columns queue, state) has something available: one row each. */
export function wakeUpSql(table: string): string {
  return `SELECT pg_notify('${WAKE_UP_CHANNEL}', q.queue) AS woken
    FROM (SELECT DISTINCT queue FROM ${table} WHERE state = 'available') q`;
}

/** A job that was inserted, as a transition reports it. */
export interface InsertedJob {
  readonly id: string;
  readonly kind: string;
  readonly queue: string;
  /** It is available, and not scheduled for later. */
  readonly isDue: boolean;
}

/** The inserted jobs of `table` as one JSON array of {@link InsertedJob}, in order. */
export function insertedJobsSql(table: string): string {
  return `coalesce((SELECT jsonb_agg(jsonb_build_object('id', f.id::text, 'kind', f.kind, 'queue', f.queue,
      'is_due', f.state = 'available') ORDER BY f.id)
    FROM ${table} f), '[]')`;
}

/** Reads the column that {@link insertedJobsSql} made. @throws Error where it isn't one */
export function decodeInsertedJobs(row: Row, column: string): readonly InsertedJob[] {
  return records(row, column).map((job) => ({
    id: text(job, "id"),
    kind: text(job, "kind"),
    queue: text(job, "queue"),
    isDue: job.is_due === true,
  }));
}

/** The queues in which something is due after a move: the jobs that it inserted, and the one that it moved. */
export function queuesDue(
  inserted: readonly InsertedJob[],
  moved?: { readonly state: JobState; readonly queue: string },
): readonly string[] {
  const due = inserted.filter(({ isDue }) => isDue).map(({ queue }) => queue);
  return [...new Set(moved?.state === "available" ? [...due, moved.queue] : due)];
}
