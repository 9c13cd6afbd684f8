import type { JobRow } from "../../job.ts";
import type { Statement } from "../port.ts";
import { date, decodeJob, jobColumns } from "../rows.ts";

/** How many jobs to claim from which queue. */
export interface Wanted {
  readonly queue: string;
  readonly maxJobs: number;
  /** The longest one attempt may run, in seconds, where neither the job nor its kind says; `null`: no limit. */
  readonly deadlineSeconds: number | null;
}

/** A job that is running now, under a lease of its own. */
export interface Claimed {
  readonly job: JobRow<"running">;
  /** The database's clock at the claim, in whole milliseconds. */
  readonly now: Date;
  readonly keepsDeadLetters: boolean;
}

/**
 * SQL: where a job `j` stands in its queue: a job of priority p where one of priority 1 would that came due p - 1 minutes later. The index
 * jobs_due is on this very expression.
 */
export const PLACE = "(j.run_at AT TIME ZONE 'UTC') + (j.priority - 1) * interval '60 seconds'";
/** How far a place can be ahead of its job's run_at: the lowest priority's. */
const MAX_DELAY = "interval '180 seconds'";
/** Claimed jobs together, in bytes: an answer of Neon's is 10 MB at the most. */
const MAX_CLAIM_BYTES = 4_000_000;

/**
 * Claims what is due, of every state that can be, in its order: running now, with one attempt and one lease more. One statement
 * for all queues; no job is claimed twice, as each row is locked, and claims at once share the rows between them.
 *
 * Guard: due and not paused, held under FOR UPDATE SKIP LOCKED, looked at again by Postgres where the row changed before its lock was
 * got. Of an ordering key's jobs only the first is claimed, and none while another is under way. Two claims that each
 * believe theirs is the only one meet in a unique index: the second fails with a unique_violation, and is to be run again.
 *
 * @param kindDeadlines the longest one attempt may run, in seconds, by kind, where the job itself doesn't say
 */
export function claimIfDue(
  wanted: readonly Wanted[],
  kindDeadlines: Readonly<Record<string, number>>,
): Statement<readonly Claimed[]> {
  const queues = wanted.map(({ queue, maxJobs, deadlineSeconds }) => ({
    queue,
    max_jobs: maxJobs,
    deadline_seconds: deadlineSeconds,
  }));
  return {
    text: SQL,
    values: [JSON.stringify(queues), JSON.stringify(kindDeadlines)],
    decode: (rows) =>
      rows.map((row) => {
        const job = decodeJob(row);
        if (job.state !== "running") throw new Error(`job ${job.id} was claimed and is ${job.state}`);
        return { job, now: date(row, "now"), keepsDeadLetters: row.keeps_dead_letters === true };
      }),
  };
}

// Of an ordering key, `o` is ahead in the line, but for a job that never began and isn't due: it gets its place when it is.
const SQL = `
WITH wanted AS (
  SELECT w.*, coalesce(q.keeps_dead_letters, true) AS keeps_dead_letters
  FROM jsonb_to_recordset($1::text::jsonb) AS w(queue text, max_jobs int, deadline_seconds double precision)
  LEFT JOIN awa_edge.queues q ON q.queue = w.queue
  WHERE q.paused_at IS NULL
), due AS MATERIALIZED (
  SELECT d.*, w.deadline_seconds, w.keeps_dead_letters
  FROM wanted w CROSS JOIN LATERAL (
    SELECT j.id, ${PLACE} AS place, octet_length(j::text) AS bytes
    FROM awa_edge.jobs j
    WHERE j.queue = w.queue
      AND j.state IN ('scheduled', 'available', 'retryable')
      AND ${PLACE} <= (now() AT TIME ZONE 'UTC') + ${MAX_DELAY}
      AND j.run_at <= now()
      AND (j.ordering_key IS NULL OR NOT EXISTS (
        SELECT FROM awa_edge.jobs o
        WHERE o.queue = j.queue AND o.ordering_key = j.ordering_key AND o.id <> j.id
          AND o.state IN ('scheduled', 'available', 'running', 'waiting_external', 'retryable')
          AND (o.state IN ('running', 'waiting_external')
            OR (o.id < j.id AND (o.run_lease > 0 OR o.run_at <= now())))))
    ORDER BY ${PLACE}, j.id
    LIMIT w.max_jobs
    FOR UPDATE OF j SKIP LOCKED
  ) d
), page AS (
  SELECT * FROM (SELECT due.*, sum(bytes) OVER (ORDER BY place, id) AS bytes_so_far FROM due) sized
  WHERE bytes_so_far <= ${MAX_CLAIM_BYTES} OR bytes_so_far = bytes
), claimed AS (
  UPDATE awa_edge.jobs j SET
    state = 'running',
    attempt = j.attempt + 1,
    run_lease = j.run_lease + 1,
    attempted_at = now(),
    heartbeat_at = now(),
    finalized_at = NULL,
    deadline_at = now() + make_interval(secs => coalesce(
      j.deadline_seconds, ($2::text::jsonb->>j.kind)::double precision, page.deadline_seconds))
  FROM page
  WHERE j.id = page.id AND j.state IN ('scheduled', 'available', 'retryable')
  RETURNING j.*, page.place, page.keeps_dead_letters
)
SELECT ${jobColumns("c")}, c.keeps_dead_letters, date_trunc('milliseconds', now()) AS now
FROM claimed c
ORDER BY c.place, c.id`;
