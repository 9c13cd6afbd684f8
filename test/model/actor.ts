import { AttemptAbortedError, Attempt as RealAttempt } from "../../src/executor/attempt.ts";
import type { ExecutorDeps } from "../../src/executor/deps.ts";
import { type Finished, finishAttempt } from "../../src/executor/finish-attempt.ts";
import { Heart } from "../../src/executor/heart.ts";
import { runAttempt } from "../../src/executor/run-attempt.ts";
import type { Database } from "../../src/shared/db/port.ts";
import type { Claimed } from "../../src/shared/db/statements/claim-jobs.ts";
import {
  CallbackTimeoutError,
  cancel,
  complete,
  type Handler,
  type HandlerContext,
  type HandlerOutcome,
  retryAfter,
  StaleAttemptError,
  snooze,
  TerminalError,
  waitForCallback,
} from "../../src/shared/registry/handler.ts";
import { type End, RESULTS, TEXTS } from "./attempt-rules.ts";

/** Never beats by itself. */
const NEVER_MS = 2 ** 31 - 1;

/** A handler that does what it is told: its calls come from outside, and so does its end. */
export class Actor {
  /** What its calls go through; each operation has its own. */
  database: Database;
  readonly attempt: RealAttempt;
  readonly finished: Promise<Finished | null>;
  readonly #deps: ExecutorDeps;
  readonly #context = Promise.withResolvers<HandlerContext>();
  readonly #end = Promise.withResolvers<() => HandlerOutcome>();

  /** @param begin tells the registry's handler who it is, before it is run */
  constructor(deps: ExecutorDeps, claimed: Claimed, begin: (actor: Actor) => void) {
    this.database = deps.database;
    const database: Database = {
      query: (statement) => this.database.query(statement),
      batch: (statements) => this.database.batch(statements),
    };
    this.#deps = { ...deps, database };
    this.attempt = new RealAttempt(claimed, deps.clock, deps.clock());
    begin(this);
    this.finished = runAttempt(this.#deps, this.attempt);
  }

  readonly run: Handler = async (context) => {
    this.#context.resolve(context);
    return (await this.#end.promise)();
  };

  /** Makes a call of its handler's. @returns what came of it; `stale`: it was told that its job isn't its any more */
  async call(work: (context: HandlerContext) => Promise<string>): Promise<string> {
    try {
      return await work(await this.#context.promise);
    } catch (thrown) {
      if (thrown instanceof StaleAttemptError) return "stale";
      throw thrown;
    }
  }

  async wait(label: string, key: string | null): Promise<string> {
    return this.call((context) =>
      Promise.race([
        context.waitForCallback(label, waitOf(key)).then(
          (payload) => `payload ${JSON.stringify(payload)}`,
          (thrown: unknown) => {
            if (thrown instanceof CallbackTimeoutError) return "timed out";
            if (isTaken(thrown)) return "taken";
            throw thrown;
          },
        ),
        this.finished.then((finished) => finished?.status ?? "a fault of ours"),
      ]),
    );
  }

  async beat(): Promise<string> {
    // Its signal may be aborted for another reason already, and the first one counts: a heart of its own looks at its own set.
    const heart = new Heart(this.#deps, NEVER_MS);
    const before = this.attempt.lastBeatMs;
    this.attempt.lastBeatMs = Number.NEGATIVE_INFINITY;
    heart.attempts.add(this.attempt);
    await heart.beat();
    const isAlive = this.attempt.lastBeatMs > Number.NEGATIVE_INFINITY;
    if (!isAlive) this.attempt.lastBeatMs = before;
    return isAlive ? "alive" : "stale";
  }

  async end(how: End): Promise<string> {
    await this.#context.promise;
    this.#end.resolve(() => {
      switch (how) {
        case "complete":
          return complete(RESULTS.returned);
        case "fail":
          throw new Error(TEXTS.fail);
        case "fail terminally":
          throw new TerminalError(TEXTS.terminal);
        case "retry later":
          return retryAfter(3600, TEXTS.retryLater);
        case "snooze":
          return snooze(3600);
        case "cancel":
          return cancel(TEXTS.cancel);
        case "wait":
          return waitForCallback();
        case "hand back":
          throw new AttemptAbortedError("shutdown");
      }
    });
    // The process is about to end, and the handler stops for it.
    if (how === "hand back") this.attempt.abort("shutdown");
    return (await this.finished)?.status ?? "a fault of ours";
  }

  /** Somebody who doesn't know that the attempt is over ends it once more. */
  async endAgain(): Promise<string> {
    return (await finishAttempt(this.#deps, this.attempt, { type: "complete", result: RESULTS.again }))
      .status;
  }
}

/** How a callback is asked for. */
export const waitOf = (key: string | null) => (key === null ? {} : { source: "shop", correlationKey: key });

/** Whether another callback waits for the correlation key: what parks or registers says so in words. */
export const isTaken = (thrown: unknown): boolean =>
  thrown instanceof Error && thrown.message.includes("another callback is waiting for this correlationKey");
