import { CALLBACK_STATES, type CallbackRow } from "../../callback.ts";
import type { CallbackId, RunLease } from "../../ids.ts";
import { JOB_STATES, type JobRow } from "../../job.ts";
import type { Row, Statement } from "../port.ts";
import {
  callbackId,
  date,
  decodeJob,
  jobColumns,
  jobId,
  json,
  jsonObject,
  nullable,
  number,
  oneOf,
  runLease,
  text,
} from "../rows.ts";

const CALLBACK_COLUMNS = [
  ..."id job_id run_lease name state timeout_at created_at resolved_at resolved_to payload error".split(" "),
  ..."source correlation_key rules awaited_in_attempt".split(" "),
];

/** Everything that a callback's resolution is planned from. */
export interface CallbackReading {
  readonly callback: CallbackRow;
  readonly job: JobRow;
  /** The database's clock, in whole milliseconds. */
  readonly now: Date;
  readonly keepsDeadLetters: boolean;
}

/**
 * Reads a callback with its job; `null` where there is no such callback. A snapshot: what is planned from it is guarded when
 * it is written.
 *
 * @param lease only the callback of this attempt, where given
 */
export function readCallback(
  id: CallbackId,
  lease: RunLease | null = null,
): Statement<CallbackReading | null> {
  return {
    text: SQL,
    values: [id, lease],
    decode: ([row]) =>
      row === undefined
        ? null
        : {
            callback: decodeCallback(row),
            job: decodeJob(row),
            now: date(row, "now"),
            keepsDeadLetters: row.keeps_dead_letters === true,
          },
  };
}

const SQL = `
SELECT ${jobColumns("j")}, ${callbackColumns("c")},
  coalesce(q.keeps_dead_letters, true) AS keeps_dead_letters,
  date_trunc('milliseconds', now()) AS now
FROM awa_edge.callbacks c
JOIN awa_edge.jobs j ON j.id = c.job_id
LEFT JOIN awa_edge.queues q ON q.queue = j.queue
WHERE c.id = $1::uuid AND ($2::bigint IS NULL OR c.run_lease = $2::bigint)`;

/** The columns of a callback, as {@link decodeCallback} reads them, of the table called `alias`. */
export function callbackColumns(alias: string): string {
  return CALLBACK_COLUMNS.map((column) => `${alias}.${column} AS callback__${column}`).join(", ");
}

/** Reads a callback from a row with the columns of {@link callbackColumns}. @throws Error where they don't fit */
export function decodeCallback(row: Row): CallbackRow {
  return {
    id: callbackId(row, "callback__id"),
    jobId: jobId(row, "callback__job_id"),
    runLease: runLease(row, "callback__run_lease"),
    name: text(row, "callback__name"),
    state: oneOf(row, "callback__state", CALLBACK_STATES),
    timeoutAt: date(row, "callback__timeout_at"),
    createdAt: date(row, "callback__created_at"),
    resolvedAt: nullable(row, "callback__resolved_at", date),
    resolvedTo: nullable(row, "callback__resolved_to", (r, column) => oneOf(r, column, JOB_STATES)),
    payload: json(row, "callback__payload"),
    error: nullable(row, "callback__error", text),
    source: nullable(row, "callback__source", text),
    correlationKey: nullable(row, "callback__correlation_key", text),
    rules: nullable(row, "callback__rules", jsonObject),
    awaitedInAttempt: nullable(row, "callback__awaited_in_attempt", number),
  };
}
