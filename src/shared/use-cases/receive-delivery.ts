import { DatabaseError } from "../db/errors.ts";
import type { Database } from "../db/port.ts";
import type { CallbackReading } from "../db/statements/read-callback.ts";
import { readDelivery } from "../db/statements/read-delivery.ts";
import {
  type DeliveryRecord,
  extendForDelivery,
  lockTarget,
  moveForDelivery,
  type NewDelivery,
  type RecordedDelivery,
  recordIfUntaken,
  recordUnlessPending,
} from "../db/statements/record-delivery.ts";
import type { DeliveryState, Target } from "../delivery.ts";
import type { JobId } from "../ids.ts";
import { TERMINAL_STATES } from "../job.ts";
import { keptText } from "../json.ts";
import type { RegistryView } from "../registry/define.ts";
import { inFull } from "../registry/job-insert.ts";
import type { Interpretation } from "../registry/source.ts";
import type { Result } from "../result.ts";
import { decideByRules } from "../transitions.ts";
import { type Moved, movedBy, planMove } from "./resolve-callback.ts";

/** What a delivery came to. All but `failed` are a success to its sender. */
export type Receipt =
  | Moved
  /** Put off its callback's time-out. */
  | { readonly status: "extended"; readonly jobId: JobId; readonly kind: string }
  | { readonly status: "ignored"; readonly reason: string }
  /** Its callback isn't there yet: the statement that registers it takes the delivery with it. */
  | { readonly status: "parked" }
  /** Its callback is over. */
  | { readonly status: "late"; readonly reason: string; readonly jobId: JobId; readonly kind: string }
  /** It was received before: nothing was done. */
  | { readonly status: "duplicate"; readonly state: DeliveryState }
  /** Its source's code, or a follow-up, failed; it is kept. `isFirst`: its sender hasn't heard of it yet. */
  | { readonly status: "failed"; readonly reason: string; readonly isFirst: boolean };

/** One delivery to be received: as it came, or a recorded one to be tried again. */
export interface ToReceive {
  readonly source: string;
  readonly deliveryId: string;
  readonly delivery: NewDelivery | RecordedDelivery;
  /** What its source's code made of it, or how that failed. */
  readonly interpretation: Result<Interpretation, string>;
}

/** Rounds of read, plan and write. Each further one needs another writer to have come in between. */
const MAX_ROUNDS = 5;
const COUNTS_ONCE = "a_delivery_counts_once";

/**
 * Receives a delivery: reads it with the callback that it is for, plans, and writes in one guarded statement that records the delivery,
 * moves the job and inserts the follow-ups: all of it, or none.
 *
 * Safe to repeat, also at the same time and also when an earlier try died without an answer: a delivery counts once by its unique key,
 * and a second one is a `duplicate`. One that failed before is tried again instead.
 *
 * @throws DatabaseError where the database failed; repeating finds out what of it was written
 */
export async function receiveDelivery(
  database: Database,
  registry: RegistryView,
  given: ToReceive,
): Promise<Receipt> {
  for (let round = 1; round <= MAX_ROUNDS; round++) {
    const { interpretation } = given;
    const target = interpretation.ok ? interpretation.value.target : null;
    const { recorded, callback } = await database.query(readDelivery(given.source, given.deliveryId, target));
    if (recorded !== null && !isToBeTried(given.delivery, recorded)) {
      return { status: "duplicate", state: recorded.state };
    }
    // Retention has deleted it since it was read.
    if (recorded === null && "id" in given.delivery) {
      return { status: "duplicate", state: given.delivery.state };
    }
    const current = { ...given, delivery: recorded ?? given.delivery };
    try {
      const receipt = await receiveOnce(database, registry, current, callback);
      if (receipt !== null) return receipt;
    } catch (thrown) {
      if (!(thrown instanceof DatabaseError)) throw thrown;
      const wasTaken = thrown.kind === "contended" || thrown.constraint === COUNTS_ONCE;
      // What Postgres refuses otherwise is a follow-up, or the job's unique key. The delivery must not be lost for it.
      const wasRefused = thrown.kind === "rejected" || thrown.kind === "unique_violation";
      if (!wasTaken && !wasRefused) throw thrown;
      const failed = wasTaken ? null : await recordFailure(database, current, thrown.message, thrown.message);
      if (failed !== null) return failed;
    }
    // Somebody else was faster. The next reading says who, and what that means for this delivery.
  }
  throw new DatabaseError("contended", null);
}

/** Whether a recorded delivery is still the one to be tried, or one that failed and came again. One that was resolved never is. */
function isToBeTried(delivery: NewDelivery | RecordedDelivery, recorded: RecordedDelivery): boolean {
  if (recorded.state === "resolved") return false;
  return "id" in delivery
    ? recorded.state === delivery.state && recorded.attempts === delivery.attempts
    : recorded.state === "failed";
}

