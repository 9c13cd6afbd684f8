import type pg from "pg";
import type { Delivery, Job, Model } from "./state.ts";

/** What is compared: the same of the model and of the tables, by name. */
export interface View {
  readonly queue: { readonly paused: boolean };
  readonly jobs: Readonly<Record<string, JobView>>;
  readonly callbacks: Readonly<Record<string, CallbackView>>;
  /** How often each was enqueued. */
  readonly followUps: Readonly<Record<string, number>>;
  readonly outbox: Readonly<Record<string, unknown>>;
  readonly deliveries: Readonly<Record<string, DeliveryView>>;
}

export type JobView = Pick<
  Job,
  | "kind"
  | "n"
  | "isUnique"
  | "line"
  | "state"
  | "attempt"
  | "lease"
  | "due"
  | "stale"
  | "overdue"
  | "callback"
  | "errors"
  | "progress"
  | "result"
  | "deadLetter"
>;
export type CallbackView = Pick<
  Model["callbacks"][number],
  "job" | "lease" | "label" | "key" | "awaitedIn" | "state" | "resolvedTo" | "expired" | "payload"
>;
export type DeliveryView = Pick<Delivery, "state" | "job" | "attempts" | "again"> & {
  /** The correlation key that it waits for. */
  readonly key: string | null;
};

/** The tables, with what the rules don't foretell. */
export interface Found {
  readonly view: View;
  /** Ids of jobs and callbacks by name. */
  readonly ids: ReadonlyMap<string, string>;
  /** Job by name: its place among all jobs. Delivery by id: its place among all deliveries, and since when it is due. */
  readonly places: ReadonlyMap<string, number>;
  readonly dueSince: ReadonlyMap<string, number>;
  /** Names of callbacks, the oldest first. */
  readonly callbackOrder: readonly string[];
}

/** What the model says is in the tables. */
export function viewOf({ paused, jobs, callbacks, followUps, outbox, deliveries }: Model): View {
  return {
    queue: { paused },
    jobs: Object.fromEntries(
      jobs.map((job) => {
        const { name, kind, n, isUnique, line, state, attempt, lease, due, stale, overdue, callback } = job;
        const { errors, progress, result, deadLetter } = job;
        const ofState = { kind, n, isUnique, line, state, attempt, lease, due, stale, overdue, callback };
        return [name, { ...ofState, errors: [...errors], progress, result, deadLetter }];
      }),
    ),
    callbacks: Object.fromEntries(
      callbacks.map((callback) => {
        const { name, job, lease, label, key, awaitedIn, state, resolvedTo, payload } = callback;
        const expired = state === "pending" && callback.expired;
        return [name, { job, lease, label, key, awaitedIn, state, resolvedTo, expired, payload }];
      }),
    ),
    followUps: countOf(followUps),
    outbox: Object.fromEntries(
      outbox.map(({ job, lease, reason, attempts, due, abandoned }) => [
        `${job}/${lease}`,
        { reason, attempts, due, abandoned },
      ]),
    ),
    deliveries: Object.fromEntries(
      deliveries.map(({ id, to, state, job, attempts, again }) => [
        id,
        { state, job, attempts, again, key: state === "parked" && "key" in to ? to.key : null },
      ]),
    ),
  };
}

function countOf(names: readonly string[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const name of names) counts[name] = (counts[name] ?? 0) + 1;
  return counts;
}

