import {
  type CallbackReceiver,
  type CompleteOptions,
  callbackIdOf,
  completeAction,
  failAction,
  heartbeatSeconds,
  jobIdOf,
  mustBeStorable,
  receiverOf,
} from "./client-arguments.ts";
import type { CallbackRow } from "./shared/callback.ts";
import { DatabaseError } from "./shared/db/errors.ts";
import type { Database, Statement } from "./shared/db/port.ts";
import { configureQueue, type QueueSettings } from "./shared/db/statements/configure-queue.ts";
import { LEAVE_TO_TICK } from "./shared/db/statements/early-deliveries.ts";
import { type Extension, extendIfPending } from "./shared/db/statements/extend-callback.ts";
import { type Enqueued, insertUnlessDuplicate } from "./shared/db/statements/insert-job.ts";
import { type InsertedJob, queuesDue } from "./shared/db/statements/insert-jobs.ts";
import type { ParkedRow } from "./shared/db/statements/park-job.ts";
import {
  DRAIN_PAGE_ROWS,
  type JobReading,
  readCallbacksOfJob,
  readDrainable,
  readFollowUpsOfJob,
  readJob,
} from "./shared/db/statements/read-job.ts";
import {
  RETRIABLE_STATES,
  type Retried,
  type RetryOptions,
  retryIfEndedOrWaiting,
} from "./shared/db/statements/retry-job.ts";
import { untilDecided } from "./shared/db/until-decided.ts";
import { type CallbackId, type JobId, newCallbackId } from "./shared/ids.ts";
import type { JobRow, JobState } from "./shared/job.ts";
import { type Json, whyUnstorable, whyUnstorableText } from "./shared/json.ts";
import type { ArgsInput, Kinds, Registry } from "./shared/registry/define.ts";
import type { EnqueueOptions } from "./shared/registry/follow-up.ts";
import { checkJobInsert, DEFAULT_QUEUE, type JobInsert } from "./shared/registry/job-insert.ts";
import { type Ended, runHooks } from "./shared/registry/plan.ts";
import { signCallbackId } from "./shared/signature.ts";
import type { CallbackAction } from "./shared/transitions.ts";
import {
  type CancelResult,
  type PlannedCancel,
  planCancel,
  planCancelOf,
} from "./shared/use-cases/cancel-job.ts";
import { deadLettersOf, whyNoRetryOptions } from "./shared/use-cases/dead-letters.ts";
import { deliveriesOf } from "./shared/use-cases/deliveries.ts";
import { type Extended, extendCallback } from "./shared/use-cases/extend-callback.ts";
import { parkJob, planPark } from "./shared/use-cases/park-job.ts";
import {
  type Ignored,
  type Moved,
  type PlannedResolution,
  planResolution,
  type Resolution,
  resolveCallback,
  resolveCallbackByRules,
} from "./shared/use-cases/resolve-callback.ts";
import { schedulesOf } from "./shared/use-cases/schedules.ts";
import { type CheckedWait, checkWait, type Wait, webhookUrl } from "./shared/wait.ts";

export type { CallbackReceiver, CompleteOptions } from "./client-arguments.ts";
export { neonDatabase } from "./shared/db/neon.ts";
export { pgDatabase } from "./shared/db/pg.ts";

/** What a client is made of. */
export interface ClientOptions<K extends Kinds> {
  /** `neonDatabase(…)` on Workers, `pgDatabase(pool)` on Node. */
  readonly database: Database;
  readonly registry: Registry<K>;
  /** Where callbacks arrive and what signs them. Without it, parked jobs come without URL and signature. */
  readonly callbacks?: CallbackReceiver;
  /** Keeps hooks running after the call, for example `ctx.waitUntil`. Default: they run unattended. */
  readonly waitUntil?: (work: Promise<void>) => void;
  /**
   * Told of the queues in which an enqueue, a follow-up or a resolution made something due, to have it run at once: in a Worker
   * `(queues) => ctx.waitUntil(nudge(deps, queues))`. Default: whoever polls the queue finds it.
   */
  readonly nudge?: (queues: readonly string[]) => void;
  /** Told of a hook that failed. Default: nothing. */
  readonly onHookFailure?: (fault: string) => void;
  /** The time that decides the period of a unique key. Default: the system's clock. */
  readonly now?: () => Date;
}

/** How a job is parked. */
export interface ParkOptions extends Omit<EnqueueOptions, "runAt">, Wait {}

