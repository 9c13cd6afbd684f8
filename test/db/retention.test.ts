import { beforeEach, expect, test } from "vitest";
import { createClient } from "../../src/client.ts";
import { DEFAULT_RETENTION } from "../../src/shared/db/statements/delete-ended.ts";
import { useTestDatabase } from "../support/database.ts";
import { emptyTables } from "../support/empty-tables.ts";
import { makeWaiting } from "../support/factory.ts";
import { holdTransaction } from "../support/races.ts";
import { testRegistry } from "../support/registry.ts";
import { tick } from "../support/tick.ts";

const { db, database } = useTestDatabase();
const registry = testRegistry();
const client = () => createClient({ database, registry });

beforeEach(async () => {
  await emptyTables(db.pool);
});

type Ended = "completed" | "failed" | "cancelled" | "dead letter";

/** A job that ended so many hours ago. */
async function ended(how: Ended, hoursAgo: number, queue = "default"): Promise<string> {
  const job = await makeWaiting(db.pool, { kind: "plain", queue });
  if (how === "completed") await client().completeCallback(job.callbackId);
  else if (how === "cancelled") await client().cancel(job.id);
  else await client().failCallback(job.callbackId, "x");
  await db.pool.query(
    `UPDATE awa_edge.jobs SET finalized_at = now() - $2 * interval '1 hour',
       dead_lettered_at = CASE WHEN $3 THEN now() - $2 * interval '1 hour' END,
       dead_letter_reason = CASE WHEN $3 THEN 'callback_failed' END WHERE id = $1`,
    [job.id, hoursAgo, how === "dead letter"],
  );
  return job.id;
}
const kept = async (ids: readonly string[]) =>
  Promise.all(ids.map(async (id) => (await client().getJob(id)) !== null));

test("completed 24 h, failed and cancelled 72 h, dead letters 30 days: older ones go, with their callbacks", async () => {
  const ids = [
    await ended("completed", 23.9),
    await ended("completed", 24.1),
    await ended("failed", 71.9),
    await ended("failed", 72.1),
    await ended("cancelled", 71.9),
    await ended("cancelled", 72.1),
    await ended("dead letter", 719.9),
    await ended("dead letter", 720.1),
  ];
  const { counts } = await tick(database, registry);
  expect(await kept(ids)).toEqual([true, false, true, false, true, false, true, false]);
  expect(counts("retention")).toMatchObject({ completed: 1, failedOrCancelled: 2, deadLetters: 1 });
  const { rows } = await db.pool.query("SELECT count(*)::int AS n FROM awa_edge.callbacks");
  expect(rows).toEqual([{ n: 4 }]);
});

test("what hasn't ended is never deleted, however old", async () => {
  const waiting = await makeWaiting(db.pool);
  await db.pool.query(
    "UPDATE awa_edge.jobs SET created_at = now() - interval '10 years', run_at = now() - interval '10 years'",
  );
  await tick(database, registry);
  expect(await kept([waiting.id])).toEqual([true]);
});

test("periods are settable, for the deployment and for a queue: shorter and longer", async () => {
  await client().configureQueue("short", { completedRetentionSeconds: 60 });
  await client().configureQueue("long", { completedRetentionSeconds: 365 * 86_400 });
  const ids = [
    await ended("completed", 0.1, "short"),
    await ended("completed", 0.1),
    await ended("completed", 2),
    await ended("completed", 2, "long"),
  ];
  await tick(database, registry, { retention: { ...DEFAULT_RETENTION, completedSeconds: 3600 } });
  expect(await kept(ids)).toEqual([false, true, false, true]);
});

test("a job that is being retried by hand stays", async () => {
  const id = await ended("failed", 100);
  const holder = await holdTransaction(db.pool);
  await holder.run(client().prepare.retry(id));
  await tick(database, registry);
  await holder.commit();
  await tick(database, registry);
  expect(await client().getJob(id)).toMatchObject({ state: "available" });
});

test("more than a page: goes on until nothing is left", async () => {
  await db.pool.query(`INSERT INTO awa_edge.jobs (kind, state, attempt, run_lease, finalized_at)
    SELECT 'plain', 'completed', 1, 1, now() - interval '2 days' FROM generate_series(1, 2500)`);
  const { counts } = await tick(database, registry);
  expect(counts("retention")).toMatchObject({ completed: 2500, exhausted: false });
});

test("abandoned rescue follow-ups go with the dead letters' period", async () => {
  await db.pool.query(`INSERT INTO awa_edge.rescue_followups (job_id, run_lease, kind, reason, job, abandoned_at) VALUES
    (1, 1, 'order', 'expired_callback', '{}', now() - interval '29 days'),
    (2, 1, 'order', 'expired_callback', '{}', now() - interval '31 days')`);
  await tick(database, registry);
  const { rows } = await db.pool.query("SELECT job_id FROM awa_edge.rescue_followups");
  expect(rows).toEqual([{ job_id: "1" }]);
});
