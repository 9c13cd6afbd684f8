import type pg from "pg";

/** Follow-ups that aren't over. */
export interface OpenFollowUps {
  readonly due: number;
  /** How long the first of them has been due. */
  readonly oldestSeconds: number;
  readonly running: number;
}

/** What is left to be run. Those that a lost claim left running are rescued when their heartbeats are old. */
export async function openFollowUps(owner: pg.Pool): Promise<OpenFollowUps> {
  // Two statements for two indexes: it is asked in the middle of the load.
  const due = await owner.query<Omit<OpenFollowUps, "running">>(
    `SELECT count(*)::int AS due, coalesce(extract(epoch FROM now() - min(run_at)), 0)::float8 AS "oldestSeconds"
     FROM awa_edge.jobs WHERE state IN ('scheduled', 'available', 'retryable')`,
  );
  const running = await owner.query("SELECT FROM awa_edge.jobs WHERE state = 'running'");
  return { due: 0, oldestSeconds: 0, ...due.rows[0], running: running.rowCount ?? 0 };
}

/** Blocks that all sessions have read so far, from memory or not. */
export async function blocksRead(owner: pg.Pool): Promise<number> {
  const { rows } = await owner.query<{ blocks: number }>(
    `SELECT (blks_hit + blks_read)::float8 AS blocks FROM pg_stat_database WHERE datname = current_database()`,
  );
  return rows[0]?.blocks ?? 0;
}

/** What isn't as it has to be in the end, by name; all are 0 on a good day. */
export async function wrongs(
  owner: pg.Pool,
  jobs: number,
  webhooks: number,
): Promise<Record<string, number>> {
  const { rows } = await owner.query<{ counts: Record<string, number> }>(
    `WITH charges AS (
         SELECT j.*, replace(args->>'orderId', 'order-', 'ch_') AS "chargeId" FROM awa_edge.jobs j WHERE kind = 'charge_card'),
       waits AS (
         SELECT job_id, count(*) AS n, count(*) FILTER (WHERE state = 'completed') AS completed,
           count(*) FILTER (WHERE state = 'pending') AS pending FROM awa_edge.callbacks GROUP BY job_id),
       followed AS (
         SELECT c.id, count(f.id) AS n,
           count(*) FILTER (WHERE f.kind = 'send_receipt' AND f.trigger_outcome = 'completed'
             AND f.args->>'orderId' = c.args->>'orderId' AND f.args->>'chargeId' = c."chargeId") AS receipts,
           count(*) FILTER (WHERE f.kind = 'ship_order' AND f.trigger_outcome = 'completed'
             AND f.args->>'orderId' = c.args->>'orderId') AS parcels
         FROM charges c LEFT JOIN awa_edge.jobs f ON f.trigger_job_id = c.id GROUP BY c.id),
       delivered AS (
         SELECT job_id, count(*) AS n, count(*) FILTER (WHERE state = 'resolved') AS resolved FROM awa_edge.deliveries GROUP BY job_id),
       counts AS (SELECT
         $1::int - (SELECT count(*) FROM charges) AS "jobs missing",
         (SELECT count(*) FROM charges WHERE state <> 'completed') AS "jobs not completed",
         (SELECT count(*) FROM charges WHERE attempt <> 1 OR run_lease <> 1 OR errors <> '[]') AS "jobs attempted again",
         (SELECT count(*) FROM charges WHERE result->>'chargeId' IS DISTINCT FROM "chargeId") AS "jobs with another's payload",
         (SELECT count(*) FROM charges c LEFT JOIN waits w ON w.job_id = c.id WHERE (w.n, w.completed) IS DISTINCT FROM (1, 1))
           AS "jobs without one callback, completed",
         (SELECT count(*) FROM followed WHERE (n, receipts, parcels) IS DISTINCT FROM (2, 1, 1)) AS "jobs without one of each follow-up",
         (SELECT count(*) FROM awa_edge.jobs WHERE kind = 'send_receipt' AND state <> 'completed') AS "receipts not sent",
         (SELECT count(*) FROM awa_edge.jobs j LEFT JOIN waits w ON w.job_id = j.id
           WHERE kind = 'ship_order' AND (j.state <> 'waiting_external' OR w.pending IS DISTINCT FROM 1)) AS "parcels not waiting to be packed",
         $2::int - (SELECT count(*) FROM delivered) AS "deliveries missing",
         (SELECT count(*) FROM delivered WHERE (n, resolved) IS DISTINCT FROM (1, 1)) AS "deliveries not resolved, or another's",
         (SELECT count(*) FROM awa_edge.rescue_followups) AS "rescues without their follow-ups")
     SELECT to_json(counts) AS counts FROM counts`,
    [jobs, webhooks],
  );
  const [row] = rows;
  if (row === undefined) throw new Error("the database counted nothing");
  return row.counts;
}

/** A session writes its counts once it has been idle for a while: ten seconds at the longest. */
export const STATISTICS_MS = 11_000;

/** What was done to the rows of each table, and what of it is left. */
export async function tables(owner: pg.Pool): Promise<Record<string, Record<string, number | string>>> {
  const { rows } = await owner.query<{ name: string } & Record<string, number | string>>(
    `SELECT relname::text AS name, n_tup_ins::int AS inserted, n_tup_upd::int AS updated, n_tup_hot_upd::int AS hot,
       n_tup_newpage_upd::int AS "to another page", n_live_tup::int AS live, n_dead_tup::int AS dead,
       autovacuum_count::int AS autovacuums, pg_size_pretty(pg_table_size(relid)) AS "table",
       pg_size_pretty(pg_indexes_size(relid)) AS indexes
     FROM pg_stat_user_tables WHERE n_tup_ins > 0 ORDER BY pg_total_relation_size(relid) DESC`,
  );
  return Object.fromEntries(rows.map(({ name, ...row }) => [name, row]));
}
