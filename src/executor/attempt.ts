import type { Claimed } from "../shared/db/statements/claim-jobs.ts";
import type { CallbackId } from "../shared/ids.ts";
import type { JobRow } from "../shared/job.ts";
import { isJsonObject, type Json, type JsonObject } from "../shared/json.ts";
import type { Progress } from "../shared/registry/handler.ts";
import type { Move } from "../shared/transitions.ts";

/** Why an attempt's signal is aborted. */
export type AbortCause = "deadline_exceeded" | "lease_lost" | "ended" | "shutdown";

/** What an aborted signal's `reason` is. */
export class AttemptAbortedError extends Error {
  override readonly name = "AbortError";
  readonly abortCause: AbortCause;

  constructor(abortCause: AbortCause) {
    super(
      {
        deadline_exceeded: "hard deadline exceeded",
        lease_lost: "the attempt was ended by somebody else",
        ended: "the attempt has ended",
        shutdown: "the process ends",
      }[abortCause],
    );
    this.abortCause = abortCause;
  }
}

/** One claimed job, from its claim to its end, as this process knows it. What counts is in the database, under the lease. */
export class Attempt {
  readonly job: JobRow<"running">;
  readonly keepsDeadLetters: boolean;
  /** The callback that this attempt has registered and not taken back. */
  callbackId: CallbackId | null = null;
  /** Moves that the handler may have committed itself: caller-owned completion. */
  readonly prepared: Move[] = [];
  /** When the last sign of life reached the database, on the clock. */
  lastBeatMs: number;
  readonly #abort = new AbortController();
  readonly #claimedAt: Date;
  readonly #claimedAtMs: number;
  readonly #clock: () => number;
  #progress: Json;
  #isProgressNew = false;

  /** @param claimedAtMs when the claim was sent, on the clock: a lease is never believed to be longer than it is */
  constructor({ job, now, keepsDeadLetters }: Claimed, clock: () => number, claimedAtMs: number) {
    this.job = job;
    this.keepsDeadLetters = keepsDeadLetters;
    this.#progress = job.progress;
    this.#claimedAt = now;
    this.#clock = clock;
    this.#claimedAtMs = clock();
    this.lastBeatMs = claimedAtMs;
  }

  get signal(): AbortSignal {
    return this.#abort.signal;
  }
  get abortCause(): AbortCause | null {
    const reason: unknown = this.signal.reason;
    return reason instanceof AttemptAbortedError ? reason.abortCause : null;
  }
  /** Tells the handler that going on is of no use. The first cause counts. */
  abort(cause: AbortCause): void {
    this.#abort.abort(new AttemptAbortedError(cause));
  }

  get durationMs(): number {
    return this.#clock() - this.#claimedAtMs;
  }
  /** The database's time, as far as this process can tell: that of the claim, and what has passed since. */
  get now(): Date {
    return new Date(this.#claimedAt.getTime() + Math.max(0, Math.round(this.durationMs)));
  }
  /** How long the attempt may go on, in milliseconds; `null`: no limit. */
  get msToDeadline(): number | null {
    const { deadlineAt } = this.job;
    return deadlineAt === null ? null : deadlineAt.getTime() - this.now.getTime();
  }

  get progress(): Json {
    return this.#progress;
  }
  setProgress({ percent, message, metadata }: Progress): void {
    const before: JsonObject = isJsonObject(this.#progress) ? this.#progress : {};
    const told = before.metadata ?? null;
    this.#progress = {
      ...before,
      ...(percent !== undefined && { percent: Math.min(100, Math.max(0, percent)) }),
      ...(message !== undefined && { message }),
      ...(metadata !== undefined && { metadata: { ...(isJsonObject(told) && told), ...metadata } }),
    };
    this.#isProgressNew = true;
  }
  /** The progress, if it hasn't been written since it was set; counts as written from then on, unless given back. */
  takeNewProgress(): Json | undefined {
    const taken = this.#isProgressNew ? this.#progress : undefined;
    this.#isProgressNew = false;
    return taken;
  }
  /** The write of what was taken failed: it is to be written again. */
  giveProgressBack(): void {
    this.#isProgressNew = true;
  }
}