/** Does what a delivery means, and records it. `null`: stale, nothing was done. */
async function receiveOnce(
  database: Database,
  registry: RegistryView,
  given: ToReceive,
  found: CallbackReading | null,
): Promise<Receipt | null> {
  const { interpretation } = given;
  if (!interpretation.ok) return recordFailure(database, given, interpretation.error);
  const { meaning, target } = interpretation.value;
  if (meaning.type === "ignore") return recordIgnored(database, given, meaning.reason);
  if (target === null) return recordIgnored(database, given, "the event names no callback");
  if (meaning.type === "heartbeat") return extend(database, given, meaning.timeoutSeconds, found);
  if (found === null) return park(database, given, target, false);
  const { callback, job } = found;
  if (callback.state !== "pending") {
    // A job that goes on may register the same correlation key again. One that is over won't, nor does a callback come back.
    const isOver = "id" in target || TERMINAL_STATES.some((state) => state === job.state);
    return isOver ? recordLate(database, given, target, found) : park(database, given, target, false);
  }
  const action =
    meaning.type === "resolve" ? decideByRules(meaning.payload, callback, registry.ruleEngine()) : meaning;
  if (action.type === "ignore") return recordIgnored(database, given, action.reason, job.id);
  if (action.type === "undecided") return recordFailure(database, given, action.reason, action.reason);
  const planned = planMove(registry, found, action);
  if (planned.ok) {
    const record: DeliveryRecord = { ...recordOf(given), state: "resolved", jobId: job.id };
    return movedBy(registry, planned.value, await database.query(moveForDelivery(planned.value, record)));
  }
  switch (planned.error.status) {
    case "still_running":
      // A retry is for a job that is parked: the tick finds both once it is.
      return park(database, given, target, true);
    case "follow_up_failed": {
      const { failure } = planned.error;
      return recordFailure(database, given, inFull(failure), failure.reason);
    }
    default:
      throw new Error(`a pending callback can't be ${planned.error.status}`);
  }
}

async function extend(
  database: Database,
  given: ToReceive,
  timeoutSeconds: number,
  found: CallbackReading | null,
): Promise<Receipt | null> {
  if (found?.callback.state !== "pending") {
    return recordIgnored(
      database,
      given,
      "no pending callback whose time-out could be put off",
      found?.job.id,
    );
  }
  const { id: jobId, kind } = found.job;
  const record: DeliveryRecord = { ...recordOf(given), state: "resolved", jobId };
  const done = await database.query(extendForDelivery(found.callback.id, timeoutSeconds, record));
  return done ? { status: "extended", jobId, kind } : null;
}

async function recordIgnored(
  database: Database,
  given: ToReceive,
  reason: string,
  jobId: JobId | null = null,
): Promise<Receipt | null> {
  const record: DeliveryRecord = { ...recordOf(given), state: "ignored", reason, jobId };
  return (await database.query(recordIfUntaken(record))) ? { status: "ignored", reason } : null;
}

/** Keeps a delivery for the callback that isn't there yet. @param needsParked it is there, but its job isn't parked yet */
async function park(
  database: Database,
  given: ToReceive,
  target: Target,
  needsParked: boolean,
): Promise<Receipt | null> {
  const record: DeliveryRecord = { ...recordOf(given), state: "parked", isAwaitingPark: needsParked };
  return (await recordUnderLock(database, given.source, target, needsParked, record))
    ? { status: "parked" }
    : null;
}

async function recordLate(
  database: Database,
  given: ToReceive,
  target: Target,
  { callback, job: { id: jobId, kind } }: CallbackReading,
): Promise<Receipt | null> {
  const reason = `its callback was ${callback.state}`;
  const record: DeliveryRecord = { ...recordOf(given), state: "late", reason, jobId };
  return (await recordUnderLock(database, given.source, target, false, record))
    ? { status: "late", reason, jobId, kind }
    : null;
}

async function recordUnderLock(
  database: Database,
  source: string,
  target: Target,
  needsParked: boolean,
  record: DeliveryRecord,
): Promise<boolean> {
  const statement = recordUnlessPending(source, target, needsParked, record);
  return (await database.batch([lockTarget(source, target), statement]))[1];
}

/** @param reason for the log: unlike `error`, it quotes nothing that came with the delivery */
async function recordFailure(
  database: Database,
  given: ToReceive,
  error: string,
  reason = "its source's code failed",
): Promise<Receipt | null> {
  const record: DeliveryRecord = { ...recordOf(given), state: "failed", error: keptText(error) };
  return (await database.query(recordIfUntaken(record)))
    ? { status: "failed", reason, isFirst: !("id" in given.delivery) }
    : null;
}

function recordOf({ delivery, interpretation }: ToReceive): Omit<DeliveryRecord, "state"> {
  const { meaning = null, target = null } = interpretation.ok ? interpretation.value : {};
  return { delivery, meaning, target, jobId: null, reason: null, error: null };
}