// A back-off is over in seconds, and a slow machine mustn't make it pass by itself: time passes when a step says so.
const READ_SQL = `WITH held_back AS (
    UPDATE awa_edge.jobs SET run_at = now() + interval '1 day'
    WHERE id = ANY (ARRAY (SELECT id FROM awa_edge.jobs
      WHERE state = 'retryable' AND run_at BETWEEN now() - interval '30 minutes' AND now() + interval '30 minutes'
      FOR UPDATE SKIP LOCKED)))
  SELECT
  (SELECT coalesce(jsonb_agg(jsonb_build_object('name', metadata->>'name', 'id', id::text, 'kind', kind, 'state', state,
      'n', args->'n', 'isUnique', unique_key IS NOT NULL, 'line', ordering_key, 'attempt', attempt, 'lease', run_lease, 'callback', callback_id, 'result', result, 'progress', progress->'percent',
      'deadLetter', dead_letter_reason,
      'errors', (SELECT coalesce(jsonb_agg((e->>'attempt') || ': ' || (e->>'error') ORDER BY place), '[]')
        FROM jsonb_array_elements(errors) WITH ORDINALITY AS each(e, place)),
      'due', CASE WHEN state = 'retryable' THEN run_at < now() - interval '30 minutes'
        ELSE state IN ('scheduled', 'available') AND run_at <= now() + interval '1 second' END,
      'stale', state = 'running' AND heartbeat_at < now() - interval '90 seconds',
      'overdue', state = 'running' AND coalesce(deadline_at < now(), false)) ORDER BY id), '[]')
    FROM awa_edge.jobs WHERE kind NOT IN ('after', 'once')) AS jobs,
  (SELECT coalesce(jsonb_agg(jsonb_build_object('id', id, 'job', job_id::text, 'lease', run_lease, 'label', name,
      'key', correlation_key, 'state', state, 'resolvedTo', resolved_to, 'awaitedIn', awaited_in_attempt, 'payload', payload,
      'expired', state = 'pending' AND timeout_at < now()) ORDER BY created_at, id), '[]')
    FROM awa_edge.callbacks) AS callbacks,
  (SELECT coalesce(jsonb_agg(jsonb_build_object('kind', kind, 'state', state, 'n', args->'n', 'outcome', trigger_outcome,
      'job', trigger_job_id::text, 'lease', trigger_run_lease)), '[]')
    FROM awa_edge.jobs WHERE kind IN ('after', 'once')) AS "followUps",
  (SELECT coalesce(jsonb_agg(jsonb_build_object('job', job_id::text, 'lease', run_lease, 'reason', reason, 'attempts', attempts,
      'due', next_attempt_at <= now(), 'abandoned', abandoned_at IS NOT NULL)), '[]')
    FROM awa_edge.rescue_followups) AS outbox,
  (SELECT coalesce(jsonb_agg(jsonb_build_object('name', delivery_id, 'id', id, 'state', state, 'job', job_id::text,
      'attempts', attempts, 'key', CASE WHEN state = 'parked' THEN correlation_key END, 'dueSince', extract(epoch FROM next_attempt_at),
      'again', CASE WHEN next_attempt_at <= now() THEN 'now' WHEN next_attempt_at IS NOT NULL THEN 'later' END)), '[]')
    FROM awa_edge.deliveries) AS deliveries,
  EXISTS (SELECT FROM awa_edge.queues WHERE paused_at IS NOT NULL) AS paused`;

interface Rows {
  paused: boolean;
  jobs: (JobView & { name: string; id: string })[];
  callbacks: (CallbackView & { id: string })[];
  followUps: { kind: string; state: string; n: number; outcome: string | null; job: string; lease: number }[];
  outbox: {
    job: string;
    lease: number;
    reason: string;
    attempts: number;
    due: boolean;
    abandoned: boolean;
  }[];
  deliveries: (DeliveryView & { name: string; id: number; dueSince: number | null })[];
}

/**
 * What is in the tables, by name.
 *
 * @param names of jobs by id, to which those that are new are added: what names a job may outlive it
 */
