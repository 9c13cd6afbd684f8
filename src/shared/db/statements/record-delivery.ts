import {
  columnsOf,
  type DeliveryState,
  type KeptHeaders,
  type Meaning,
  type Target,
} from "../../delivery.ts";
import type { CallbackId, JobId } from "../../ids.ts";
import type { SqlValue, Statement } from "../port.ts";
import {
  decodeMove,
  MOVE_PARAMETERS,
  MOVE_REPORT,
  MOVE_SQL,
  type MoveResult,
  moveValues,
  type PlannedMove,
} from "./move-job.ts";

/** A failed delivery is tried again by the tick this often, about 26 hours long; then it needs a person. */
export const MAX_DELIVERY_ATTEMPTS = 12;
/** The pause after the n-th failure is 2^n minutes, six hours at the most. */
const MAX_BACKOFF_MINUTES = 360;

/** A delivery as it came. */
export interface NewDelivery {
  readonly source: string;
  readonly deliveryId: string;
  readonly pathCallbackId: CallbackId | null;
  readonly headers: KeptHeaders;
  readonly body: string;
}

/** A delivery that was recorded before, as it was read: the guard of what becomes of it now. */
export interface RecordedDelivery {
  /** Decimal digits. */
  readonly id: string;
  readonly state: DeliveryState;
  readonly attempts: number;
}

/** What is written of a delivery. */
export interface DeliveryRecord {
  /** To be inserted, or a recorded one to be changed. */
  readonly delivery: NewDelivery | RecordedDelivery;
  readonly state: DeliveryState;
  readonly target: Target | null;
  readonly meaning: Meaning | null;
  readonly jobId: JobId | null;
  readonly reason: string | null;
  readonly error: string | null;
  /** The tick is to look at it again in a minute: its callback is there, and its job will be. */
  readonly isAwaitingPark?: boolean;
}

/**
 * The INSERT or UPDATE that records a delivery, for each row of `from`, with RETURNING id. Its parameters, from number `first`
 * on, are {@link recordValues}.
 *
 * Guard: nobody recorded it before (the unique key refuses a second one), or it is still as it was read.
 */
function recordSql(
  { delivery }: DeliveryRecord,
  first: number,
  { from = "(SELECT) one", where = "true", onConflict = "" } = {},
): string {
  const $ = (place: number, type: string) => `$${first + place}::${type}`;
  const attempts = "id" in delivery ? "d.attempts + 1" : "1";
  const columns = {
    state: $(0, "text"),
    callback_id: $(1, "uuid"),
    correlation_key: $(2, "text"),
    meaning: `${$(3, "text")}::jsonb`,
    job_id: $(4, "bigint"),
    reason: $(5, "text"),
    last_error: $(6, "text"),
    attempts: `CASE WHEN ${$(6, "text")} IS NULL THEN ${"id" in delivery ? "d.attempts" : "1"} ELSE ${attempts} END`,
    next_attempt_at: `CASE WHEN ${$(6, "text")} IS NOT NULL AND ${attempts} < ${MAX_DELIVERY_ATTEMPTS}
      THEN now() + make_interval(mins => least(power(2, ${attempts}), ${MAX_BACKOFF_MINUTES})::int)
      WHEN ${$(7, "boolean")} THEN now() + interval '1 minute' END`,
  };
  if ("id" in delivery) {
    return `UPDATE awa_edge.deliveries d SET ${Object.entries(columns)
      .map(([column, value]) => `${column} = ${value}`)
      .join(", ")}
  FROM ${from}
  WHERE d.id = ${$(8, "bigint")} AND d.state = ${$(9, "text")} AND d.attempts = ${$(10, "smallint")} AND ${where}
  RETURNING d.id`;
  }
  const inserted = {
    ...columns,
    source: $(8, "text"),
    delivery_id: $(9, "text"),
    path_callback_id: $(10, "uuid"),
    headers: `${$(11, "text")}::jsonb`,
    body: $(12, "text"),
  };
  return `INSERT INTO awa_edge.deliveries (${Object.keys(inserted).join(", ")})
  SELECT ${Object.values(inserted).join(", ")} FROM ${from} WHERE ${where} ${onConflict}
  RETURNING id`;
}

/** The parameters of {@link recordSql}. */
function recordValues(record: DeliveryRecord): SqlValue[] {
  const { delivery, state, target, meaning, jobId, reason, error, isAwaitingPark = false } = record;
  const { callbackId, correlationKey } = columnsOf(target);
  return [
    state,
    callbackId,
    correlationKey,
    meaning === null ? null : JSON.stringify(meaning),
    jobId,
    reason,
    error,
    isAwaitingPark,
    ...("id" in delivery
      ? [delivery.id, delivery.state, delivery.attempts]
      : [
          delivery.source,
          delivery.deliveryId,
          delivery.pathCallbackId,
          JSON.stringify(delivery.headers),
          delivery.body,
        ]),
  ];
}