/** A parked job, and what its outside world needs to call back. */
export interface Parked {
  readonly jobId: JobId;
  /** `null` only where a live job that waits for nothing holds the unique key. */
  readonly callbackId: CallbackId | null;
  /** POST here to complete. The other actions are beside it: `/fail`, `/retry`, `/heartbeat`. */
  readonly callbackUrl: string | null;
  /** For the X-Awa-Signature header, or as `?signature=`. */
  readonly signature: string | null;
  /** Where its source's provider sends the webhooks of this callback; `null` where it has no source. */
  readonly webhookUrl: string | null;
  /** A live job with the same unique key was there already: this is that one. */
  readonly deduplicated: boolean;
  readonly followUps: readonly InsertedJob[];
}

/** What a drain came to. */
export interface Drained {
  readonly cancelled: number;
  readonly followUpFailed: readonly JobId[];
}

/** What a retry by hand came to. */
export type RetryResult =
  | { readonly status: "retried" }
  | { readonly status: "not_found" }
  | { readonly status: "not_retriable"; readonly state: JobState };

/** Lets one job of an ordering key be under way at a time. */
const ORDERING_KEY_INDEX = "jobs_one_under_way_per_ordering_key";
const DEFAULT_CANCEL_REASON = "cancelled by the application";

export type Client<K extends Kinds> = ReturnType<typeof createClient<K>>;

/**
 * What an application's own code uses: enqueue, park, resolve, cancel, retry, look up.
 *
 * Each write is one transaction of its own. To make it part of yours, take the statement from `client.prepare` and run it in your
 * transaction with any driver: `{ text, values }`, and `decode(rows)` for what came back.
 *
 * Every method rejects with a DatabaseError where the database failed (what was written isn't known then; all of them
 * are safe to repeat, enqueue and park with `unique`), and with an Error that says what is wrong where an argument can't be. A job that may
 * be over when its park is repeated, as an event came early for it, is recognized where `unique.states` has the terminal states too.
 */
