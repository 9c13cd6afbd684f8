import { DatabaseError } from "../db/errors.ts";
import type { Database } from "../db/port.ts";
import { type EarlyLook, NOTHING_EARLY } from "../db/statements/early-deliveries.ts";
import { type ParkedRow, parkUnlessDuplicate, reserveJobId } from "../db/statements/park-job.ts";
import { untilDecided } from "../db/until-decided.ts";
import { type CallbackId, type JobId, newCallbackId, type RunLease } from "../ids.ts";
import type { JobRow } from "../job.ts";
import type { RegistryView } from "../registry/define.ts";
import type { JobInsert } from "../registry/job-insert.ts";
import { type Ended, planFollowUps } from "../registry/plan.ts";
import { err, ok, type Result } from "../result.ts";
import type { CheckedWait } from "../wait.ts";
import { type Registration, registerWithEarly } from "./early-deliveries.ts";
import type { Moved } from "./resolve-callback.ts";

/** A planned park: the statement, not yet run, and the outcome to observe once it committed. */
export interface PlannedPark extends Registration<ParkedRow | null> {
  readonly ended: Ended | null;
}

/** The attempt of a job that is parked as it is inserted. */
const FIRST_LEASE = "1" as RunLease;

/** A job that was parked, or the one that holds its unique key. */
export interface ParkedJob {
  readonly row: ParkedRow;
  /** `null`: nothing to observe. */
  readonly ended: Ended | null;
  /** What an early delivery did to it, in the same transaction. */
  readonly moved: Moved | null;
}

/**
 * Inserts a job that is parked, with its callback, the follow-ups of `waiting_for_callback`, and what came early for its correlation key.
 *
 * @returns what came of it, or why it can't be, without quoting any value
 * @throws DatabaseError where the database failed
 */
export async function parkJob(
  database: Database,
  registry: RegistryView,
  insert: JobInsert,
  wait: CheckedWait,
): Promise<Result<ParkedJob, string>> {
  const { source, correlationKey } = wait;
  if (source === null || correlationKey === null) {
    const planned = await planPark(database, registry, insert, wait, newCallbackId());
    if (!planned.ok) return planned;
    const { statement, ended } = planned.value;
    const row = await untilDecided(() => database.query(statement(NOTHING_EARLY)));
    return ok({ row, ended, moved: null });
  }
  const callback = { ...wait, id: newCallbackId(), awaitedInAttempt: null };
  let ended: Ended | null = null;
  const registered = await registerWithEarly(
    database,
    registry,
    { ...callback, source, correlationKey },
    async (isFound) => {
      const planned = await planPark(database, registry, insert, wait, callback.id, isFound);
      if (planned.ok) ended = planned.value.ended;
      return planned;
    },
    (row) => row === null,
  );
  if (!registered.ok) return registered;
  const { result: row, moved } = registered.value;
  if (row === null) throw new DatabaseError("contended", null);
  return ok({ row, ended, moved });
}

/**
 * Plans a job that is inserted parked, with its callback and the follow-ups of `waiting_for_callback`. Where closures or hooks
 * want to see the job, or something came early for it, its id is reserved first: one round trip more.
 *
 * @param isFound something came early: the plan is to say how the job will be
 * @returns the plan, or why it can't be, without quoting any value
 */
export async function planPark(
  database: Database,
  registry: RegistryView,
  insert: JobInsert,
  wait: CheckedWait,
  id: CallbackId,
  isFound = false,
): Promise<Result<PlannedPark, string>> {
  const { kind, queue } = insert;
  const callback = { ...wait, id };
  const isSeen =
    registry.closures(kind, "waiting_for_callback").length > 0 || registry.hooks(kind).length > 0;
  if (!isSeen && !isFound) {
    const statement = (look: EarlyLook) => parkUnlessDuplicate(insert, callback, [], null, look);
    return ok({ statement, ended: null, about: null });
  }
  const reservation = await database.query(reserveJobId(queue));
  const { now, keepsDeadLetters } = reservation;
  const job = parkedJob(insert, reservation.jobId, id, now);
  const ended: Ended = { outcome: "waiting_for_callback", job, context: {} };
  const followUps = planFollowUps(registry, ended, now);
  if (!followUps.ok) return err(followUps.error.reason);
  const statement = (look: EarlyLook) =>
    parkUnlessDuplicate(insert, callback, followUps.value, reservation, look);
  return ok({ statement, ended, about: { job, keepsDeadLetters } });
}

/** The job as `parkUnlessDuplicate` inserts it. */
function parkedJob(
  insert: JobInsert,
  id: JobId,
  callbackId: CallbackId,
  now: Date,
): JobRow<"waiting_external"> {
  return {
    ...insert,
    id,
    state: "waiting_external",
    attempt: 1,
    runLease: FIRST_LEASE,
    runAt: now,
    attemptedAt: now,
    createdAt: now,
    heartbeatAt: null,
    deadlineAt: null,
    finalizedAt: null,
    errors: [],
    progress: null,
    result: null,
    callbackId,
    trigger: null,
    deadLetter: null,
  };
}
