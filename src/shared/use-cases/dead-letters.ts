import { DatabaseError } from "../db/errors.ts";
import type { Database, Statement } from "../db/port.ts";
import {
  type BulkPage,
  DEAD_LETTER_PAGE_ROWS,
  type DeadLetterFilter,
  type DeadLetterPage,
  type PagePosition,
  purgeIfDeadLetter,
  readDeadLetters,
  retryIfDeadLetter,
} from "../db/statements/dead-letters.ts";
import type { RetryOptions } from "../db/statements/retry-job.ts";
import { type JobId, parseJobId } from "../ids.ts";
import { DEAD_LETTER_REASONS } from "../outcome.ts";
import { whyNoInteger, whyNoName, whyNoTags, whyNoTime } from "../registry/options.ts";

/** What a bulk move is for: dead letters that fit a filter with at least one condition, or, said by name, all of them. */
export type DeadLetterSelection = DeadLetterFilter | { readonly all: true };

/** Which dead letters to list. */
export interface DeadLetterQuery extends DeadLetterFilter {
  /** 1 to 1000. Default 100. */
  readonly limit?: number;
  /** The `next` of the page before. */
  readonly after?: string;
}

const DEFAULT_LIMIT = 100;
const MAX_LIMIT = 1000;
/** A page that ran into a unique key which was being taken is run again: its new snapshot sees the holder. */
const MAX_TRIES = 3;

/**
 * What an operator does with dead letters: jobs that failed for good, on queues that keep them. Each method rejects with a
 * DatabaseError where the database failed, and with an Error that says what is wrong where an argument can't be.
 */
export function deadLettersOf(database: Database) {
  return {
    /** Lists them by job id, a page at a time. A page is shorter than its limit where the jobs are large. */
    async list({ limit = DEFAULT_LIMIT, after, ...filter }: DeadLetterQuery = {}): Promise<DeadLetterPage> {
      mustBe(whyNoInteger(limit, "limit", 1, MAX_LIMIT));
      const start = after === undefined ? null : jobIdOf(after, "after");
      return database.query(readDeadLetters(checked(filter), start, limit));
    },

    /**
     * Starts them afresh: attempt 0, due at once or at `runAt`, in their queue or another. Those whose unique key is held by a live job
     * are skipped. Safe to repeat.
     */
    async retry(
      selection: DeadLetterSelection,
      options: RetryOptions = {},
    ): Promise<{ readonly retried: number; readonly skipped: number }> {
      const filter = filterOf(selection);
      mustBe(whyNoRetryOptions(options));
      const { picked, done } = await bulk(database, (position) =>
        retryIfDeadLetter(filter, position, options),
      );
      return { retried: done, skipped: picked - done };
    },

    /** Deletes them with their callbacks, for good. */
    async purge(selection: DeadLetterSelection): Promise<{ readonly purged: number }> {
      const filter = filterOf(selection);
      const { done } = await bulk(database, (position) => purgeIfDeadLetter(filter, position));
      return { purged: done };
    },
  };
}

/** Says why a job can't be retried like that; `null` where it can. */
export function whyNoRetryOptions({ queue, priority, runAt }: RetryOptions): string | null {
  return (
    (queue === undefined ? null : whyNoName(queue, "queue")) ??
    (priority === undefined ? null : whyNoInteger(priority, "priority", 1, 4)) ??
    (runAt === undefined ? null : whyNoTime(runAt, "runAt"))
  );
}

/** Runs pages by job id until one comes back short. What became a dead letter meanwhile is left for the next call. */
async function bulk(
  database: Database,
  page: (position: PagePosition) => Statement<BulkPage>,
): Promise<{ readonly picked: number; readonly done: number }> {
  let position: PagePosition = { after: null, upTo: null };
  const sum = { picked: 0, done: 0 };
  for (let tries = 1; ; ) {
    try {
      const { picked, done, last, upTo } = await database.query(page(position));
      sum.picked += picked;
      sum.done += done;
      if (picked < DEAD_LETTER_PAGE_ROWS) return sum;
      position = { after: last, upTo };
      tries = 1;
    } catch (thrown) {
      const met =
        thrown instanceof DatabaseError &&
        (thrown.kind === "unique_violation" || thrown.kind === "contended");
      if (!met || tries++ >= MAX_TRIES) throw thrown;
    }
  }
}

function filterOf(selection: DeadLetterSelection): DeadLetterFilter {
  if (!("all" in selection)) {
    const filter = checked(selection);
    if (Object.values(filter).every((condition) => condition === undefined)) {
      throw new Error("give a condition, or { all: true } for every dead letter");
    }
    return filter;
  }
  const { all, ...rest } = selection;
  if (all !== true) throw new Error("all can only be true");
  if (Object.keys(rest).length > 0) throw new Error("all: true and a condition contradict each other");
  return {};
}

function checked(filter: DeadLetterFilter): DeadLetterFilter {
  const { queue, kind, reason, tag, before, ids, ...unknown } = filter;
  const strange = Object.keys(unknown);
  // A misspelt condition would be none, and the rest of them mean more jobs than was meant.
  mustBe(strange.length === 0 ? null : `no such condition: ${strange.join(", ")}`);
  mustBe(queue === undefined ? null : whyNoName(queue, "queue"));
  mustBe(kind === undefined ? null : whyNoName(kind, "kind"));
  mustBe(tag === undefined ? null : whyNoTags([tag]));
  mustBe(before === undefined ? null : whyNoTime(before, "before"));
  mustBe(
    reason === undefined || DEAD_LETTER_REASONS.includes(reason)
      ? null
      : `reason must be one of ${DEAD_LETTER_REASONS.join(", ")}`,
  );
  // A null would be no condition to the statement, and so mean every dead letter.
  mustBe(ids === undefined || Array.isArray(ids) ? null : "ids must be a list of job ids");
  for (const id of ids ?? []) jobIdOf(id, "ids");
  return filter;
}

function jobIdOf(text: string, at: string): JobId {
  const id = parseJobId(text);
  if (id === null) throw new Error(`${at}: a job id is a whole number, as decimal digits`);
  return id;
}

function mustBe(problem: string | null): void {
  if (problem !== null) throw new Error(problem);
}
