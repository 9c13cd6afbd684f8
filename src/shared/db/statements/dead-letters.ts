import type { JobId } from "../../ids.ts";
import type { JobRow } from "../../job.ts";
import type { DeadLetterReason } from "../../outcome.ts";
import type { SqlValue, Statement } from "../port.ts";
import { decodeJob, jobColumns, jobId, nullable, number, text } from "../rows.ts";
import { wakeUpSql } from "./insert-jobs.ts";
import { END_CALLBACKS_SQL, type RetryOptions, retryValues, startAfreshSql } from "./retry-job.ts";

/** Which dead letters: those that fit every condition given. */
export interface DeadLetterFilter {
  readonly queue?: string;
  readonly kind?: string;
  readonly reason?: DeadLetterReason;
  /** One of the job's tags. */
  readonly tag?: string;
  /** Marked before this time. */
  readonly before?: Date;
  readonly ids?: readonly string[];
}

/** Dead letters that one statement moves or deletes at the most, */
export const DEAD_LETTER_PAGE_ROWS = 1000;
/** and the bytes that one statement reads: an answer of Neon's is 10 MB at the most. */
const PAGE_BYTES = 4_000_000;

/** Where a page begins, and which dead letters count: those that were there when the first page was taken. */
export interface PagePosition {
  readonly after: JobId | null;
  /** As ISO 8601 with its microseconds, whatever the session's date style. */
  readonly upTo: string | null;
}

/** A page of dead letters, the oldest job first. */
export interface DeadLetterPage {
  readonly jobs: readonly JobRow<"failed">[];
  /** Where the next page begins; `null`: there is none. */
  readonly next: JobId | null;
}

/** What a page of a bulk move came to. */
export interface BulkPage {
  /** Dead letters that fitted. Fewer than a page: there are no more. */
  readonly picked: number;
  readonly done: number;
  readonly last: JobId | null;
  readonly upTo: string;
}

/** The dead letters `j` that a filter means; its parameters are $1 to $8. */
const FITS = `j.dead_lettered_at IS NOT NULL
    AND ($1::text IS NULL OR j.queue = $1::text)
    AND ($2::text IS NULL OR j.kind = $2::text)
    AND ($3::text IS NULL OR j.dead_letter_reason = $3::text)
    AND ($4::text IS NULL OR $4::text = ANY (j.tags))
    AND ($5::timestamptz IS NULL OR j.dead_lettered_at < $5::timestamptz)
    AND ($6::bigint[] IS NULL OR j.id = ANY ($6::bigint[]))
    AND ($7::bigint IS NULL OR j.id > $7::bigint)
    AND j.dead_lettered_at <= coalesce($8::timestamptz, now())`;

function valuesOf(
  { queue, kind, reason, tag, before, ids }: DeadLetterFilter,
  position: PagePosition,
): SqlValue[] {
  return [
    queue ?? null,
    kind ?? null,
    reason ?? null,
    tag ?? null,
    before?.toISOString() ?? null,
    ids ?? null,
    position.after,
    position.upTo,
  ];
}

/** Reads dead letters, by job id, from after a given one; a page by rows and bytes, one row at the least. */
export function readDeadLetters(
  filter: DeadLetterFilter,
  after: JobId | null,
  limit: number,
): Statement<DeadLetterPage> {
  return {
    text: READ_SQL,
    values: [...valuesOf(filter, { after, upTo: null }), limit],
    decode: (rows) => {
      const jobs = rows.map((row) => {
        const job = decodeJob(row);
        if (job.state !== "failed") throw new Error(`dead letter ${job.id} is ${job.state}`);
        return job;
      });
      return { jobs, next: rows.at(-1)?.more === true ? (jobs.at(-1)?.id ?? null) : null };
    },
  };
}

