import type { JobId } from "../../ids.ts";
import type { JobInsert } from "../../registry/job-insert.ts";
import type { Statement } from "../port.ts";
import { jobId } from "../rows.ts";
import { encodeJobInserts, insertJobsSql, jobRecordsSql, wakeUpSql } from "./insert-jobs.ts";

/** An enqueued job, or the live job that holds its unique key. */
export interface Enqueued {
  readonly jobId: JobId;
  readonly deduplicated: boolean;
}

/**
 * Enqueues one job. Guard: the unique key's index. `null` where another transaction holds the key and isn't committed
 * yet from this statement's view: a new statement sees it, or inserts.
 */
export function insertUnlessDuplicate(insert: JobInsert): Statement<Enqueued | null> {
  return {
    text: SQL,
    values: [encodeJobInserts([insert])],
    decode: ([row]) =>
      row === undefined ? null : { jobId: jobId(row, "id"), deduplicated: row.deduplicated === true },
  };
}

const SQL = `
WITH inserted AS (
  ${insertJobsSql(jobRecordsSql("$1"), null)}
), wake_up AS (
  ${wakeUpSql("inserted")}
)
SELECT id, false AS deduplicated, (SELECT count(*) FROM wake_up) AS woken FROM inserted
UNION ALL
SELECT j.id, true, 0
FROM ${jobRecordsSql("$1")}
JOIN awa_edge.jobs j ON j.unique_key = decode(r.unique_key, 'hex') AND j.state = ANY (j.unique_states)
WHERE NOT EXISTS (SELECT FROM inserted)`;
