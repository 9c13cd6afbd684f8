import { afterAll, beforeAll, expect, test } from "vitest";
import { createClient, pgDatabase } from "../../src/client.ts";
import type { Statement } from "../../src/shared/db/port.ts";
import {
  cancelCallbackIfRunning,
  readEndedWaits,
  registerIfRunning,
} from "../../src/shared/db/statements/attempt-callbacks.ts";
import { beatIfRunning } from "../../src/shared/db/statements/beat-jobs.ts";
import { claimIfDue } from "../../src/shared/db/statements/claim-jobs.ts";
import {
  purgeIfDeadLetter,
  readDeadLetters,
  retryIfDeadLetter,
} from "../../src/shared/db/statements/dead-letters.ts";
import { DEFAULT_RETENTION, deleteIfKeptLongEnough } from "../../src/shared/db/statements/delete-ended.ts";
import { readEarlyDeliveries } from "../../src/shared/db/statements/early-deliveries.ts";
import { extendIfPending } from "../../src/shared/db/statements/extend-callback.ts";
import { insertIfRunning } from "../../src/shared/db/statements/insert-child.ts";
import { readDeliveries, takeDueDeliveries } from "../../src/shared/db/statements/manage-deliveries.ts";
import { measureBacklog } from "../../src/shared/db/statements/measure-backlog.ts";
import { readCallback } from "../../src/shared/db/statements/read-callback.ts";
import { readDelivery } from "../../src/shared/db/statements/read-delivery.ts";
import { readFollowUpsOfJob } from "../../src/shared/db/statements/read-job.ts";
import { recordUnlessPending } from "../../src/shared/db/statements/record-delivery.ts";
import { dispatchIfDue, readDueRescueFollowUps } from "../../src/shared/db/statements/rescue-follow-ups.ts";
import { rescueIfLost } from "../../src/shared/db/statements/rescue-jobs.ts";
import { type JobId, newCallbackId, type RunLease } from "../../src/shared/ids.ts";
import { checkJobInsert } from "../../src/shared/registry/job-insert.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { type MadeJob, makeWaiting } from "../support/factory.ts";
import { testRegistry } from "../support/registry.ts";

let db: TestDatabase;
let waiting: MadeJob;

// Large enough that reading a whole table costs more than any index, with a little of everything that is due.
beforeAll(async () => {
  db = await createTestDatabase();
  await db.pool.query(`
    INSERT INTO awa_edge.jobs (kind, state, attempt, run_lease, finalized_at)
    SELECT 'order', 'completed', 1, 1, now() - n * interval '1 second' FROM generate_series(1, 60000) n;
    INSERT INTO awa_edge.jobs (kind, state, attempt, run_lease, finalized_at, trigger_job_id, trigger_outcome, trigger_run_lease)
    SELECT 'order', 'cancelled', 1, 1, now() - n * interval '1 minute', n, 'completed', 1 FROM generate_series(1, 10000) n;
    INSERT INTO awa_edge.jobs (kind, state, attempt, run_lease, finalized_at, dead_lettered_at, dead_letter_reason)
    SELECT 'order', 'failed', 1, 1, now() - n * interval '5 minutes', now() - n * interval '5 minutes', 'callback_failed'
    FROM generate_series(1, 10000) n;
    INSERT INTO awa_edge.jobs (kind, state, attempt, run_lease, heartbeat_at, deadline_at)
    SELECT 'order', 'running', 1, 1, now() - n * interval '20 milliseconds', now() + (n - 50) * interval '1 second'
    FROM generate_series(1, 10000) n;
    WITH j AS (
      INSERT INTO awa_edge.jobs (kind, state, attempt, run_lease, callback_id)
      SELECT 'order', 'waiting_external', 1, 1, gen_random_uuid() FROM generate_series(1, 20000) n RETURNING id, callback_id)
    INSERT INTO awa_edge.callbacks (id, job_id, run_lease, timeout_at, source, correlation_key)
    SELECT callback_id, id, 1, now() + (row_number() OVER () - 50) * interval '1 second',
      CASE WHEN id % 2 = 0 THEN 'shop' END, CASE WHEN id % 2 = 0 THEN 'key-' || id END
    FROM j;
    INSERT INTO awa_edge.deliveries (source, delivery_id, state, body, received_at, correlation_key, meaning)
    SELECT 'shop', n, (ARRAY['resolved', 'ignored', 'parked', 'late'])[1 + n % 4], '{}', now() - n * interval '10 seconds',
      'early-' || n, '{"type":"retry"}'
    FROM generate_series(1, 60000) n;
    INSERT INTO awa_edge.deliveries (source, delivery_id, state, body, last_error, next_attempt_at)
    SELECT 'shop', -n, 'failed', '{}', 'x', CASE WHEN n > 20 THEN now() + (n - 50) * interval '1 second' END
    FROM generate_series(1, 10000) n;
    INSERT INTO awa_edge.rescue_followups (job_id, run_lease, kind, reason, job, next_attempt_at)
    SELECT n, 1, 'order', 'expired_callback', '{}', now() + (n - 50) * interval '1 second' FROM generate_series(1, 20000) n;
    INSERT INTO awa_edge.jobs (kind, queue, priority, state, run_at)
    SELECT 'order', 'busy', 1 + n % 4, CASE WHEN n % 2 = 0 THEN 'available' ELSE 'scheduled' END,
      now() + (n - 20000) * interval '1 second'
    FROM generate_series(1, 40000) n;
    INSERT INTO awa_edge.jobs (kind, queue, ordering_key, run_at)
    SELECT 'order', 'keyed', 'key-' || n % 1000, now() - n * interval '1 second' FROM generate_series(1, 20000) n;
    ANALYZE;`);
  waiting = await makeWaiting(db.pool);
}, 60_000);
afterAll(() => db.drop());

