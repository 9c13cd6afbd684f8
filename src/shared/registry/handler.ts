import type { Bindings } from "../env.ts";
import type { CallbackId, JobId } from "../ids.ts";
import type { JobRow } from "../job.ts";
import type { Json, JsonObject } from "../json.ts";
import type { Wait } from "../wait.ts";
import type { FollowUp } from "./follow-up.ts";

/**
 * How a handler ends its attempt. Returning nothing completes the job without a result; throwing fails the attempt, and the job is
 * retried with back-off while attempts are left, unless what was thrown is a {@link TerminalError}.
 */
export type HandlerOutcome =
  | { readonly type: "complete"; readonly result: Json }
  | { readonly type: "retry_after"; readonly seconds: number; readonly error: string }
  | { readonly type: "snooze"; readonly seconds: number }
  | { readonly type: "cancel"; readonly reason: string }
  | { readonly type: "wait_for_callback" };

/** Completes the job; the result is `job.result` for its follow-ups. */
export function complete(result: Json = null): HandlerOutcome {
  return { type: "complete", result };
}

/**
 * Ends the attempt and asks for the next one in `seconds` instead of after the back-off. At the last attempt the job fails.
 *
 * @param seconds 0 to 31,536,000; whole seconds aren't needed
 * @param error what to record as the attempt's error. Default: nothing is recorded
 */
export function retryAfter(seconds: number, error = ""): HandlerOutcome {
  return { type: "retry_after", seconds, error };
}

/** Not now: runs the job again in `seconds` (0 to 31,536,000). No attempt is spent, nothing follows. */
export function snooze(seconds: number): HandlerOutcome {
  return { type: "snooze", seconds };
}

/** Cancels the job, for a reason that is recorded. */
export function cancel(reason: string): HandlerOutcome {
  return { type: "cancel", reason };
}

/** Parks the job on the callback that `ctx.registerCallback` registered: the callback decides what becomes of the job. */
export function waitForCallback(): HandlerOutcome {
  return { type: "wait_for_callback" };
}

/** Thrown by a handler: the job fails for good, whatever attempts are left. */
export class TerminalError extends Error {
  override readonly name = "TerminalError";
}

/** Thrown by `ctx.waitForCallback` where the wait timed out: catch it, or let it fail the attempt. */
export class CallbackTimeoutError extends Error {
  override readonly name = "CallbackTimeoutError";
  readonly callback: string;

  constructor(callback: string) {
    super(`callback timed out: ${callback}`);
    this.callback = callback;
  }
}

/** A registered callback, and what the outside world needs to call back. */
export interface RegisteredCallback {
  readonly callbackId: CallbackId;
  /** POST here to complete the job; beside it `/fail`, `/retry`, `/heartbeat`. `null` where no base URL is configured. */
  readonly callbackUrl: string | null;
  /** For the X-Awa-Signature header; `null` where no secret is configured. */
  readonly signature: string | null;
  /** Where its source's provider sends the webhooks of this callback; `null` where it has no source, or no base URL is configured. */
  readonly webhookUrl: string | null;
}

/** What a handler waits for. */
export interface AwaitOptions extends Omit<Wait, "name"> {
  /**
   * Tells the outside world, once the callback is registered and before the job is parked. It isn't called again when the handler
   * runs again after the callback. After a crash it may be: give the outside world an idempotency key.
   */
  readonly start?: (callback: RegisteredCallback) => Promise<void> | void;
}

/** What a handler tells about how far it is; kept with the job, over retries, until it completes. */
export interface Progress {
  /** 0 to 100; values outside are clamped. */
  readonly percent?: number;
  readonly message?: string;
  /** Merged into what is there, key by key. */
  readonly metadata?: JsonObject;
}