/**
 * Moves a job for a delivery, as `moveIfUnchanged` does, and records the delivery as resolved, in one statement.
 *
 * Guards: those of the move; and of the delivery, that nobody has recorded or taken it. Where the job could be moved and the delivery
 * was somebody else's the whole statement fails, with a unique_violation of `a_delivery_counts_once` or as contended: read again.
 */
export function moveForDelivery(planned: PlannedMove, record: DeliveryRecord): Statement<MoveResult> {
  const { guard, move, resolution, followUps, now } = planned;
  return {
    text: `${MOVE_SQL}, recorded AS (
  ${recordSql(record, MOVE_PARAMETERS + 1, { from: "moved" })}
)
SELECT ${MOVE_REPORT},
  CASE WHEN NOT EXISTS (SELECT FROM recorded) THEN awa_edge.raise_stale_delivery() END AS stale
FROM moved`,
    values: [
      ...moveValues(guard, move, resolution, followUps, now, "somebody_else"),
      ...recordValues(record),
    ],
    decode: decodeMove,
  };
}

/**
 * Puts off the time-out of a pending callback for a delivery, and records the delivery as resolved, in one statement.
 *
 * @returns whether the callback was still pending; guards and errors of the delivery as in {@link moveForDelivery}
 */
export function extendForDelivery(
  callbackId: CallbackId,
  timeoutSeconds: number,
  record: DeliveryRecord,
): Statement<boolean> {
  return {
    text: `
WITH extended AS (
  UPDATE awa_edge.callbacks SET timeout_at = now() + make_interval(secs => $2::double precision)
  WHERE id = $1::uuid AND state = 'pending'
  RETURNING id AS callback
), recorded AS (
  ${recordSql(record, 3, { from: "extended" })}
)
SELECT CASE WHEN NOT EXISTS (SELECT FROM recorded) THEN awa_edge.raise_stale_delivery() END AS stale FROM extended`,
    values: [callbackId, timeoutSeconds, ...recordValues(record)],
    decode: (rows) => rows.length > 0,
  };
}

/** Leaves a delivery that somebody else has recorded meanwhile as it is. */
const UNLESS_RECORDED = "ON CONFLICT ON CONSTRAINT a_delivery_counts_once DO NOTHING";

/** Records a delivery that changes no job: ignored, or failed. @returns false where somebody else recorded or took it: read again */
export function recordIfUntaken(record: DeliveryRecord): Statement<boolean> {
  return {
    text: recordSql(record, 1, { onConflict: UNLESS_RECORDED }),
    values: recordValues(record),
    decode: (rows) => rows.length > 0,
  };
}

/**
 * Records a delivery as parked or late.
 *
 * Guard: no pending callback that it could resolve. It holds only under {@link lockTarget}, taken in a statement before, in the same
 * batch: a registration that commits in between is seen, and one that comes later sees the delivery.
 *
 * @param needsParked a pending callback counts only where its job is parked: the meaning is a retry
 * @returns false where somebody else recorded or took it, or its callback is there now: read again
 */
export function recordUnlessPending(
  source: string,
  target: Target,
  needsParked: boolean,
  record: DeliveryRecord,
): Statement<boolean> {
  const isId = "id" in target;
  return {
    text: recordSql(record, 4, {
      where: `NOT EXISTS (
    SELECT FROM awa_edge.callbacks c JOIN awa_edge.jobs j ON j.id = c.job_id
    WHERE c.state = 'pending' AND ${
      isId
        ? "c.id = $2::uuid AND (c.source IS NULL OR c.source = $1::text)"
        : "c.source = $1::text AND c.correlation_key = $2::text"
    }
      AND ($3::boolean IS FALSE OR j.state = 'waiting_external'))`,
      onConflict: UNLESS_RECORDED,
    }),
    values: [source, isId ? target.id : target.correlationKey, needsParked, ...recordValues(record)],
    decode: (rows) => rows.length > 0,
  };
}

/**
 * Makes those who register a callback, and those who park a delivery for it, wait for each other until the end of the transaction. A
 * statement's snapshot is older than the locks that it takes itself, so this is a statement of its own, ahead of theirs.
 */
export function lockTarget(source: string, target: Target): Statement<void> {
  const { callbackId, correlationKey } = columnsOf(target);
  return {
    text: "SELECT pg_advisory_xact_lock(hashtextextended(coalesce($1::text, $2::text || chr(31) || $3::text), 0))::text",
    values: [callbackId, source, correlationKey],
    decode: () => undefined,
  };
}
