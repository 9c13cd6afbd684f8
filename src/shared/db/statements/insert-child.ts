import type { JobInsert } from "../../registry/job-insert.ts";
import type { Statement } from "../port.ts";
import { jobId } from "../rows.ts";
import type { AttemptGuard } from "./attempt-callbacks.ts";
import type { Enqueued } from "./insert-job.ts";
import { encodeJobInserts, insertJobsSql, jobRecordsSql, wakeUpSql } from "./insert-jobs.ts";

/** `stale`: the attempt had lost its job, and nothing was enqueued. */
export type ChildResult = Enqueued | "stale";

/**
 * Enqueues a job from within a running attempt.
 *
 * Guard: running under this lease, with the job's row locked until the end of the statement: an attempt that has been ended enqueues
 * nothing any more. `null` as in `insertUnlessDuplicate`.
 */
export function insertIfRunning(guard: AttemptGuard, insert: JobInsert): Statement<ChildResult | null> {
  return {
    text: SQL,
    values: [guard.jobId, guard.runLease, encodeJobInserts([insert])],
    decode: ([row]) => {
      if (row === undefined) return "stale";
      return row.id === null ? null : { jobId: jobId(row, "id"), deduplicated: row.deduplicated === true };
    },
  };
}

const SQL = `
WITH held AS MATERIALIZED (
  SELECT FROM awa_edge.jobs
  WHERE id = $1::bigint AND state = 'running' AND run_lease = $2::bigint
  FOR SHARE
), inserted AS (
  ${insertJobsSql(`held, ${jobRecordsSql("$3")}`, null)}
), wake_up AS (
  ${wakeUpSql("inserted")}
)
SELECT coalesce(i.id, holder.id) AS id, i.id IS NULL AS deduplicated, (SELECT count(*) FROM wake_up) AS woken
FROM held CROSS JOIN ${jobRecordsSql("$3")}
LEFT JOIN inserted i ON true
LEFT JOIN awa_edge.jobs holder
  ON i.id IS NULL AND holder.unique_key = decode(r.unique_key, 'hex') AND holder.state = ANY (holder.unique_states)`;
