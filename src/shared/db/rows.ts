import {
  type CallbackId,
  type JobId,
  parseCallbackId,
  parseJobId,
  parseRunLease,
  type RunLease,
} from "../ids.ts";
import { type AttemptError, JOB_STATES, type JobRow, type JobState, type Trigger } from "../job.ts";
import { isJsonObject, type Json, type JsonObject } from "../json.ts";
import { DEAD_LETTER_REASONS, OUTCOMES } from "../outcome.ts";
import type { Row } from "./port.ts";

/** The columns of a job, as {@link decodeJob} reads them, of the table or record called `alias`. */
export function jobColumns(alias: string): string {
  return JOB_COLUMNS.map((column) =>
    column === "unique_key" ? `encode(${alias}.unique_key, 'hex') AS unique_key` : `${alias}.${column}`,
  ).join(", ");
}

const JOB_COLUMNS = [
  ..."id kind queue args state priority attempt max_attempts run_at run_lease heartbeat_at deadline_at".split(
    " ",
  ),
  ..."deadline_seconds attempted_at finalized_at created_at errors metadata progress result tags".split(" "),
  ..."unique_key unique_states ordering_key callback_id trigger_job_id trigger_outcome trigger_run_lease".split(
    " ",
  ),
  ..."dead_lettered_at dead_letter_reason".split(" "),
];

/**
 * Reads a job from a row with the columns of {@link jobColumns}.
 *
 * @throws Error where a column is missing or not of its type: the build and the schema don't fit
 */
export function decodeJob(row: Row): JobRow {
  const fields = {
    id: jobId(row, "id"),
    kind: text(row, "kind"),
    queue: text(row, "queue"),
    args: json(row, "args"),
    priority: number(row, "priority"),
    attempt: number(row, "attempt"),
    maxAttempts: number(row, "max_attempts"),
    runAt: date(row, "run_at"),
    runLease: runLease(row, "run_lease"),
    attemptedAt: nullable(row, "attempted_at", date),
    createdAt: date(row, "created_at"),
    deadlineSeconds: nullable(row, "deadline_seconds", number),
    errors: records(row, "errors").map(attemptError),
    metadata: jsonObject(row, "metadata"),
    progress: json(row, "progress"),
    result: json(row, "result"),
    tags: texts(row, "tags"),
    uniqueKey: nullable(row, "unique_key", text),
    uniqueStates: nullable(row, "unique_states", states),
    orderingKey: nullable(row, "ordering_key", text),
    trigger: nullable(row, "trigger_job_id", trigger),
  };
  const pending = {
    heartbeatAt: null,
    deadlineAt: null,
    finalizedAt: null,
    callbackId: null,
    deadLetter: null,
  };
  const state = oneOf(row, "state", JOB_STATES);
  switch (state) {
    case "scheduled":
    case "available":
      return { ...fields, ...pending, state };
    case "running":
      return {
        ...fields,
        ...pending,
        state,
        heartbeatAt: date(row, "heartbeat_at"),
        deadlineAt: nullable(row, "deadline_at", date),
        callbackId: nullable(row, "callback_id", callbackId),
      };
    case "waiting_external":
      return { ...fields, ...pending, state, callbackId: callbackId(row, "callback_id") };
    case "failed":
      return {
        ...fields,
        ...pending,
        state,
        finalizedAt: date(row, "finalized_at"),
        deadLetter: nullable(row, "dead_lettered_at", (r, column) => ({
          at: date(r, column),
          reason: oneOf(r, "dead_letter_reason", DEAD_LETTER_REASONS),
        })),
      };
    case "retryable":
    case "completed":
    case "cancelled":
      return { ...fields, ...pending, state, finalizedAt: date(row, "finalized_at") };
  }
}

function states(row: Row, column: string): readonly JobState[] {
  return texts(row, column).map((state) => oneOf({ state }, "state", JOB_STATES));
}

/** A jsonb column that holds an object. @throws Error where it is none */
export function jsonObject(row: Row, column: string): JsonObject {
  const value = json(row, column);
  return isJsonObject(value) ? value : wrongType(column, "an object");
}

function attemptError(entry: Row): AttemptError {
  return {
    error: text(entry, "error"),
    attempt: number(entry, "attempt"),
    at: text(entry, "at"),
    ...(entry.terminal === true && { terminal: true }),
    ...(typeof entry.expression === "string" && { expression: entry.expression }),
  };
}

function trigger(row: Row): Trigger {
  return {
    jobId: jobId(row, "trigger_job_id"),
    outcome: oneOf(row, "trigger_outcome", OUTCOMES),
    runLease: runLease(row, "trigger_run_lease"),
  };
}

/** A column as text. @throws Error where it is no text */
export function text(row: Row, column: string): string {
  const value = row[column];
  return typeof value === "string" ? value : wrongType(column, "text");
}

/** A column as a number; counts arrive as digits. @throws Error where it is none */
export function number(row: Row, column: string): number {
  const value = row[column];
  const parsed = typeof value === "string" && value !== "" ? Number(value) : value;
  return typeof parsed === "number" && !Number.isNaN(parsed) ? parsed : wrongType(column, "number");
}

/** A column as a time. Drivers give a Date, or the text. @throws Error where it is no time */
export function date(row: Row, column: string): Date {
  const value = row[column];
  const parsed = value instanceof Date ? value : typeof value === "string" ? new Date(value) : null;
  return parsed !== null && !Number.isNaN(parsed.getTime()) ? parsed : wrongType(column, "time");
}

/** A jsonb column, parsed by the driver. */
export function json(row: Row, column: string): Json {
  if (!(column in row)) wrongType(column, "json");
  return row[column] as Json;
}

/** A jsonb column that holds a list of objects, each to be read like a row. @throws Error where it is none */
export function records(row: Row, column: string): readonly Row[] {
  const value = row[column];
  return Array.isArray(value) && value.every(isRow) ? value : wrongType(column, "a list of objects");
}

function isRow(value: unknown): value is Row {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** A text[] column. @throws Error where it is none */
export function texts(row: Row, column: string): readonly string[] {
  const value = row[column];
  return Array.isArray(value) && value.every((item) => typeof item === "string")
    ? value
    : wrongType(column, "text[]");
}

/** A bigint column as a job id. @throws Error where it is none */
export function jobId(row: Row, column: string): JobId {
  return parseJobId(row[column]) ?? wrongType(column, "job id");
}

/** A bigint column as a run lease. @throws Error where it is none */
export function runLease(row: Row, column: string): RunLease {
  return parseRunLease(row[column]) ?? wrongType(column, "run lease");
}

/** A uuid column. @throws Error where it is none */
export function callbackId(row: Row, column: string): CallbackId {
  return parseCallbackId(text(row, column)) ?? wrongType(column, "uuid");
}

/** A column that may be NULL. */
export function nullable<T>(row: Row, column: string, read: (row: Row, column: string) => T): T | null {
  return row[column] === null ? null : read(row, column);
}

/** A text column of a closed set. @throws Error where its value is none of them */
export function oneOf<const T extends string>(row: Row, column: string, values: readonly T[]): T {
  const value = row[column];
  return values.find((candidate) => candidate === value) ?? wrongType(column, values.join(" | "));
}

function wrongType(column: string, expected: string): never {
  throw new Error(`column ${column} isn't ${expected}: the schema doesn't fit this build`);
}