const READ_SQL = `
WITH found AS MATERIALIZED (
  SELECT j.* FROM awa_edge.jobs j WHERE ${FITS} ORDER BY j.id LIMIT $9::int + 1
), sized AS (
  SELECT f.*, row_number() OVER w AS place, sum(octet_length(f::text)) OVER w AS bytes, count(*) OVER () AS found
  FROM found f WINDOW w AS (ORDER BY f.id)
), page AS (
  SELECT * FROM sized WHERE place = 1 OR (place <= $9::int AND bytes <= ${PAGE_BYTES})
)
SELECT ${jobColumns("p")}, p.found > count(*) OVER () AS more FROM page p ORDER BY p.id`;

/**
 * Starts a page of dead letters afresh. One whose unique key a live job holds is left as it is; of several with the same key the
 * first is taken.
 *
 * Guard: still a dead letter, held under FOR UPDATE SKIP LOCKED and so looked at again. A key that is taken at this very moment
 * makes the statement fail with a unique_violation: run again, it sees its holder.
 */
export function retryIfDeadLetter(
  filter: DeadLetterFilter,
  position: PagePosition,
  options: RetryOptions,
): Statement<BulkPage> {
  return {
    text: RETRY_SQL,
    values: [...valuesOf(filter, position), DEAD_LETTER_PAGE_ROWS, ...retryValues(options)],
    decode: decodeBulk,
  };
}

/** Deletes a page of dead letters with their callbacks. Guard: as in {@link retryIfDeadLetter}. */
export function purgeIfDeadLetter(filter: DeadLetterFilter, position: PagePosition): Statement<BulkPage> {
  return {
    text: PURGE_SQL,
    values: [...valuesOf(filter, position), DEAD_LETTER_PAGE_ROWS],
    decode: decodeBulk,
  };
}

function decodeBulk([row = {}]: Parameters<Statement<BulkPage>["decode"]>[0]): BulkPage {
  return {
    picked: number(row, "picked"),
    done: number(row, "done"),
    last: nullable(row, "last", jobId),
    upTo: text(row, "up_to"),
  };
}

const PICKED_SQL = `
WITH picked AS MATERIALIZED (
  SELECT j.id, j.unique_key, j.unique_states
  FROM awa_edge.jobs j
  WHERE ${FITS}
  ORDER BY j.id
  LIMIT $9::int
  FOR UPDATE OF j SKIP LOCKED
)`;
const REPORT_SQL = `(SELECT count(*) FROM picked) AS picked, (SELECT max(id) FROM picked) AS last,
  to_json(coalesce($8::timestamptz, now()))#>>'{}' AS up_to`;

const TARGET = "CASE WHEN $12::timestamptz > now() THEN 'scheduled' ELSE 'available' END";
// `claims` says whether the job would take back a unique key that it had let go of.
const RETRY_SQL = `${PICKED_SQL}, claims AS (
  SELECT picked.*, coalesce(${TARGET} = ANY (unique_states) AND NOT 'failed' = ANY (unique_states), false) AS takes_key
  FROM picked
), free AS MATERIALIZED (
  SELECT id FROM (
    SELECT claims.*, row_number() OVER (PARTITION BY unique_key, takes_key ORDER BY id) AS place FROM claims) placed
  WHERE NOT takes_key OR (place = 1 AND NOT EXISTS (SELECT FROM awa_edge.jobs o
    WHERE o.unique_key = placed.unique_key AND o.state = ANY (o.unique_states) AND o.id <> placed.id))
), retried AS (
  UPDATE awa_edge.jobs j SET ${startAfreshSql(10)}
  FROM free
  WHERE j.id = free.id AND j.dead_lettered_at IS NOT NULL
  RETURNING j.id, j.queue, j.state
), ended AS (${END_CALLBACKS_SQL}
), wake_up AS (
  ${wakeUpSql("retried")}
)
SELECT ${REPORT_SQL}, (SELECT count(*) FROM retried) AS done, (SELECT count(*) FROM wake_up) AS woken`;

const PURGE_SQL = `${PICKED_SQL}, purged AS (
  DELETE FROM awa_edge.jobs j USING picked WHERE j.id = picked.id AND j.dead_lettered_at IS NOT NULL RETURNING j.id
)
SELECT ${REPORT_SQL}, (SELECT count(*) FROM purged) AS done`;
