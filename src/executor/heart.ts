import { DatabaseError } from "../shared/db/errors.ts";
import type { Database } from "../shared/db/port.ts";
import { beatIfRunning, MAX_BEATS } from "../shared/db/statements/beat-jobs.ts";
import { HEARTBEAT_STALE_SECONDS } from "../shared/db/statements/rescue-jobs.ts";
import type { Log } from "../shared/log.ts";
import type { Attempt } from "./attempt.ts";

/** Between two signs of life, in milliseconds: three fit into the time after which a worker is presumed dead. */
export const HEARTBEAT_INTERVAL_MS = (HEARTBEAT_STALE_SECONDS * 1000) / 3;
/** The longest that a timer can wait; for a longer time it is set again. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/** What the heart works with. */
export interface HeartDeps {
  readonly database: Database;
  readonly log: Log;
  readonly clock: () => number;
}

/**
 * The attempts that this process runs: keeps them alive in the database, and tells their handlers when going on is of no use
 * any more. Runs no timer while there are none.
 */
export class Heart {
  readonly attempts = new Set<Attempt>();
  readonly #deps: HeartDeps;
  readonly #intervalMs: number;
  readonly #deadlines = new Map<Attempt, ReturnType<typeof setTimeout>>();
  #timer: ReturnType<typeof setInterval> | undefined;
  #isBeating = false;

  constructor(deps: HeartDeps, intervalMs: number = HEARTBEAT_INTERVAL_MS) {
    this.#deps = deps;
    this.#intervalMs = intervalMs;
  }

  add(attempt: Attempt): void {
    this.attempts.add(attempt);
    this.#timer ??= setInterval(() => void this.beat(), this.#intervalMs);
    this.#watchDeadline(attempt);
  }

  #watchDeadline(attempt: Attempt): void {
    const { msToDeadline } = attempt;
    if (msToDeadline === null) return;
    const timer = setTimeout(
      () => {
        if (msToDeadline > MAX_TIMER_MS) this.#watchDeadline(attempt);
        else attempt.abort("deadline_exceeded");
      },
      Math.min(Math.max(0, msToDeadline), MAX_TIMER_MS),
    );
    this.#deadlines.set(attempt, timer);
  }

  delete(attempt: Attempt): void {
    this.attempts.delete(attempt);
    const deadline = this.#deadlines.get(attempt);
    if (deadline !== undefined) clearTimeout(deadline);
    this.#deadlines.delete(attempt);
    if (this.attempts.size > 0 || this.#timer === undefined) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  /** Somebody else says that an attempt has ended. */
  abortIfOurs(jobId: string, runLease: string): void {
    for (const attempt of this.attempts) {
      if (attempt.job.id === jobId && attempt.job.runLease === runLease) attempt.abort("lease_lost");
    }
  }

  /** One round of signs of life. Never rejects. */
  async beat(): Promise<void> {
    if (this.#isBeating) return;
    this.#isBeating = true;
    try {
      const attempts = [...this.attempts];
      for (let i = 0; i < attempts.length; i += MAX_BEATS)
        await this.#beatFor(attempts.slice(i, i + MAX_BEATS));
    } finally {
      this.#isBeating = false;
    }
  }

  async #beatFor(attempts: readonly Attempt[]): Promise<void> {
    const { database, log, clock } = this.#deps;
    const sentAtMs = clock();
    const beats = attempts.map((attempt) => ({
      jobId: attempt.job.id,
      runLease: attempt.job.runLease,
      progress: attempt.takeNewProgress(),
    }));
    try {
      const alive = await database.query(beatIfRunning(beats));
      for (const attempt of attempts) {
        if (alive.has(attempt.job.id)) attempt.lastBeatMs = sentAtMs;
        else if (this.attempts.has(attempt)) attempt.abort("lease_lost");
      }
    } catch (thrown) {
      for (const [i, attempt] of attempts.entries()) {
        if (beats[i]?.progress !== undefined) attempt.giveProgressBack();
        // By now somebody else may have been given the job.
        if (clock() - attempt.lastBeatMs >= HEARTBEAT_STALE_SECONDS * 1000) attempt.abort("lease_lost");
      }
      const reason = thrown instanceof DatabaseError ? thrown.message : "unexpected error";
      log({ level: "error", event: "heartbeat_failed", reason });
    }
  }
}
