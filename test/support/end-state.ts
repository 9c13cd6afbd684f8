import type pg from "pg";

/** A job that nothing triggered, with all that came of it. Ids and times aren't in it. */
interface EndedJob {
  readonly kind: string;
  readonly n: number | null;
  readonly fire: string | null;
  readonly queue: string;
  readonly state: string;
  readonly attempt: number;
  readonly result: unknown;
  readonly errors: readonly string[];
  readonly callbacks: readonly string[];
  /** How many follow-ups of each sort: outcome, kind, reason, state. */
  readonly followUps: Readonly<Record<string, number>>;
}

const JOBS_SQL = `
SELECT j.kind, (j.args->>'n')::int AS n, j.metadata->>'cron_fire_time' AS fire, j.queue, j.state, j.attempt, j.result,
  ARRAY (SELECT e->>'error' FROM jsonb_array_elements(j.errors) e) AS errors,
  ARRAY (SELECT c.state FROM awa_edge.callbacks c WHERE c.job_id = j.id ORDER BY c.state) AS callbacks,
  coalesce((SELECT jsonb_object_agg(f.sort, f.count) FROM (
    SELECT concat_ws(' ', f.trigger_outcome, f.kind, f.args->'detail'->>'reason', f.state) AS sort, count(*) AS count
    FROM awa_edge.jobs f WHERE f.trigger_job_id = j.id GROUP BY 1) f), '{}') AS "followUps"
FROM awa_edge.jobs j WHERE j.trigger_job_id IS NULL
ORDER BY n, kind, fire, j.id`;

/** The queue whose jobs are run by handlers. */
export const WORK = "work";

/**
 * What a fault may cost a job that a handler runs, and nothing else: an attempt. Either its process lost it after the claim, and it was
 * rescued; or the handler couldn't register its callback, and failed. Each costs one attempt, leaves one error and has exactly one
 * follow-up, of that outcome; the callback of the lost attempt is cancelled. All of that is taken off, so that one follow-up too
 * many or too few shows.
 */
function forgive(job: EndedJob): EndedJob {
  if (job.queue !== WORK) return job;
  const rescued = job.errors.filter((error) => error.startsWith("heartbeat stale")).length;
  const unregistered = job.errors.filter((error) => error.startsWith("database error")).length;
  const followUps: Record<string, number> = { ...job.followUps };
  const takeOff = (sort: string, count: number) => {
    const left = (followUps[sort] ?? 0) - count;
    if (left === 0) delete followUps[sort];
    else followUps[sort] = left;
  };
  takeOff("rescued after stale_heartbeat available", rescued);
  takeOff("retried after available", unregistered);
  return {
    ...job,
    attempt: job.attempt - rescued - unregistered,
    errors: job.errors.filter((error) => !/^(heartbeat stale|database error)/.test(error)),
    callbacks: job.callbacks.filter((state) => state !== "cancelled" && state !== "superseded"),
    followUps,
  };
}

/** All that has to be the same, whatever went wrong on the way. */
export async function endState(pool: pg.Pool) {
  const { rows: jobs } = await pool.query<EndedJob>(JOBS_SQL);
  const { rows: deliveries } = await pool.query(
    `SELECT d.source, d.delivery_id, d.state, d.reason, (j.args->>'n')::int AS n, d.next_attempt_at IS NOT NULL AS is_due
     FROM awa_edge.deliveries d LEFT JOIN awa_edge.jobs j ON j.id = d.job_id ORDER BY 1, 2`,
  );
  const { rows: outbox } = await pool.query("SELECT kind, reason, last_error FROM awa_edge.rescue_followups");
  const { rows: schedules } = await pool.query(
    "SELECT name, last_fire_at FROM awa_edge.schedules ORDER BY 1",
  );
  return { jobs: jobs.map(forgive), deliveries, outbox, schedules };
}
