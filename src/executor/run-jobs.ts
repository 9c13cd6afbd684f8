import { DatabaseError } from "../shared/db/errors.ts";
import { type Claimed, claimIfDue, type Wanted } from "../shared/db/statements/claim-jobs.ts";
import type { RegisteredQueue } from "../shared/registry/handler.ts";
import { nameOf } from "../shared/thrown.ts";
import { Attempt } from "./attempt.ts";
import type { ExecutorDeps } from "./deps.ts";
import { finishAttempt } from "./finish-attempt.ts";
import { Heart } from "./heart.ts";
import { Latch } from "./latch.ts";
import { runAttempt } from "./run-attempt.ts";
import { sleep } from "./sleep.ts";

/** What is run, and for how long. */
export interface RunOptions {
  readonly queues: readonly RegisteredQueue[];
  /** Jobs to run at the most. Default: no limit. */
  readonly maxJobs?: number;
  /** Asked before each claim. What runs by then is waited for. */
  readonly goesOn: () => boolean;
  /**
   * Set when it is worth looking again: a long-lived process waits for it when nothing is due. Absent: the run ends when nothing is due
   * and nothing runs any more.
   */
  readonly wakeUp?: Latch;
  /** Set once the last claim is over: what it brought runs, or is handed back. Whoever ends the process early waits for that. */
  readonly claimedLast?: Latch;
  /** Default: one for this run. */
  readonly heart?: Heart;
}

/** What a run did. */
export interface RunReport {
  readonly claimed: number;
  /** Attempts whose end was written. */
  readonly finished: number;
  /** Attempts that somebody else ended, or whose end couldn't be written. */
  readonly lost: number;
  /** Whether jobs may be left that are due. */
  readonly exhausted: boolean;
}

/** Ends that come together free their places for one claim, not for one each. In milliseconds. */
const GATHER_MS = 2;
/** Before a long-lived process claims again after a claim that failed, in milliseconds. */
const CLAIM_PAUSE_MS = 1_000;
/** A claim that met another at an ordering key, or was rolled back, is made again: it sees more then. */
const MAX_CLAIM_TRIES = 3;

/**
 * Claims what is due and runs it, as many jobs at a time as each queue allows: the one path by which jobs are run, in the tick, right
 * after a resolution, and in a long-lived process.
 *
 * @throws DatabaseError where a claim failed and nobody waits for a wake-up; what was running has ended by then
 */
export async function runJobs(deps: ExecutorDeps, options: RunOptions): Promise<RunReport> {
  const { queues, maxJobs = Number.POSITIVE_INFINITY, goesOn, heart = new Heart(deps) } = options;
  const isLongLived = options.wakeUp !== undefined;
  /** Something may be due that no claim has seen: the end of a job, which may have left follow-ups, is such news too. */
  const news = options.wakeUp ?? new Latch();
  const running = new Map<Promise<void>, string>();
  /** Queues that gave as many jobs as were asked for, and so may have more. */
  const unfinished = new Set<string>();
  const counts = { claimed: 0, finished: 0, lost: 0 };

  function start(claimed: Claimed, claimedAtMs: number): void {
    const attempt = new Attempt(claimed, deps.clock, claimedAtMs);
    heart.add(attempt);
    counts.claimed++;
    const run = runAttempt(deps, attempt).then((finished) => {
      if (finished?.status === "moved") counts.finished++;
      else counts.lost++;
      heart.delete(attempt);
      running.delete(run);
      news.set();
    });
    running.set(run, attempt.job.queue);
  }

  /** The places that are free, by queue. */
  function freePlaces(): Wanted[] {
    const places: Wanted[] = [];
    let left = maxJobs - counts.claimed;
    for (const { queue, concurrency, deadlineSeconds } of queues) {
      const taken = [...running.values()].filter((name) => name === queue).length;
      const free = Math.min(concurrency - taken, left);
      if (free <= 0) continue;
      places.push({ queue, deadlineSeconds, maxJobs: free });
      left -= free;
    }
    return places;
  }

  /** Fills free places. `false`: the database failed, and it is worth trying again. */
  async function fill(places: readonly Wanted[]): Promise<boolean> {
    const claimedAtMs = deps.clock();
    const claimed = await claim(deps, places).catch((thrown: unknown) => {
      if (!isLongLived) throw thrown;
      const isKnown = thrown instanceof DatabaseError;
      deps.log({
        level: "error",
        event: "claim_failed",
        sqlState: isKnown ? thrown.sqlState : undefined,
        // Anything else is a fault of ours, such as a row that can't be read; it mustn't end the process with all that it runs.
        reason: isKnown ? thrown.message : `unexpected ${nameOf(thrown)}`,
      });
      return null;
    });
    if (claimed === null) return false;
    if (isLongLived && !goesOn()) {
      // Told to stop while the claim was under way: these haven't begun, and somebody else can have them at once.
      const attempts = claimed.map((one) => new Attempt(one, deps.clock, claimedAtMs));
      await Promise.all(attempts.map((attempt) => finishAttempt(deps, attempt, { type: "hand_back" })));
      return true;
    }
    for (const one of claimed) start(one, claimedAtMs);
    for (const { queue, maxJobs: asked } of places) {
      if (claimed.filter(({ job }) => job.queue === queue).length >= asked) unfinished.add(queue);
      else unfinished.delete(queue);
    }
    return true;
  }

  try {
    while (counts.claimed < maxJobs && goesOn()) {
      // Before the claim: what comes while it is under way may be too late for it.
      news.reset();
      const places = freePlaces();
      if (places.length > 0 && !(await fill(places))) {
        await sleep(CLAIM_PAUSE_MS);
        continue;
      }
      if (freePlaces().some(({ queue }) => unfinished.has(queue))) continue;
      if (running.size === 0 && !isLongLived && !news.isSet) break;
      await news.wait();
      if (running.size > 0) await sleep(GATHER_MS);
    }
  } finally {
    options.claimedLast?.set();
    await Promise.all(running.keys());
  }
  return { ...counts, exhausted: unfinished.size > 0 };
}

async function claim(
  { database, registry }: ExecutorDeps,
  places: readonly Wanted[],
): Promise<readonly Claimed[]> {
  for (let tries = 1; ; tries++) {
    try {
      return await database.query(claimIfDue(places, registry.kindDeadlines()));
    } catch (thrown) {
      const met =
        thrown instanceof DatabaseError &&
        (thrown.kind === "unique_violation" || thrown.kind === "contended");
      if (!met || tries >= MAX_CLAIM_TRIES) throw thrown;
    }
  }
}
