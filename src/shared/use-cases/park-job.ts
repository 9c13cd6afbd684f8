import { DEFAULT_CALLBACK_TIMEOUT_SECONDS, MAX_CALLBACK_TIMEOUT_SECONDS } from "../callback.ts";
import type { Database, Statement } from "../db/port.ts";
import { type ParkedRow, parkUnlessDuplicate, reserveJobId } from "../db/statements/park-job.ts";
import { type CallbackId, type JobId, newCallbackId, type RunLease } from "../ids.ts";
import type { JobRow } from "../job.ts";
import { whyUnstorableText } from "../json.ts";
import type { RegistryView } from "../registry/define.ts";
import type { JobInsert } from "../registry/job-insert.ts";
import { type Ended, planFollowUps } from "../registry/plan.ts";
import { err, ok, type Result } from "../result.ts";

/** What a job waits for. */
export interface Wait {
  /** In seconds, above 0 and up to a year. Default 3600. */
  readonly timeoutSeconds?: number;
  /** A name for this wait, up to 200 characters. Default "". */
  readonly name?: string;
}

/** A planned park: the statement, not yet run, and the outcome to observe once it committed. */
export interface PlannedPark {
  readonly statement: Statement<ParkedRow | null>;
  readonly ended: Ended | null;
}

/** The attempt of a job that is parked as it is inserted. */
const FIRST_LEASE = "1" as RunLease;

/**
 * Plans a job that is inserted parked, with its callback and the follow-ups of `waiting_for_callback`. Where closures or hooks
 * want to see the job its id is reserved first: one round trip more.
 *
 * @returns the plan, or why it can't be, without quoting any value
 */
export async function planPark(
  database: Database,
  registry: RegistryView,
  insert: JobInsert,
  { timeoutSeconds = DEFAULT_CALLBACK_TIMEOUT_SECONDS, name = "" }: Wait,
): Promise<Result<PlannedPark, string>> {
  if (!(timeoutSeconds > 0 && timeoutSeconds <= MAX_CALLBACK_TIMEOUT_SECONDS)) {
    return err(`timeoutSeconds must be above 0 and at most ${MAX_CALLBACK_TIMEOUT_SECONDS}`);
  }
  if ([...name].length > 200) return err("name has 200 characters at most");
  const unstorable = whyUnstorableText(name, "name");
  if (unstorable !== null) return err(unstorable);

  const { kind } = insert;
  const callback = { id: newCallbackId(), name, timeoutSeconds };
  const isSeen =
    registry.closures(kind, "waiting_for_callback").length > 0 || registry.hooks(kind).length > 0;
  if (!isSeen) return ok({ statement: parkUnlessDuplicate(insert, callback, [], null), ended: null });

  const reservation = await database.query(reserveJobId());
  const job = parkedJob(insert, reservation.jobId, callback.id, reservation.now);
  const ended: Ended = { outcome: "waiting_for_callback", job, context: {} };
  const followUps = planFollowUps(registry, ended, reservation.now);
  if (!followUps.ok) return err(followUps.error.reason);
  return ok({ statement: parkUnlessDuplicate(insert, callback, followUps.value, reservation), ended });
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
