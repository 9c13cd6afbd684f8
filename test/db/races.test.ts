import { beforeEach, describe, expect, test } from "vitest";
import { createClient } from "../../src/client.ts";
import { extendIfPending } from "../../src/shared/db/statements/extend-callback.ts";
import { moveIfUnchanged } from "../../src/shared/db/statements/move-job.ts";
import { rescueIfLost } from "../../src/shared/db/statements/rescue-jobs.ts";
import { retryIfEndedOrWaiting } from "../../src/shared/db/statements/retry-job.ts";
import type { CallbackAction } from "../../src/shared/transitions.ts";
import { extendCallback } from "../../src/shared/use-cases/extend-callback.ts";
import { planResolution, resolveCallback } from "../../src/shared/use-cases/resolve-callback.ts";
import { useTestDatabase } from "../support/database.ts";
import { emptyTables } from "../support/empty-tables.ts";
import { claim, makeRunning, makeWaiting, park, register } from "../support/factory.ts";
import { holdTransaction, interrupt, untilBlocked } from "../support/races.ts";
import { testRegistry } from "../support/registry.ts";

const { db, database } = useTestDatabase();
const registry = testRegistry();
const client = () => createClient({ database, registry });
/** A condition that a statement reads after it took its snapshot, and before it locks a row. */
const SLOWLY = "(SELECT pg_sleep(0.4)) IS NOT NULL";
const expired = { timeoutAt: "now() - interval '1 minute'" };

beforeEach(async () => {
  await emptyTables(db.pool);
});

/** Every pending callback is its job's callback, and the other way round. */
async function expectCallbacksAndJobsAgree(): Promise<void> {
  const { rows } = await db.pool.query(`
    SELECT 'callback' AS orphan, c.id FROM awa_edge.callbacks c LEFT JOIN awa_edge.jobs j ON j.callback_id = c.id
    WHERE c.state = 'pending' AND j.id IS NULL
    UNION ALL
    SELECT 'job', j.callback_id FROM awa_edge.jobs j LEFT JOIN awa_edge.callbacks c ON c.id = j.callback_id AND c.state = 'pending'
    WHERE j.callback_id IS NOT NULL AND c.id IS NULL`);
  expect(rows).toEqual([]);
}

async function plan(id: string, action: CallbackAction) {
  const planned = await planResolution(database, registry, id as never, action);
  return planned.statement ?? expect.fail(`nothing to run: ${JSON.stringify(planned.settled)}`);
}
const followUps = async (id: string) => (await client().getFollowUps(id)).map((job) => job.trigger?.outcome);