interface Node {
  readonly "Node Type": string;
  readonly "Relation Name"?: string;
  readonly "Index Name"?: string;
  readonly Plans?: readonly Node[];
}

async function planOf({ text, values }: Statement<unknown>) {
  const { rows } = await db.pool.query<{ "QUERY PLAN": [{ Plan: Node }] }>(`EXPLAIN (FORMAT JSON) ${text}`, [
    ...values,
  ]);
  const nodes: Node[] = [];
  const walk = (node: Node) => {
    nodes.push(node);
    node.Plans?.forEach(walk);
  };
  const [row] = rows;
  if (row === undefined) expect.fail("no plan");
  walk(row["QUERY PLAN"][0].Plan);
  return {
    // queues has a row for each queue with settings; the outbox is empty but for what just now came or can't go.
    readsWhole: nodes
      .filter(
        (node) =>
          node["Node Type"] === "Seq Scan" &&
          !/^(queues|rescue_followups)$/.test(node["Relation Name"] ?? ""),
      )
      .map((node) => node["Relation Name"]),
    indexes: nodes.flatMap((node) => node["Index Name"] ?? []),
  };
}

// For its whole page of 2,000 the planner rightly reads tables as small as these.
const PAGE = 100;
const ID = "00000000-0000-4000-8000-000000000000";
const ATTEMPT = { jobId: "5" as JobId, runLease: "1" as RunLease };
const CALLBACK = {
  id: newCallbackId(),
  name: "x",
  timeoutSeconds: 60,
  source: "shop",
  correlationKey: "early-2",
  rules: null,
  awaitedInAttempt: 1,
};
const KEY = { correlationKey: "early-2" };
const RECORD = { meaning: null, target: KEY, jobId: null, reason: null, error: null } as const;
const RECORDED = { id: "5", state: "failed", attempts: 1 } as const;
const claimOf = (queue: string) => claimIfDue([{ queue, maxJobs: PAGE, deadlineSeconds: null }], {});
const child = checkJobInsert(
  testRegistry().kinds,
  { kind: "plain", args: { n: 1 }, options: { unique: true } },
  new Date(),
);
const CHILD = child.ok ? child.value : expect.fail(child.error);
test.each<[string, () => Promise<Statement<unknown>> | Statement<unknown>, readonly string[]]>([
  ["read a callback", () => readCallback(ID as never), ["callbacks_pkey", "jobs_pkey"]],
  ["extend a callback", () => extendIfPending(ID as never, 60), ["callbacks_pkey", "jobs_pkey"]],
  [
    "resolve a callback",
    async () => {
      const client = createClient({ database: pgDatabase(db.workerPool), registry: testRegistry() });
      const planned = await client.prepare.completeCallback(waiting.callbackId, { payload: 1 });
      return planned.statement ?? expect.fail("nothing to run");
    },
    ["jobs_pkey", "callbacks_pkey"],
  ],
  [
    "rescue stale heartbeats",
    () => rescueIfLost("stale_heartbeat", ["order"], [], PAGE),
    ["jobs_running_heartbeat"],
  ],
  [
    "rescue overrun deadlines",
    () => rescueIfLost("deadline_exceeded", ["order"], [], PAGE),
    ["jobs_running_deadline"],
  ],
  [
    "rescue expired callbacks",
    () => rescueIfLost("expired_callback", ["order"], [], PAGE),
    ["callbacks_pending_timeout"],
  ],
  ["claim", () => claimOf("busy"), ["jobs_due", "jobs_pkey"]],
  ["claim where jobs have ordering keys", () => claimOf("keyed"), ["jobs_due", "jobs_ordering_key_line"]],
  ["heartbeat", () => beatIfRunning([{ ...ATTEMPT, progress: null }]), ["jobs_pkey"]],
  [
    "register a callback",
    () => registerIfRunning(ATTEMPT, CALLBACK, { seen: [] }),
    ["jobs_pkey", "callbacks_job", "deliveries_parked_key"],
  ],
  [
    "read a delivery and its callback by the key",
    () => readDelivery("shop", "5", KEY),
    [
      "a_delivery_counts_once",
      "callbacks_one_pending_per_correlation_key",
      "callbacks_correlation_key",
      "jobs_pkey",
    ],
  ],
  [
    "read a delivery and its callback by the id",
    () => readDelivery("shop", "5", { id: ID as never }),
    ["a_delivery_counts_once", "callbacks_pkey", "jobs_pkey"],
  ],
  [
    "record a delivery unless its callback is there",
    () => recordUnlessPending("shop", KEY, false, { ...RECORD, state: "parked", delivery: RECORDED }),
    ["deliveries_pkey", "callbacks_one_pending_per_correlation_key"],
  ],
  ["read what came early", () => readEarlyDeliveries("shop", "early-2"), ["deliveries_parked_key"]],
  ["take due deliveries", () => takeDueDeliveries(["shop"]), ["deliveries_due"]],
  ["list deliveries", () => readDeliveries({ state: "late" }, null, PAGE), ["deliveries_pkey"]],
  ["cancel a callback", () => cancelCallbackIfRunning(ATTEMPT, ID as never), ["jobs_pkey", "callbacks_pkey"]],
  ["read the waits of a job", () => readEndedWaits(ATTEMPT.jobId), ["callbacks_job"]],
  ["enqueue a child", () => insertIfRunning(ATTEMPT, CHILD), ["jobs_pkey", "jobs_unique_key"]],
  ["list dead letters", () => readDeadLetters({}, null, PAGE), ["jobs_dead_letter_ids"]],
  [
    "retry dead letters",
    () => retryIfDeadLetter({ kind: "order" }, { after: null, upTo: null }, {}),
    ["jobs_dead_letter_ids"],
  ],
  ["purge dead letters", () => purgeIfDeadLetter({}, { after: null, upTo: null }), ["jobs_dead_letter_ids"]],
  ["read due rescue follow-ups", () => readDueRescueFollowUps(["order"]), ["rescue_followups_due"]],
  ["dispatch rescue follow-ups", () => dispatchIfDue([]), ["rescue_followups_pkey"]],
  [
    "retention",
    () => deleteIfKeptLongEnough(DEFAULT_RETENTION),
    [
      "jobs_completed",
      "jobs_failed_or_cancelled",
      "jobs_dead_letters",
      "deliveries_done",
      "deliveries_parked",
      "deliveries_late_or_failed",
    ],
  ],
  [
    "measure the backlog",
    () => measureBacklog(["order"], ["busy"], ["shop"]),
    [
      "jobs_running_heartbeat",
      "jobs_running_deadline",
      "callbacks_pending_timeout",
      "rescue_followups_due",
      "jobs_due",
      "deliveries_due",
      "deliveries_abandoned",
      "deliveries_parked",
    ],
  ],
  ["read the follow-ups of a job", () => readFollowUpsOfJob("5" as never), ["jobs_trigger"]],
])("%s: through its indexes, no table read whole", async (_, statement, expected) => {
  const { readsWhole, indexes } = await planOf(await statement());
  expect(readsWhole).toEqual([]);
  expect(indexes).toEqual(expect.arrayContaining([...expected]));
});
