import type { CALLBACK_STATES, CallbackState } from "../../callback.ts";
import type { CallbackId, JobId, RunLease } from "../../ids.ts";
import type { Json } from "../../json.ts";
import type { CheckedWait } from "../../wait.ts";
import type { SqlValue, Statement } from "../port.ts";
import { json, nullable, number, oneOf, text } from "../rows.ts";
import { type EarlyLook, lookValues, noNewEarlySql } from "./early-deliveries.ts";

/** One attempt, and the guard of what it writes. */
export interface AttemptGuard {
  readonly jobId: JobId;
  readonly runLease: RunLease;
}

/** A callback to be registered. */
export interface NewCallback extends CheckedWait {
  readonly id: CallbackId;
  /** The attempt whose handler awaits it by its name; `null`: it decides what becomes of the job. */
  readonly awaitedInAttempt: number | null;
}

/**
 * Registers a callback for a running attempt; the one it had, if it is still pending, is superseded.
 *
 * Guard: running under this lease. The job's row is locked first, so that whoever resolves the older one is either before us, and we
 * see it resolved, or after us, and sees it superseded.
 *
 * @returns `stale`: the attempt hasn't its job any more. `early`: a delivery is there that the caller hasn't seen
 */
export function registerIfRunning(
  guard: AttemptGuard,
  callback: NewCallback,
  look: EarlyLook,
): Statement<"registered" | "stale" | "early"> {
  return {
    text: REGISTER_SQL,
    values: [
      guard.jobId,
      guard.runLease,
      ...callbackValues(callback),
      callback.awaitedInAttempt,
      ...lookValues(look),
    ],
    decode: ([row = {}]) => (row.registered === true ? "registered" : row.early === true ? "early" : "stale"),
  };
}

/** The values of a new callback's columns, in the order that registrations take them in: id, name, time-out, source, key, rules. */
export function callbackValues(callback: Omit<NewCallback, "awaitedInAttempt">): readonly SqlValue[] {
  const { id, name, timeoutSeconds, source, correlationKey, rules } = callback;
  return [id, name, timeoutSeconds, source, correlationKey, rules === null ? null : JSON.stringify(rules)];
}

// `older` is counted to have the older callback out of the way before this one comes in: a job has one that is pending.
const REGISTER_SQL = `
WITH held AS (
  UPDATE awa_edge.jobs SET callback_id = $3::uuid
  WHERE id = $1::bigint AND state = 'running' AND run_lease = $2::bigint
    AND ${noNewEarlySql("$6", "$7", "$10")}
  RETURNING id, run_lease
), superseded AS (
  UPDATE awa_edge.callbacks c SET state = 'superseded', resolved_at = now()
  FROM held
  WHERE c.job_id = held.id AND c.state = 'pending'
  RETURNING c.id
), registered AS (
  INSERT INTO awa_edge.callbacks (id, job_id, run_lease, name, timeout_at, source, correlation_key, rules, awaited_in_attempt)
  SELECT $3::uuid, held.id, held.run_lease, $4::text, now() + make_interval(secs => $5::double precision),
    $6::text, $7::text, $8::text::jsonb, $9::smallint
  FROM held, (SELECT count(*) FROM superseded) AS older
  RETURNING id
), made_due AS (
  SELECT awa_edge.make_early_due($6::text, $7::text, NULL) FROM registered WHERE $11::boolean
)
SELECT EXISTS (SELECT FROM registered) AS registered, (SELECT count(*) FROM made_due) AS made_due,
  NOT ${noNewEarlySql("$6", "$7", "$10")} AS early`;

/**
 * Takes back the callback that an attempt registered.
 *
 * Guard: running under this lease, with this callback.
 *
 * @returns whether it was there to be taken back
 */
export function cancelCallbackIfRunning(guard: AttemptGuard, id: CallbackId): Statement<boolean> {
  return {
    text: CANCEL_SQL,
    values: [guard.jobId, guard.runLease, id],
    decode: (rows) => rows.length > 0,
  };
}

const CANCEL_SQL = `
WITH held AS (
  UPDATE awa_edge.jobs SET callback_id = NULL
  WHERE id = $1::bigint AND state = 'running' AND run_lease = $2::bigint AND callback_id = $3::uuid
  RETURNING id
)
UPDATE awa_edge.callbacks c SET state = 'cancelled', resolved_at = now()
FROM held
WHERE c.id = $3::uuid AND c.job_id = held.id AND c.state = 'pending'
RETURNING c.id`;

/** A wait of a job that is over, as its handler hears of it. */
export interface EndedWait {
  readonly name: string;
  readonly state: Extract<CallbackState, "resumed" | "expired">;
  readonly payload: Json;
  readonly awaitedInAttempt: number | null;
}

/** Reads the waits of a job that are over, the oldest first: those that were resumed, and those that timed out. */
export function readEndedWaits(id: JobId): Statement<readonly EndedWait[]> {
  return {
    text: READ_SQL,
    values: [id],
    decode: (rows) =>
      rows.map((row) => ({
        name: text(row, "name"),
        state: oneOf(row, "state", ENDED_WAIT_STATES),
        payload: json(row, "payload"),
        awaitedInAttempt: nullable(row, "awaited_in_attempt", number),
      })),
  };
}

const ENDED_WAIT_STATES = [
  "resumed",
  "expired",
] as const satisfies readonly (typeof CALLBACK_STATES)[number][];

const READ_SQL = `
SELECT name, state, payload, awaited_in_attempt FROM awa_edge.callbacks
WHERE job_id = $1::bigint AND state IN ('resumed', 'expired')
ORDER BY resolved_at, id`;
