import { AttemptAbortedError, type Attempt as RealAttempt } from "../../src/executor/attempt.ts";
import type { ExecutorDeps } from "../../src/executor/deps.ts";
import { type Finished, finishAttempt } from "../../src/executor/finish-attempt.ts";
import { runAttempt } from "../../src/executor/run-attempt.ts";
import {
  cancel,
  complete,
  type Handler,
  type HandlerContext,
  type HandlerOutcome,
  retryAfter,
  snooze,
  TerminalError,
  waitForCallback,
} from "../../src/shared/registry/handler.ts";
import { type End, TEXTS } from "./job-rules.ts";

/** A handler that does what it is told: its calls come from outside, and so does its end. */
export class Actor {
  readonly attempt: RealAttempt;
  readonly finished: Promise<Finished | null>;
  readonly context: Promise<HandlerContext>;
  readonly #deps: ExecutorDeps;
  #tellContext: (context: HandlerContext) => void = () => undefined;
  #tellEnd: (end: () => HandlerOutcome) => void = () => undefined;

  constructor(deps: ExecutorDeps, attempt: RealAttempt, begin: (actor: Actor) => void) {
    this.#deps = deps;
    this.attempt = attempt;
    this.context = new Promise((resolve) => {
      this.#tellContext = resolve;
    });
    begin(this);
    this.finished = runAttempt(deps, attempt);
  }

  readonly run: Handler = async (context) => {
    const end = new Promise<() => HandlerOutcome>((resolve) => {
      this.#tellEnd = resolve;
    });
    this.#tellContext(context);
    return (await end)();
  };

  async end(how: End): Promise<string> {
    await this.context;
    this.#tellEnd(() => {
      switch (how) {
        case "complete":
          return complete(1);
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
          // The process is about to end, and the handler stops for it.
          this.attempt.abort("shutdown");
          throw new AttemptAbortedError("shutdown");
      }
    });
    return (await this.finished)?.status ?? "a fault of ours";
  }

  /** Somebody who doesn't know that the attempt is over ends it once more. */
  async endAgain(): Promise<string> {
    return (await finishAttempt(this.#deps, this.attempt, { type: "complete", result: 3 })).status;
  }
}
