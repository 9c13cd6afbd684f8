import { DatabaseError } from "../shared/db/errors.ts";
import {
  cancelCallbackIfRunning,
  type EndedWait,
  type NewCallback,
  readEndedWaits,
} from "../shared/db/statements/attempt-callbacks.ts";
import { beatIfRunning } from "../shared/db/statements/beat-jobs.ts";
import { insertIfRunning } from "../shared/db/statements/insert-child.ts";
import { moveOrRaise } from "../shared/db/statements/move-job.ts";
import { applyAttemptEnd } from "../shared/end-attempt.ts";
import { newCallbackId } from "../shared/ids.ts";
import { type Json, whyUnstorable } from "../shared/json.ts";
import {
  type AwaitOptions,
  CallbackTimeoutError,
  type HandlerContext,
  type RegisteredCallback,
  StaleAttemptError,
} from "../shared/registry/handler.ts";
import { checkJobInsert } from "../shared/registry/job-insert.ts";
import { whyNoName } from "../shared/registry/options.ts";
import { planFollowUps } from "../shared/registry/plan.ts";
import { signCallbackId } from "../shared/signature.ts";
import { checkWait, type Wait, webhookUrl } from "../shared/wait.ts";
import type { Attempt } from "./attempt.ts";
import type { ExecutorDeps } from "./deps.ts";
import { type Finished, finishAttempt } from "./finish-attempt.ts";
import { registerCallback } from "./register-callback.ts";

const MAX_ROUNDS = 5;

/**
 * What a handler gets for one attempt.
 *
 * @param args through the kind's schema
 * @param onSuspend told of the end of an invocation within `waitForCallback`, from which the handler doesn't return
 */
export function handlerContext(
  deps: ExecutorDeps,
  attempt: Attempt,
  args: unknown,
  onSuspend: (finished: Finished) => void,
): HandlerContext {
  const { database, registry } = deps;
  const { job } = attempt;
  const guard = { jobId: job.id, runLease: job.runLease };
  let waits: Promise<readonly EndedWait[]> | null = null;
  // One registration after the other: a job has one pending callback, and the last one asked for is to be it.
  let registering: Promise<unknown> = Promise.resolve();
  // And one wait after the other, also where a handler begins several at once.
  let waiting: Promise<unknown> = Promise.resolve();

  function stale(): StaleAttemptError {
    attempt.abort("lease_lost");
    return new StaleAttemptError();
  }

  function register(wait: Wait, isAwaited: boolean): Promise<RegisteredCallback> {
    const checked = checkWait(wait, registry);
    if (!checked.ok) throw new Error(checked.error);
    const id = newCallbackId();
    const callback = { ...checked.value, id, awaitedInAttempt: isAwaited ? job.attempt : null };
    const registered = registering.then(async () => {
      if (!(await registerCallback(deps, attempt, callback))) throw stale();
      attempt.callbackId = id;
      return addressOf(deps, callback);
    });
    registering = registered.catch(() => undefined);
    return registered;
  }

  /** What became of a wait: the newest that was resumed, in whatever attempt; or that it timed out in this one. */
  async function lookUp(name: string): Promise<EndedWait | null> {
    waits ??= database.query(readEndedWaits(job.id));
    const mine = (await waits).filter((wait) => wait.name === name);
    return (
      mine.findLast((wait) => wait.state === "resumed") ??
      mine.findLast((wait) => wait.awaitedInAttempt === job.attempt) ??
      null
    );
  }

  async function awaitByName(name: string, options: AwaitOptions): Promise<Json> {
    const { start, ...wait } = options;
    for (;;) {
      const over = await lookUp(name);
      if (over?.state === "resumed") return over.payload;
      if (over?.state === "expired") throw new CallbackTimeoutError(name);
      const registered = await register({ ...wait, name }, true);
      await start?.(registered);
      const { callbackId } = registered;
      const finished = await finishAttempt(deps, attempt, { type: "wait", callbackId });
      if (finished.status !== "resumed_early") {
        onSuspend(finished);
        // The handler ends here. Nothing may run on: not its next lines, and not a catch that would take this for an error.
        return new Promise<never>(() => undefined);
      }
      attempt.callbackId = null;
      waits = null;
    }
  }

  return {
    args,
    job,
    signal: attempt.signal,
    env: deps.env,

    setProgress(progress) {
      const { percent, metadata, message } = progress;
      const wrong =
        whyUnstorable(percent ?? null, "percent") ??
        whyUnstorable(message ?? null, "message") ??
        whyUnstorable(metadata ?? null, "metadata");
      if (wrong !== null) throw new Error(wrong);
      attempt.setProgress(progress);
    },

    async flushProgress() {
      const progress = attempt.takeNewProgress();
      if (progress === undefined) return;
      try {
        const alive = await database.query(beatIfRunning([{ ...guard, progress }]));
        if (!alive.has(job.id)) throw stale();
      } catch (thrown) {
        attempt.giveProgressBack();
        throw thrown;
      }
    },

    async registerCallback(wait = {}) {
      return register(wait, false);
    },

    async cancelCallback() {
      await registering;
      const { callbackId } = attempt;
      if (callbackId === null) return false;
      attempt.callbackId = null;
      return database.query(cancelCallbackIfRunning(guard, callbackId));
    },

    async waitForCallback(name, options = {}) {
      const wrong = whyNoName(name, "name");
      if (wrong !== null) throw new Error(wrong);
      const payload = waiting.then(() => awaitByName(name, options));
      waiting = payload.catch(() => undefined);
      return payload;
    },

    async enqueue(child) {
      const insert = checkJobInsert(registry.kinds, child, attempt.now);
      if (!insert.ok) throw new Error(`can't enqueue ${child.kind}: ${insert.error}`);
      for (let round = 0; round < MAX_ROUNDS; round++) {
        const result = await database.query(insertIfRunning(guard, insert.value));
        if (result === "stale") throw stale();
        if (result !== null) return result;
      }
      throw new DatabaseError("contended", null);
    },

    completion(result = null) {
      const wrong = whyUnstorable(result, "result");
      if (wrong !== null) throw new Error(wrong);
      const { now, keepsDeadLetters, progress, callbackId } = attempt;
      const end = { type: "complete", result } as const;
      const move = applyAttemptEnd(job, end, { now, keepsDeadLetters, progress, chance: 0 });
      const followUps = move.ended === null ? null : planFollowUps(registry, move.ended, now);
      if (followUps?.ok === false) throw new Error(followUps.error.reason);
      attempt.prepared.push(move);
      const { text, values } = moveOrRaise(
        { ...guard, state: "running", callbackId },
        move,
        { state: "cancelled", payload: undefined, error: null },
        followUps?.value ?? [],
        now,
      );
      return { text, values };
    },
  };
}

function addressOf({ callbacks }: ExecutorDeps, { id: callbackId, source }: NewCallback): RegisteredCallback {
  if (callbacks === null) return { callbackId, callbackUrl: null, signature: null, webhookUrl: null };
  const { baseUrl, pathPrefix, secrets } = callbacks;
  return {
    callbackId,
    callbackUrl: baseUrl === null ? null : `${baseUrl}${pathPrefix}/${callbackId}/complete`,
    signature: secrets[0] === undefined ? null : signCallbackId(secrets[0], callbackId),
    webhookUrl: baseUrl === null || source === null ? null : webhookUrl(baseUrl, source, callbackId),
  };
}