describe("two writers on one attempt, both planned before either wrote", () => {
  const complete: CallbackAction = { type: "complete", payload: 1 };
  test.each<[string, CallbackAction, CallbackAction]>([
    ["C17 complete + complete", complete, complete],
    ["complete + fail", complete, { type: "fail", error: "x" }],
    ["fail + complete", { type: "fail", error: "x" }, complete],
    ["retry + complete", { type: "retry" }, complete],
    ["E23 resume + resume", { type: "resume", payload: 1 }, { type: "resume", payload: 1 }],
  ])("%s: the second waits for the row, then matches nothing", async (_, first, second) => {
    const job = await makeWaiting(db.pool);
    const [one, two] = [await plan(job.callbackId, first), await plan(job.callbackId, second)];
    const holder = await holdTransaction(db.pool);
    expect(await holder.run(one)).toMatchObject({ status: "moved" });
    const late = database.query(two);
    await untilBlocked(db.pool);
    await holder.commit();
    expect(await late).toBeNull();
    const outcomes = new Set(await followUps(job.id));
    expect(outcomes.size).toBeLessThanOrEqual(1);
    await expectCallbacksAndJobsAgree();
  });

  test("cancel + complete: the callback is cancelled, the follow-ups are the cancel's", async () => {
    const job = await makeWaiting(db.pool);
    const late = await plan(job.callbackId, complete);
    const holder = await holdTransaction(db.pool);
    const cancel = await client().prepare.cancel(job.id, { reason: "no" });
    if (cancel.statement === null) expect.fail("nothing to cancel");
    await holder.run(cancel.statement);
    const completing = database.query(late);
    await untilBlocked(db.pool);
    await holder.commit();
    expect(await completing).toBeNull();
    expect(await followUps(job.id)).toEqual(["cancelled"]);
    expect(await client().completeCallback(job.callbackId)).toMatchObject({
      status: "gone",
      how: "cancelled",
    });
  });

  test("resolveCallback turns a lost race into the answer of the one who won", async () => {
    const job = await makeWaiting(db.pool);
    const slow = interrupt(
      database,
      (text) => text.includes("UPDATE awa_edge.jobs"),
      () => client().completeCallback(job.callbackId, { payload: "first" }),
    );
    expect(await resolveCallback(slow, registry, job.callbackId, complete)).toMatchObject({
      status: "duplicate",
    });
    const other = await makeWaiting(db.pool, { args: { n: 2 } });
    const slower = interrupt(
      database,
      (text) => text.includes("UPDATE awa_edge.jobs"),
      () => client().failCallback(other.callbackId, "first"),
    );
    expect(await resolveCallback(slower, registry, other.callbackId, complete)).toMatchObject({
      status: "already_resolved",
    });
  });

  test("the job parks between plan and write: planned again, completed once", async () => {
    const job = await makeRunning(db.pool);
    const slow = interrupt(
      database,
      (text) => text.includes("UPDATE awa_edge.jobs"),
      () => park(db.pool, job.id),
    );
    expect(await resolveCallback(slow, registry, job.callbackId, complete)).toMatchObject({
      status: "moved",
    });
    expect(await followUps(job.id)).toEqual(["completed", "completed"]);
  });

  test("a claim between a retry by callback and its repetition: the repetition is a duplicate", async () => {
    const job = await makeWaiting(db.pool);
    const late = await plan(job.callbackId, { type: "retry" });
    await client().retryCallback(job.callbackId);
    await claim(db.pool, job.id);
    expect(await database.query(late)).toBeNull();
    expect(await client().retryCallback(job.callbackId)).toMatchObject({
      status: "duplicate",
      state: "available",
    });
  });

  test("two follow-ups that take two unique keys in opposite order: no deadlock reaches the sender", async () => {
    const holder = await db.pool.connect();
    await holder.query("BEGIN");
    const job = await makeWaiting(db.pool, { args: { n: 9 } });
    const { rows } = await db.pool.query("SELECT id FROM awa_edge.jobs WHERE id = $1", [job.id]);
    expect(rows).toHaveLength(1);
    // The holder has the key of the follow-up and wants the job; the completion has the job and wants the key.
    const key = await client().prepare.enqueue("once", { n: 9 }, { unique: true });
    await holder.query(key.text, [...key.values]);
    const completing = client().completeCallback(job.callbackId, { payload: 1 });
    await untilBlocked(db.pool);
    const blocking = holder.query("UPDATE awa_edge.jobs SET priority = 3 WHERE id = $1", [job.id]);
    const blocked = await blocking.then(
      () => "committed",
      () => "rolled back",
    );
    await holder.query(blocked === "committed" ? "COMMIT" : "ROLLBACK");
    holder.release();
    expect(await completing).toMatchObject({ status: "moved" });
    expect(await client().getJob(job.id)).toMatchObject({ state: "completed" });
  });
});

describe("the expiry sweep against the others", () => {
  const sweep = () => rescueIfLost("expired_callback", ["order"], []);

  test("dapr/durabletask-go#114 complete first: the sweep skips the row and the job stays completed", async () => {
    const job = await makeWaiting(db.pool, expired);
    const holder = await holdTransaction(db.pool);
    await holder.run(await plan(job.callbackId, { type: "complete", payload: 1 }));
    expect(await database.query(sweep())).toEqual({ picked: 0, rescued: [] });
    await holder.commit();
    expect(await database.query(sweep())).toEqual({ picked: 0, rescued: [] });
    expect(await client().getJob(job.id)).toMatchObject({ state: "completed" });
  });

  test("the sweep first: a planned complete matches nothing and answers 410's expired", async () => {
    const job = await makeWaiting(db.pool, expired);
    const late = await plan(job.callbackId, { type: "complete", payload: 1 });
    const holder = await holdTransaction(db.pool);
    expect(await holder.run(sweep())).toMatchObject({ rescued: [{ jobId: job.id, state: "retryable" }] });
    const completing = database.query(late);
    await untilBlocked(db.pool);
    await holder.commit();
    expect(await completing).toBeNull();
    expect(await client().completeCallback(job.callbackId)).toMatchObject({ status: "gone", how: "expired" });
    expect(await followUps(job.id)).toEqual([]);
  });

  test("a heartbeat that isn't committed yet: the sweep skips the row; committed, it counts", async () => {
    const job = await makeWaiting(db.pool, expired);
    const holder = await holdTransaction(db.pool);
    expect(await holder.run(extendIfPending(job.callbackId, 60))).toMatchObject({
      extendedIn: "waiting_external",
    });
    expect(await database.query(sweep())).toEqual({ picked: 0, rescued: [] });
    await holder.commit();
    expect(await database.query(sweep())).toEqual({ picked: 0, rescued: [] });
  });

  test("a heartbeat that commits between the sweep's snapshot and its lock: the callback isn't expired", async () => {
    const jobs = await Promise.all(Array.from({ length: 5 }, () => makeWaiting(db.pool, expired)));
    const [first] = jobs;
    if (first === undefined) expect.fail("no job");
    // The sweep's own statement, held up between its snapshot and its locks.
    const { text, values, decode } = sweep();
    const slowed = text.replace(
      "WHERE j.state = 'waiting_external'",
      `WHERE ${SLOWLY} AND j.state = 'waiting_external'`,
    );
    expect(slowed).not.toBe(text);
    const sweeping = database.query({ text: slowed, values, decode });
    await new Promise((resolve) => setTimeout(resolve, 150));
    await client().heartbeatCallback(first.callbackId, 600);
    const { rescued } = await sweeping;
    expect(rescued.map((job) => job.jobId)).not.toContain(first.id);
    expect(rescued).toHaveLength(4);
    expect(await client().getJob(first.id)).toMatchObject({ state: "waiting_external" });
    await expectCallbacksAndJobsAgree();
  });

  test("two sweeps at once share the rows: each rescued once, one outbox row each", async () => {
    await Promise.all(
      Array.from({ length: 200 }, (_, n) => makeWaiting(db.pool, { ...expired, args: { n } })),
    );
    const pages = await Promise.all(Array.from({ length: 4 }, () => database.query(sweep())));
    expect(pages.flatMap((page) => page.rescued.map((job) => job.jobId)).length).toBe(200);
    const { rows } = await db.pool.query(
      "SELECT count(*)::int AS n, count(DISTINCT job_id)::int AS d FROM awa_edge.rescue_followups",
    );
    expect(rows).toEqual([{ n: 200, d: 200 }]);
    await expectCallbacksAndJobsAgree();
  });
});