export function createClient<K extends Kinds>(options: ClientOptions<K>) {
  const { database, registry, callbacks, now = () => new Date() } = options;
  const { waitUntil = () => undefined, onHookFailure = () => undefined } = options;
  const nudge = (queues: readonly string[]) => {
    if (queues.length > 0) options.nudge?.(queues);
  };

  function insertOf(kind: string, args: unknown, enqueueOptions: EnqueueOptions): JobInsert {
    const checked = checkJobInsert(registry.kinds, { kind, args, options: enqueueOptions }, now());
    if (!checked.ok) throw new Error(`can't enqueue ${kind}: ${checked.error}`);
    return checked.value;
  }

  const receiver = callbacks === undefined ? null : receiverOf(callbacks);

  function parkedOf(row: ParkedRow, { source }: CheckedWait): Parked {
    const { callbackId } = row;
    if (callbackId === null || receiver === null) {
      return { ...row, callbackUrl: null, signature: null, webhookUrl: null };
    }
    const { baseUrl, pathPrefix, secret } = receiver;
    return {
      ...row,
      callbackUrl: `${baseUrl}${pathPrefix}/${callbackId}/complete`,
      signature: secret === undefined ? null : signCallbackId(secret, callbackId),
      webhookUrl: source === null ? null : webhookUrl(baseUrl, source, callbackId),
    };
  }

  function observe(ended: Ended | null): void {
    if (ended !== null) waitUntil(runHooks(registry, ended, onHookFailure));
  }

  async function resolve(id: string, action: CallbackAction): Promise<Resolution> {
    const resolution = await resolveCallback(database, registry, callbackIdOf(id), action);
    if (resolution.status === "moved") afterMove(resolution);
    return resolution;
  }

  function afterMove({ ended, dueIn }: Moved): void {
    observe(ended);
    nudge(dueIn);
  }

  /** The statements, to be run in the application's own transaction. No hooks: only the application knows when it committed. */
  const prepare = {
    /** Enqueues a job. Decodes to `null` where another transaction is about to take the unique key: run it again. */
    enqueue<N extends keyof K & string>(
      kind: N,
      args: ArgsInput<K, N>,
      enqueueOptions: EnqueueOptions = {},
    ): Statement<Enqueued | null> {
      return insertUnlessDuplicate(insertOf(kind, args, enqueueOptions));
    },

    /**
     * Parks a job. Reserves its id first where the kind has follow-ups of `waiting_for_callback`. Decodes as enqueue does. A webhook that
     * came early for its correlation key is left to the next tick: one statement can't be planned for what it may find.
     */
    async park<N extends keyof K & string>(
      kind: N,
      args: ArgsInput<K, N>,
      parkOptions: ParkOptions = {},
    ): Promise<Statement<Parked | null>> {
      const { insert, wait } = parkArguments(kind, args, parkOptions);
      const planned = await planPark(database, registry, insert, wait, newCallbackId());
      if (!planned.ok) throw new Error(`can't park ${kind}: ${planned.error}`);
      const statement = planned.value.statement(LEAVE_TO_TICK);
      const decode: Statement<Parked | null>["decode"] = (rows) => {
        const row = statement.decode(rows);
        return row === null ? null : parkedOf(row, wait);
      };
      return { ...statement, decode };
    },

    /** Cancels a job that hasn't ended, with its follow-ups. Reads the job first; the guard is in the statement. */
    async cancel(id: string, { reason = DEFAULT_CANCEL_REASON } = {}): Promise<PlannedCancel> {
      mustBeStorable(whyUnstorableText(reason, "reason"));
      return planCancel(database, registry, jobIdOf(id), reason);
    },

    /** Starts a failed, cancelled or waiting job afresh. */
    retry(id: string, retryOptions: RetryOptions = {}): Statement<Retried> {
      mustBeStorable(whyNoRetryOptions(retryOptions));
      return retryIfEndedOrWaiting(jobIdOf(id), retryOptions);
    },

    /** Completes a callback's job, or resumes its handler. Reads both first; the guard is in the statement. */
    async completeCallback(id: string, body: CompleteOptions = {}): Promise<PlannedResolution> {
      return planResolution(database, registry, callbackIdOf(id), completeAction(body));
    },
    async failCallback(id: string, error: string): Promise<PlannedResolution> {
      return planResolution(database, registry, callbackIdOf(id), failAction(error));
    },
    async retryCallback(id: string): Promise<PlannedResolution> {
      return planResolution(database, registry, callbackIdOf(id), { type: "retry" });
    },
    heartbeatCallback(id: string, timeoutSeconds: number): Statement<Extension | null> {
      return extendIfPending(callbackIdOf(id), heartbeatSeconds(timeoutSeconds));
    },
  };

  function parkArguments(kind: string, args: unknown, options: ParkOptions) {
    const { timeoutSeconds, name, source, correlationKey, rules, ...rest } = options;
    const wait = checkWait({ timeoutSeconds, name, source, correlationKey, rules }, registry);
    if (!wait.ok) throw new Error(`can't park ${kind}: ${wait.error}`);
    return { insert: insertOf(kind, args, rest), wait: wait.value };
  }

  return {
    prepare,

    /** Enqueues a job: available at once, or scheduled where `runAt` is ahead. */
    async enqueue<N extends keyof K & string>(
      kind: N,
      args: ArgsInput<K, N>,
      enqueueOptions: EnqueueOptions = {},
    ): Promise<Enqueued> {
      const statement = prepare.enqueue(kind, args, enqueueOptions);
      const enqueued = await untilDecided(() => database.query(statement));
      const { queue = DEFAULT_QUEUE, runAt } = enqueueOptions;
      if (!enqueued.deduplicated && (runAt === undefined || runAt <= now())) nudge([queue]);
      return enqueued;
    },

    /**
     * Enqueues a job that is already parked, as its first attempt, with the callback it waits for. A webhook that came early for its
     * correlation key resolves it in the same transaction.
     */
    async park<N extends keyof K & string>(
      kind: N,
      args: ArgsInput<K, N>,
      parkOptions: ParkOptions = {},
    ): Promise<Parked> {
      const { insert, wait } = parkArguments(kind, args, parkOptions);
      const parked = await parkJob(database, registry, insert, wait).catch((thrown: unknown) => {
        if (!(thrown instanceof DatabaseError) || thrown.constraint !== ORDERING_KEY_INDEX) throw thrown;
        throw new Error(
          `can't park ${kind}: another job with this orderingKey is under way, and a parked one begins at once`,
          { cause: thrown },
        );
      });
      if (!parked.ok) throw new Error(`can't park ${kind}: ${parked.error}`);
      const { row, ended, moved } = parked.value;
      if (!row.deduplicated) observe(ended);
      nudge(queuesDue(row.followUps));
      if (moved !== null) afterMove(moved);
      return parkedOf(row, wait);
    },

    /** Cancels a job that hasn't ended; its follow-ups of `cancelled` are enqueued in the same statement. */
    cancel(id: string, { reason = DEFAULT_CANCEL_REASON } = {}): Promise<CancelResult> {
      return untilDecided(async () => {
        const planned = await prepare.cancel(id, { reason });
        if (planned.settled !== null) return planned.settled;
        const result = await database.query(planned.statement);
        if (result === null) return null;
        observe(planned.ended);
        if (result.status === "cancelled") nudge(queuesDue(result.followUps));
        return result;
      });
    },

    /**
     * Cancels every job of a queue that nobody works on: scheduled, available, retryable and waiting ones, each with its
     * callback and follow-ups in one statement. Running jobs, and those enqueued in the meantime, are left.
     *
     * @returns how many were cancelled, and which stayed because a follow-up of theirs couldn't be planned
     */
    async drain(queue: string, { reason = DEFAULT_CANCEL_REASON } = {}): Promise<Drained> {
      mustBeStorable(whyUnstorableText(reason, "reason"));
      const followUpFailed: JobId[] = [];
      let cancelled = 0;
      let after: JobId | null = null;
      for (;;) {
        const page: readonly JobReading[] = await database.query(readDrainable(queue, after));
        for (const reading of page) {
          after = reading.job.id;
          const planned = planCancelOf(registry, reading, reason);
          if (planned.settled !== null) followUpFailed.push(reading.job.id);
          // Stale where somebody claimed or moved it since the reading: it isn't ours to cancel any more.
          else if ((await database.query(planned.statement)) !== null) {
            cancelled++;
            observe(planned.ended);
          }
        }
        if (page.length < DRAIN_PAGE_ROWS) return { cancelled, followUpFailed };
      }
    },

    /** Starts a failed, cancelled or waiting job afresh: attempt 0, due now or at `runAt`, in its queue or another. */
    retry(id: string, retryOptions: RetryOptions = {}): Promise<RetryResult> {
      return untilDecided(async () => {
        const { retried, found } = await database.query(prepare.retry(id, retryOptions));
        if (retried) return { status: "retried" };
        if (found === null) return { status: "not_found" };
        return RETRIABLE_STATES.some((state) => state === found)
          ? null
          : { status: "not_retriable", state: found };
      });
    },

    /** Looks up a job; `null` where there is none (any more). */
    async getJob(id: string): Promise<JobRow | null> {
      return (await database.query(readJob(jobIdOf(id))))?.job ?? null;
    },
    /** Looks up the callbacks of a job, the oldest first. */
    async getCallbacks(id: string): Promise<readonly CallbackRow[]> {
      return database.query(readCallbacksOfJob(jobIdOf(id)));
    },
    /** Looks up the jobs that a job's outcomes enqueued, the oldest first. */
    async getFollowUps(id: string): Promise<readonly JobRow[]> {
      return database.query(readFollowUpsOfJob(jobIdOf(id)));
    },

    /** Completes a callback's job with a payload, or resumes its handler with it. Safe to repeat. */
    async completeCallback(id: string, body: CompleteOptions = {}): Promise<Resolution> {
      return resolve(id, completeAction(body));
    },
    /**
     * Does with a payload what the callback's rules say; where they complete it, or it has none, a handler that awaits it by its name
     * is resumed, and otherwise its job completes. Safe to repeat.
     */
    async resolveCallback(id: string, payload: Json = null): Promise<Resolution | Ignored> {
      mustBeStorable(whyUnstorable(payload, "payload"));
      const resolution = await resolveCallbackByRules(database, registry, callbackIdOf(id), payload);
      if (resolution.status === "moved") afterMove(resolution);
      return resolution;
    },
    /** Fails a callback's job for good. Safe to repeat. */
    async failCallback(id: string, error: string): Promise<Resolution> {
      return resolve(id, failAction(error));
    },
    /** Makes a callback's parked job available again, or fails it at its last attempt. Safe to repeat. */
    async retryCallback(id: string): Promise<Resolution> {
      return resolve(id, { type: "retry" });
    },
    /** Puts off a callback's time-out to `timeoutSeconds` from now. */
    async heartbeatCallback(id: string, timeoutSeconds: number): Promise<Extended> {
      return extendCallback(database, callbackIdOf(id), heartbeatSeconds(timeoutSeconds));
    },

    /** The inbox of webhooks: list, get, replay, replayAll. */
    deliveries: deliveriesOf(database, registry, afterMove),
    /** The dead letters: list, retry, purge. */
    deadLetters: deadLettersOf(database),
    /** The periodic jobs: list, pause, resume, trigger. */
    schedules: schedulesOf(database, registry, { now, nudge }),

    /** Sets some settings of a queue and leaves the others. */
    async configureQueue(queue: string, settings: Partial<QueueSettings>): Promise<void> {
      await database.query(configureQueue(queue, settings));
    },
  };
}
