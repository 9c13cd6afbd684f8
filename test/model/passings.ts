// How time passes: for one thing at a time, when a step says so.

import type { Passing } from "./operation.ts";
import { callbackOf, isQueued, isTerminal, jobOf, type Model } from "./state.ts";

const LONG_AGO = "now() - interval '31 days'";

/** One way in which time passes: for what it may, by name, and how. */
interface Way {
  readonly weight: number;
  readonly from: (model: Model) => readonly string[];
  readonly passes: (name: string) => Passing;
}

type Table = "jobs" | "callbacks" | "deliveries" | "rescue_followups";
const WHERE: Record<Table, string> = {
  jobs: "metadata->>'name' = $1",
  // Only a pending one's time is looked at, and a job has one at the most.
  callbacks: "state = 'pending' AND job_id = (SELECT id FROM awa_edge.jobs WHERE metadata->>'name' = $1)",
  deliveries: "delivery_id = $1",
  rescue_followups: "job->'metadata'->>'name' || '/' || run_lease = $1",
};

function way(
  weight: number,
  text: (name: string) => string,
  table: Table,
  set: string,
  from: (model: Model) => readonly string[],
  passes: (model: Model, name: string) => void,
): Way {
  return {
    weight,
    from,
    passes: (name) => ({
      text: text(name),
      sql: `UPDATE awa_edge.${table} SET ${set} WHERE ${WHERE[table]}`,
      values: [name],
      passes: (model) => passes(model, name),
    }),
  };
}

const jobs = (model: Model, which: (job: Model["jobs"][number]) => boolean) =>
  model.jobs.filter(which).map(({ name }) => name);
const setJob = (field: "due" | "stale" | "overdue" | "old") => (model: Model, name: string) => {
  const job = jobOf(model, name);
  if (job !== undefined) job[field] = true;
};
const outboxName = ({ job, lease }: { job: string; lease: number }) => `${job}/${lease}`;

export const PASSINGS: readonly Way[] = [
  way(
    14,
    (name) => `the time to run ${name} comes`,
    "jobs",
    "run_at = now() - interval '1 hour'",
    (model) => jobs(model, (job) => isQueued(job) && !job.due),
    setJob("due"),
  ),
  way(
    9,
    (name) => `the heartbeat of ${name} grows old`,
    "jobs",
    "heartbeat_at = now() - interval '1 hour'",
    (model) => jobs(model, ({ state, stale }) => state === "running" && !stale),
    setJob("stale"),
  ),
  way(
    6,
    (name) => `the deadline of ${name} passes`,
    "jobs",
    "deadline_at = now() - interval '1 minute'",
    (model) =>
      jobs(model, ({ state, hasDeadline, overdue }) => state === "running" && hasDeadline && !overdue),
    setJob("overdue"),
  ),
  way(
    14,
    (name) => `the time-out of the callback of ${name} passes`,
    "callbacks",
    "timeout_at = now() - interval '1 minute'",
    (model) =>
      jobs(model, ({ callback }) => callback !== null && callbackOf(model, callback)?.expired === false),
    (model, name) => {
      const callback = callbackOf(model, jobOf(model, name)?.callback ?? null);
      if (callback !== undefined) callback.expired = true;
    },
  ),
  way(
    5,
    (name) => `${name} ended long ago`,
    "jobs",
    `finalized_at = ${LONG_AGO}, dead_lettered_at = CASE WHEN dead_lettered_at IS NOT NULL THEN ${LONG_AGO} END`,
    (model) => jobs(model, (job) => (isTerminal(job) || job.state === "retryable") && !job.old),
    setJob("old"),
  ),
  way(
    5,
    (name) => `the time to try ${name} again comes`,
    "deliveries",
    "next_attempt_at = now() - interval '1 hour'",
    (model) => model.deliveries.filter(({ again }) => again === "later").map(({ id }) => id),
    (model, name) => {
      for (const delivery of model.deliveries) if (delivery.id === name) delivery.again = "now";
    },
  ),
  way(
    4,
    (name) => `${name} came long ago`,
    "deliveries",
    `received_at = ${LONG_AGO}`,
    (model) => model.deliveries.filter(({ old }) => !old).map(({ id }) => id),
    (model, name) => {
      for (const delivery of model.deliveries) if (delivery.id === name) delivery.old = true;
    },
  ),
  way(
    3,
    (name) => `the time to try the follow-ups of the rescue of ${name} again comes`,
    "rescue_followups",
    "next_attempt_at = now() - interval '1 hour'",
    (model) => model.outbox.filter(({ due, abandoned }) => !due && !abandoned).map(outboxName),
    (model, name) => {
      for (const row of model.outbox) if (outboxName(row) === name) row.due = true;
    },
  ),
  way(
    1,
    (name) => `the follow-ups of the rescue of ${name} have failed eleven times`,
    "rescue_followups",
    "attempts = 11",
    (model) => model.outbox.filter(({ attempts, abandoned }) => attempts > 0 && !abandoned).map(outboxName),
    (model, name) => {
      for (const row of model.outbox) if (outboxName(row) === name) row.attempts = 11;
    },
  ),
  way(
    1,
    (name) => `the follow-ups of the rescue of ${name} were abandoned long ago`,
    "rescue_followups",
    `abandoned_at = ${LONG_AGO}`,
    (model) => model.outbox.filter(({ abandoned, old }) => abandoned && !old).map(outboxName),
    (model, name) => {
      for (const row of model.outbox) if (outboxName(row) === name) row.old = true;
    },
  ),
];
