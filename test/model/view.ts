import type pg from "pg";
import { isQueued, type Model } from "./state.ts";

/** What is compared: the same of the model and of the tables. */
export interface View {
  readonly jobs: Readonly<Record<string, unknown>>;
  readonly callbacks: Readonly<Record<string, unknown>>;
  readonly followUps: readonly string[];
  readonly outbox: readonly unknown[];
  readonly deliveries: Readonly<Record<string, unknown>>;
}

/** The tables, and the order of callbacks and deliveries in them. */
export interface Found extends View {
  readonly callbackOrder: readonly string[];
  readonly deliveryOrder: readonly string[];
}

/** What the model says is in the tables. */
export function viewOf(model: Model): View {
  const { jobs, callbacks, followUps, outbox, deliveries, children } = model;
  return {
    jobs: byId(
      jobs.map((job) => ({
        ...pick(job, "id", "kind", "state", "attempt", "lease", "callback", "errors", "result", "deadLetter"),
        percent: job.progress,
        due: isQueued(job) && job.due,
        stale: job.stale,
        overdue: job.overdue,
      })),
    ),
    callbacks: byId(
      callbacks.map((callback) => ({
        ...pick(callback, "id", "job", "lease", "name", "key", "state", "resolvedTo", "awaitedIn", "payload"),
        expired: callback.state === "pending" && callback.expired,
      })),
    ),
    followUps: [
      ...followUps.map(
        ({ job, lease, outcome, kind, live }) =>
          `${kind} of job ${job}, lease ${lease}, ${outcome}: ${live ? "available" : "cancelled"}`,
      ),
      ...Array.from({ length: children }, () => "child: available"),
    ].toSorted(),
    outbox: outbox.map((row) => pick(row, "job", "lease", "reason", "attempts", "due", "abandoned")),
    deliveries: byId(
      deliveries.map((delivery) => ({
        ...pick(delivery, "id", "state", "job", "attempts"),
        again: delivery.dueAt === null ? null : delivery.dueAt === Number.POSITIVE_INFINITY ? "later" : "now",
      })),
    ),
  };
}

function pick<T extends object, K extends keyof T>(from: T, ...keys: K[]): Pick<T, K> {
  return Object.fromEntries(keys.map((key) => [key, from[key]])) as Pick<T, K>;
}

function byId(rows: readonly { readonly id: string }[]): Readonly<Record<string, unknown>> {
  return Object.fromEntries(rows.map(({ id, ...row }) => [id, row]));
}

// A back-off is over in seconds, and a slow machine mustn't make it pass by itself: time passes when a step says so.
const HOLD_TIME_SQL = `UPDATE awa_edge.jobs SET run_at = now() + interval '1 day'
  WHERE state = 'retryable' AND run_at > finalized_at AND run_at < now() + interval '30 minutes'`;

const READ_SQL = `SELECT
  (SELECT coalesce(jsonb_object_agg(id, jsonb_build_object('kind', kind, 'state', state, 'attempt', attempt, 'lease', run_lease,
      'callback', callback_id, 'result', result, 'percent', progress->'percent', 'deadLetter', dead_letter_reason,
      'errors', (SELECT coalesce(jsonb_agg((e->>'attempt') || ': ' || (e->>'error') ORDER BY place), '[]')
        FROM jsonb_array_elements(errors) WITH ORDINALITY AS each(e, place)),
      'due', state IN ('scheduled', 'available', 'retryable') AND run_at <= now() + interval '1 second',
      'stale', state = 'running' AND heartbeat_at < now() - interval '90 seconds',
      'overdue', state = 'running' AND coalesce(deadline_at < now(), false))), '{}')
    FROM awa_edge.jobs WHERE kind NOT IN ('after', 'once')) AS jobs,
  (SELECT coalesce(jsonb_object_agg(id, jsonb_build_object('job', job_id::text, 'lease', run_lease, 'name', name, 'key', correlation_key,
      'state', state, 'resolvedTo', resolved_to, 'awaitedIn', awaited_in_attempt, 'payload', payload,
      'expired', state = 'pending' AND timeout_at < now())), '{}')
    FROM awa_edge.callbacks) AS callbacks,
  (SELECT coalesce(jsonb_agg(CASE WHEN trigger_job_id IS NULL THEN 'child' ELSE
      kind || ' of job ' || trigger_job_id || ', lease ' || trigger_run_lease || ', ' || trigger_outcome END || ': ' || state), '[]')
    FROM awa_edge.jobs WHERE kind IN ('after', 'once')) AS "followUps",
  (SELECT coalesce(jsonb_agg(jsonb_build_object('job', job_id::text, 'lease', run_lease, 'reason', reason, 'attempts', attempts,
      'due', next_attempt_at <= now(), 'abandoned', abandoned_at IS NOT NULL) ORDER BY id), '[]')
    FROM awa_edge.rescue_followups) AS outbox,
  (SELECT coalesce(jsonb_object_agg(delivery_id, jsonb_build_object('state', state, 'job', job_id::text, 'attempts', attempts,
      'again', CASE WHEN next_attempt_at <= now() THEN 'now' WHEN next_attempt_at IS NOT NULL THEN 'later' END)), '{}')
    FROM awa_edge.deliveries) AS deliveries,
  (SELECT coalesce(jsonb_agg(id ORDER BY created_at, id), '[]') FROM awa_edge.callbacks) AS "callbackOrder",
  (SELECT coalesce(jsonb_agg(delivery_id ORDER BY id), '[]') FROM awa_edge.deliveries) AS "deliveryOrder"`;

/** What is in the tables. */
export async function readView(pool: pg.Pool, holdsTime: boolean): Promise<Found> {
  if (holdsTime) await pool.query(HOLD_TIME_SQL);
  const { rows } = await pool.query<Found>({ name: "model_view", text: READ_SQL });
  const [found] = rows;
  if (found === undefined) throw new Error("the tables can't be read");
  return { ...found, followUps: found.followUps.toSorted() };
}