describe("a callback registered behind a statement's snapshot", () => {
  test("the heartbeat sweep leaves the job to the next one rather than orphan the callback", async () => {
    const job = await makeRunning(db.pool, {
      registered: false,
      heartbeatAt: "now() - interval '10 minutes'",
    });
    const { text, values, decode } = rescueIfLost("stale_heartbeat", [], []);
    const slowed = text.replace("WHERE j.state = 'running'", `WHERE ${SLOWLY} AND j.state = 'running'`);
    expect(slowed).not.toBe(text);
    const sweeping = database.query({ text: slowed, values, decode });
    await new Promise((resolve) => setTimeout(resolve, 150));
    await register(db.pool, job.id);
    expect(await sweeping).toEqual({ picked: 1, rescued: [] });
    await expectCallbacksAndJobsAgree();
    expect(await database.query(rescueIfLost("stale_heartbeat", [], []))).toMatchObject({
      rescued: [{ jobId: job.id }],
    });
    await expectCallbacksAndJobsAgree();
  });

  test("a retry by hand that waited while the job went through another claim matches nothing", async () => {
    const job = await makeWaiting(db.pool);
    const holder = await holdTransaction(db.pool);
    await holder.query("SELECT FROM awa_edge.jobs WHERE id = $1 FOR UPDATE", [job.id]);
    const retrying = database.query(retryIfEndedOrWaiting(job.id));
    await untilBlocked(db.pool);
    await holder.run(await plan(job.callbackId, { type: "resume", payload: 1 }));
    await holder.query(
      "UPDATE awa_edge.jobs SET state = 'running', run_lease = 2, attempt = 1, heartbeat_at = now() WHERE id = $1",
      [job.id],
    );
    const next = "00000000-0000-4000-8000-00000000000a";
    await holder.query(
      "UPDATE awa_edge.jobs SET state = 'waiting_external', heartbeat_at = NULL, callback_id = $2 WHERE id = $1",
      [job.id, next],
    );
    await holder.query(
      "INSERT INTO awa_edge.callbacks (id, job_id, run_lease, timeout_at) VALUES ($1, $2, 2, now() + interval '1 hour')",
      [next, job.id],
    );
    await holder.commit();
    expect(await retrying).toMatchObject({ retried: false });
    await expectCallbacksAndJobsAgree();
    expect(await client().retry(job.id)).toEqual({ status: "retried" });
    await expectCallbacksAndJobsAgree();
  });
});

test("a heartbeat that loses against a complete says so", async () => {
  const job = await makeWaiting(db.pool);
  const slow = interrupt(
    database,
    () => true,
    () => client().completeCallback(job.callbackId),
  );
  expect(await extendCallback(slow, job.callbackId, 60)).toEqual({ status: "already_resolved" });
});

test("the guard is in the statement: wrong state, lease or callback moves nothing", async () => {
  const job = await makeWaiting(db.pool, { runLease: 4 });
  const reading = (await client().getJob(job.id)) ?? expect.fail("no job");
  const guard = {
    jobId: job.id,
    state: reading.state,
    runLease: reading.runLease,
    callbackId: job.callbackId,
  };
  const move = (other: object) =>
    database.query(
      moveIfUnchanged(
        { ...guard, ...other },
        { job: { ...reading }, ended: null, error: null },
        { state: "cancelled", payload: undefined, error: null },
        [],
        new Date(),
      ),
    );
  for (const other of [
    { state: "running" },
    { runLease: "3" },
    { callbackId: "00000000-0000-4000-8000-000000000000" },
    { callbackId: null },
  ]) {
    expect(await move(other)).toEqual({ moved: false });
  }
  expect(await client().getJob(job.id)).toEqual(reading);
});