export async function readTables(pool: pg.Pool, names: Map<string, string>): Promise<Found> {
  const { rows } = await pool.query<Rows>({ name: "model_view", text: READ_SQL });
  const [found] = rows;
  if (found === undefined) throw new Error("the tables can't be read");
  for (const { id, name } of found.jobs) names.set(id, name);
  const nameOf = (id: string) => names.get(id) ?? `unknown job ${id}`;
  const ids = new Map(found.jobs.map(({ name, id }) => [name, id]));
  const counts = new Map<string, number>();
  const callbacks = found.callbacks.map(({ id, ...row }) => {
    const count = (counts.get(row.job) ?? 0) + 1;
    counts.set(row.job, count);
    const job = nameOf(row.job);
    const name = `${job}'s callback ${count}`;
    ids.set(name, id);
    return { name, id, row: { ...row, job } };
  });
  const callbackNames = new Map(callbacks.map(({ id, name }) => [id, name]));
  const followUps = found.followUps.map(({ kind, state, n, outcome, job, lease }) => {
    if (state !== "available") return `${kind} is ${state}`;
    if (outcome === null) return "child";
    return `${kind}${kind === "once" ? ` ${n}` : ""} ${outcome} of ${nameOf(job)}, lease ${lease}`;
  });
  return {
    view: {
      queue: { paused: found.paused },
      jobs: Object.fromEntries(
        found.jobs.map(({ name, id: _, callback, ...job }) => {
          const held = callback === null ? null : (callbackNames.get(callback) ?? `unknown ${callback}`);
          return [name, { ...job, callback: held }];
        }),
      ),
      callbacks: Object.fromEntries(callbacks.map(({ name, row }) => [name, row])),
      followUps: countOf(followUps),
      outbox: Object.fromEntries(
        found.outbox.map(({ job, lease, ...row }) => [`${nameOf(job)}/${lease}`, row]),
      ),
      deliveries: Object.fromEntries(
        found.deliveries.map(({ name, id: _, dueSince: __, job, ...row }) => [
          name,
          { ...row, job: job === null ? null : nameOf(job) },
        ]),
      ),
    },
    ids,
    places: new Map<string, number>([
      ...found.jobs.map(({ name, id }) => [name, Number(id)] as const),
      ...found.deliveries.map(({ name, id }) => [name, id] as const),
    ]),
    dueSince: new Map(found.deliveries.map(({ name, dueSince }) => [name, dueSince ?? 0])),
    callbackOrder: callbacks.map(({ name }) => name),
  };
}

/** Takes over what the rules don't foretell. */
export function adopt(model: Model, { places, dueSince, callbackOrder }: Found): void {
  for (const job of model.jobs) job.place = places.get(job.name) ?? job.place;
  for (const delivery of model.deliveries) {
    delivery.place = places.get(delivery.id) ?? delivery.place;
    delivery.dueSince = dueSince.get(delivery.id) ?? 0;
  }
  const order = new Map(callbackOrder.map((name, place) => [name, place]));
  model.callbacks.sort((a, b) => (order.get(a.name) ?? 0) - (order.get(b.name) ?? 0));
}

/** What differs between two views, a line each; none: they are the same. */
export function differences(expected: View, found: View): string[] {
  const lines: string[] = [];
  for (const table of ["queue", "jobs", "callbacks", "followUps", "outbox", "deliveries"] as const) {
    const [a, b] = [new Map(Object.entries(expected[table])), new Map(Object.entries(found[table]))];
    for (const name of new Set([...a.keys(), ...b.keys()])) {
      const [was, is]: unknown[] = [a.get(name), b.get(name)];
      if (!isSame(was, is))
        lines.push(`${table}: ${name}: expected ${show(was, is)}, found ${show(is, was)}`);
    }
  }
  return lines;
}

/** Of a row what isn't as in the other one. */
function show(row: unknown, other: unknown): string {
  if (typeof row !== "object" || row === null) return JSON.stringify(row) ?? "nothing";
  const others = new Map<string, unknown>(
    typeof other === "object" && other !== null ? Object.entries(other) : [],
  );
  return JSON.stringify(
    Object.fromEntries(Object.entries(row).filter(([name, value]) => !isSame(value, others.get(name)))),
  );
}

/** Whether two values are the same, whatever the order of their fields. */
export function isSame(a: unknown, b: unknown): boolean {
  if (a === b) return true;
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return false;
  const [fields, others] = [Object.entries(a), new Map<string, unknown>(Object.entries(b))];
  return fields.length === others.size && fields.every(([name, value]) => isSame(value, others.get(name)));
}
