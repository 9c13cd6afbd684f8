import { randomUUID } from "node:crypto";
import type pg from "pg";
import type { CallbackId, JobId } from "../../src/shared/ids.ts";

/** A job in a state that the product could have brought it to, with its callback where that state has one. */
export interface MadeJob {
  readonly id: JobId;
  readonly callbackId: CallbackId;
}

export interface Made {
  readonly kind?: string;
  readonly queue?: string;
  readonly args?: unknown;
  readonly attempt?: number;
  readonly maxAttempts?: number;
  readonly runLease?: number;
  readonly metadata?: unknown;
  readonly progress?: unknown;
  readonly uniqueKey?: string;
  readonly uniqueStates?: readonly string[];
  /** SQL. Default: an hour ahead. */
  readonly timeoutAt?: string;
  /** SQL. Default: now. */
  readonly heartbeatAt?: string;
  /** SQL. Default: none. */
  readonly deadlineAt?: string;
}

/** Inserts a job that waits for its callback. */
export function makeWaiting(pool: pg.Pool, made: Made = {}): Promise<MadeJob> {
  return make(pool, made, {
    state: "waiting_external",
    heartbeatAt: "NULL",
    deadlineAt: "NULL",
    hasCallback: true,
  });
}

/** Inserts a running job, with a registered callback or without. */
export function makeRunning(
  pool: pg.Pool,
  made: Made & { readonly registered?: boolean } = {},
): Promise<MadeJob> {
  const { heartbeatAt = "now()", deadlineAt = "NULL", registered = true } = made;
  return make(pool, made, { state: "running", heartbeatAt, deadlineAt, hasCallback: registered });
}

async function make(
  pool: pg.Pool,
  made: Made,
  how: { state: string; heartbeatAt: string; deadlineAt: string; hasCallback: boolean },
): Promise<MadeJob> {
  const {
    kind = "order",
    queue = "default",
    args = { n: 1 },
    attempt = 1,
    maxAttempts = 25,
    runLease = 1,
  } = made;
  const callbackId = randomUUID();
  const { rows } = await pool.query<{ id: string }>(
    `WITH job AS (
       INSERT INTO awa_edge.jobs (kind, queue, args, state, attempt, max_attempts, run_lease, metadata, progress,
         unique_key, unique_states, heartbeat_at, deadline_at, attempted_at, callback_id)
       VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, decode($10, 'hex'), $11,
         ${how.heartbeatAt}, ${how.deadlineAt}, now(), $12::uuid)
       RETURNING id, run_lease, callback_id
     ), callback AS (
       INSERT INTO awa_edge.callbacks (id, job_id, run_lease, timeout_at)
       SELECT callback_id, id, run_lease, ${made.timeoutAt ?? "now() + interval '1 hour'"} FROM job
       WHERE callback_id IS NOT NULL
     )
     SELECT id FROM job`,
    [
      kind,
      queue,
      JSON.stringify(args),
      how.state,
      attempt,
      maxAttempts,
      runLease,
      JSON.stringify(made.metadata ?? {}),
      made.progress === undefined ? null : JSON.stringify(made.progress),
      made.uniqueKey ?? null,
      made.uniqueStates ?? null,
      how.hasCallback ? callbackId : null,
    ],
  );
  const [job] = rows;
  if (job === undefined) throw new Error("the job wasn't inserted");
  return { id: job.id as JobId, callbackId: callbackId as CallbackId };
}

/** What a claim does to a job that is due; the executor's part, as far as tests need it. */
export async function claim(pool: pg.Pool, id: string): Promise<void> {
  const { rowCount } = await pool.query(
    `UPDATE awa_edge.jobs SET state = 'running', attempt = attempt + 1, run_lease = run_lease + 1, attempted_at = now(),
       heartbeat_at = now(), finalized_at = NULL
     WHERE id = $1 AND state IN ('available', 'retryable', 'scheduled')`,
    [id],
  );
  if (rowCount !== 1) throw new Error(`job ${id} can't be claimed`);
}

/** What registering a callback, or another one, does to a running job. */
export async function register(
  pool: pg.Pool,
  id: string,
  timeoutAt = "now() + interval '1 hour'",
): Promise<CallbackId> {
  const callbackId = randomUUID();
  await pool.query(
    `WITH job AS (UPDATE awa_edge.jobs SET callback_id = $2 WHERE id = $1 AND state = 'running' RETURNING id, run_lease)
     UPDATE awa_edge.callbacks c SET state = 'superseded', resolved_at = now() FROM job
     WHERE c.job_id = job.id AND c.state = 'pending'`,
    [id, callbackId],
  );
  await pool.query(
    `INSERT INTO awa_edge.callbacks (id, job_id, run_lease, timeout_at)
     SELECT callback_id, id, run_lease, ${timeoutAt} FROM awa_edge.jobs WHERE id = $1`,
    [id],
  );
  return callbackId as CallbackId;
}

/** What parking on its registered callback does to a running job. */
export async function park(pool: pg.Pool, id: string): Promise<void> {
  const { rowCount } = await pool.query(
    `UPDATE awa_edge.jobs SET state = 'waiting_external', heartbeat_at = NULL, deadline_at = NULL
     WHERE id = $1 AND state = 'running' AND callback_id IS NOT NULL`,
    [id],
  );
  if (rowCount !== 1) throw new Error(`job ${id} can't be parked`);
}

/** Everything that a refused request must leave as it was. */
export async function snapshot(pool: pg.Pool): Promise<unknown> {
  const { rows } = await pool.query(`SELECT
    (SELECT jsonb_agg(to_jsonb(j) ORDER BY id) FROM awa_edge.jobs j) AS jobs,
    (SELECT jsonb_agg(to_jsonb(c) ORDER BY id) FROM awa_edge.callbacks c) AS callbacks,
    (SELECT jsonb_agg(to_jsonb(o) ORDER BY id) FROM awa_edge.rescue_followups o) AS rescue_followups`);
  return rows[0];
}