/** What a handler gets. */
export interface HandlerContext<A = unknown> {
  /** The args through the kind's schema. */
  readonly args: A;
  /** The job as it was claimed; `job.attempt` counts this attempt. */
  readonly job: JobRow<"running">;
  /**
   * Aborted when going on is of no use: the deadline has passed, the job was cancelled or taken over by somebody else, or the
   * process is about to end. Hand it to `fetch`.
   */
  readonly signal: AbortSignal;
  /** The Worker's bindings; in a Node process, its environment. */
  readonly env: Bindings;

  /** Records progress; written with the next heartbeat, or with the end of the attempt. */
  setProgress(progress: Progress): void;
  /** Writes the progress now. @throws StaleAttemptError where the job isn't this attempt's any more */
  flushProgress(): Promise<void>;

  /**
   * Registers a callback, for a handler that then returns {@link waitForCallback}. A second one supersedes the first. A webhook that came
   * early for its correlation key resolves it in the same transaction.
   *
   * @throws StaleAttemptError where the job isn't this attempt's any more
   */
  registerCallback(options?: Wait): Promise<RegisteredCallback>;
  /** Takes the registered callback back. @returns whether there was one, pending, of this attempt */
  cancelCallback(): Promise<boolean>;
  /**
   * Waits for a callback that is completed with `"resume": true`, and returns its payload. The job is parked and this invocation
   * ends here: what comes after runs in a later one, which runs the handler from its beginning, with every wait that is over already
   * returning at once. So release what you hold before you wait, and give every wait of a handler a name of its own. No
   * attempt is spent.
   *
   * @param name 1 to 200 characters
   * @throws CallbackTimeoutError where the wait timed out, in this attempt
   */
  waitForCallback(name: string, options?: AwaitOptions): Promise<Json>;

  /**
   * Enqueues a job described with `registry.enqueue`, at once and whatever becomes of this attempt. An attempt that is repeated
   * enqueues it again: use `unique`, or a follow-up.
   *
   * @throws StaleAttemptError where the job isn't this attempt's any more
   * @throws Error that says what is wrong with the args or the options
   */
  enqueue(child: FollowUp): Promise<{ readonly jobId: JobId; readonly deduplicated: boolean }>;

  /**
   * The statement that completes this job with its follow-ups, to be run in a transaction of the handler's own, together with
   * its own rows: `{ text, values }` for any driver. Where the attempt is stale it raises, which aborts the whole transaction. The
   * handler returns as usual afterwards: the executor finds the job completed.
   *
   * @throws Error where the result can't be stored or a follow-up can't be planned
   */
  completion(result?: Json): {
    readonly text: string;
    readonly values: readonly (string | number | boolean | null | readonly string[])[];
  };
}

/** Runs a job. It may run more than once (a crash repeats it), so what it does to the world must bear repetition. */
export type Handler<A = unknown> = (
  ctx: HandlerContext<A>,
) => HandlerOutcome | undefined | void | Promise<HandlerOutcome | undefined> | Promise<void>;

/** Thrown by what a handler calls, where somebody else has ended its attempt: stop, nothing that it does counts any more. */
export class StaleAttemptError extends Error {
  override readonly name = "StaleAttemptError";

  constructor() {
    super("the attempt is stale: somebody else has ended it");
  }
}

/** How a kind is run. */
export interface HandlerOptions {
  /** The longest one attempt of this kind may run, in seconds, where the job itself doesn't say. Default: the queue's. */
  readonly deadlineSeconds?: number;
}

/** A handler with its options, types erased. */
export interface RegisteredHandler extends HandlerOptions {
  readonly run: Handler;
}

/** How the bundle runs a queue. */
export interface QueueOptions {
  /** Jobs that one process runs at the same time. 1 to 1000. Default 10. */
  readonly concurrency?: number;
  /** The longest one attempt may run, in seconds, where neither job nor kind says. Default: no limit. */
  readonly deadlineSeconds?: number;
}

/** A queue that the bundle runs. */
export interface RegisteredQueue {
  readonly queue: string;
  readonly concurrency: number;
  readonly deadlineSeconds: number | null;
}
