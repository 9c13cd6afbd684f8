import { beforeEach, describe, expect, test } from "vitest";
import { createClient } from "../../src/client.ts";
import { TASKS } from "../../src/cron/scheduled.ts";
import { DatabaseError } from "../../src/shared/db/errors.ts";
import type { Database } from "../../src/shared/db/port.ts";
import {
  dispatchIfDue,
  MAX_DISPATCH_ATTEMPTS,
  readDueRescueFollowUps,
} from "../../src/shared/db/statements/rescue-follow-ups.ts";
import { rescueIfLost } from "../../src/shared/db/statements/rescue-jobs.ts";
import type { RescueReason } from "../../src/shared/outcome.ts";
import type { JobEvent } from "../../src/shared/registry/define.ts";
import { planFollowUps } from "../../src/shared/registry/plan.ts";
import { useTestDatabase } from "../support/database.ts";
import { emptyTables } from "../support/empty-tables.ts";
import {
  claim,
  type Made,
  type MadeJob,
  makeRunning,
  makeWaiting,
  park,
  register,
  snapshot,
} from "../support/factory.ts";
import { testRegistry } from "../support/registry.ts";
import { tick } from "../support/tick.ts";

const { db, database } = useTestDatabase();
const registry = testRegistry();
const client = () => createClient({ database, registry });

beforeEach(async () => {
  await emptyTables(db.pool);
});

const lost: Record<RescueReason, (made?: Made) => Promise<MadeJob>> = {
  stale_heartbeat: (made) => makeRunning(db.pool, { ...made, heartbeatAt: "now() - interval '91 seconds'" }),
  deadline_exceeded: (made) => makeRunning(db.pool, { ...made, deadlineAt: "now() - interval '1 second'" }),
  expired_callback: (made) => makeWaiting(db.pool, { ...made, timeoutAt: "now() - interval '1 second'" }),
};
const errorText: Record<RescueReason, string> = {
  stale_heartbeat: "heartbeat stale: worker presumed dead",
  deadline_exceeded: "hard deadline exceeded",
  expired_callback: "callback timed out",
};
const callbackState: Record<RescueReason, string> = {
  stale_heartbeat: "cancelled",
  deadline_exceeded: "cancelled",
  expired_callback: "expired",
};
const reasons = ["stale_heartbeat", "deadline_exceeded", "expired_callback"] as const;

const jobOf = async (id: string) => (await client().getJob(id)) ?? expect.fail("no such job");
const outbox = async () => (await db.pool.query("SELECT * FROM awa_edge.rescue_followups ORDER BY id")).rows;

describe.each(reasons)("%s", (reason) => {
  test("E5 below max_attempts: retryable with back-off; rescued follow-up, linked, nothing else", async () => {
    const job = await lost[reason]({ attempt: 3, progress: { percent: 40 } });
    const { counts } = await tick(database, registry);
    const rescued = await jobOf(job.id);
    expect(rescued).toMatchObject({
      state: "retryable",
      attempt: 3,
      progress: { percent: 40 },
      callbackId: null,
      heartbeatAt: null,
      deadlineAt: null,
      errors: [{ error: errorText[reason], attempt: 3, at: expect.stringMatching(/^\d{4}-.*Z$/) }],
    });
    const pause = (rescued.runAt.getTime() - (rescued.finalizedAt?.getTime() ?? 0)) / 1000;
    expect(pause).toBeGreaterThanOrEqual(8 - 0.01);
    expect(pause).toBeLessThan(10.01);
    expect(await client().getFollowUps(job.id)).toMatchObject([
      {
        kind: "after",
        args: { of: "rescued", detail: { reason, state: "retryable" } },
        trigger: { jobId: job.id, outcome: "rescued", runLease: "1" },
      },
    ]);
    expect(await outbox()).toEqual([]);
    expect(counts("dispatch_rescue_follow_ups")).toMatchObject({ dispatched: 1, followUps: 1 });
  });

  // The reference never looks at max_attempts for heartbeats and deadlines: a job that kills its worker would run for ever.
  test("at max_attempts: failed, a dead letter; the closure sees it from job.state", async () => {
    const job = await lost[reason]({ attempt: 2, maxAttempts: 2 });
    await tick(database, registry);
    expect(await jobOf(job.id)).toMatchObject({
      state: "failed",
      deadLetter: { reason: reason === "expired_callback" ? "callback_timeout" : "max_attempts_exhausted" },
    });
    expect(await client().getFollowUps(job.id)).toMatchObject([
      { args: { detail: { reason, state: "failed" } } },
    ]);
  });

  test("E12 its callback is ended: a late call is told so", async () => {
    const job = await lost[reason]();
    await tick(database, registry);
    expect(await client().completeCallback(job.callbackId)).toMatchObject({
      status: "gone",
      how: callbackState[reason],
    });
    expect(await client().getCallbacks(job.id)).toMatchObject([
      { state: callbackState[reason], resolvedTo: null },
    ]);
  });

  test("back-off stops growing at a day, and a hundred errors are kept", async () => {
    const job = await lost[reason]({ attempt: 999, maxAttempts: 1000 });
    await db.pool.query(
      `UPDATE awa_edge.jobs SET errors = (SELECT jsonb_agg(jsonb_build_object('error', n::text, 'attempt', n, 'at', '')) FROM generate_series(1, 100) n) WHERE id = $1`,
      [job.id],
    );
    await tick(database, registry);
    const rescued = await jobOf(job.id);
    expect((rescued.runAt.getTime() - (rescued.finalizedAt?.getTime() ?? 0)) / 1000).toBeCloseTo(86_400, 0);
    expect(rescued.errors).toHaveLength(100);
    expect(rescued.errors[0]).toMatchObject({ error: "2" });
    expect(rescued.errors.at(-1)).toMatchObject({ error: errorText[reason] });
  });

  test("conflicted A is cancelled as duplicate and gives up its key, innocent C is rescued, holder B is untouched", async () => {
    const key = "0".repeat(32);
    const uniqueStates = ["available", "retryable"];
    const a = await lost[reason]({ uniqueKey: key, uniqueStates });
    const { jobId: b } = await client().enqueue("plain", { n: 0 });
    await db.pool.query(
      "UPDATE awa_edge.jobs SET unique_key = decode($2, 'hex'), unique_states = $3 WHERE id = $1",
      [b, key, uniqueStates],
    );
    const c = await lost[reason]();
    const before = await jobOf(b);
    await tick(database, registry);
    expect(await jobOf(a.id)).toMatchObject({
      state: "cancelled",
      uniqueKey: null,
      deadLetter: null,
      errors: [
        { error: expect.stringMatching(/^rescued as duplicate: .* and unique claim held by a newer job$/) },
      ],
    });
    expect(await client().getFollowUps(a.id)).toEqual([]);
    expect(await jobOf(c.id)).toMatchObject({ state: "retryable" });
    expect(await jobOf(b)).toEqual(before);
  });

  test("two lost jobs that want the same key: the first gets it, the second is cancelled", async () => {
    const made = { uniqueKey: "1".repeat(32), uniqueStates: ["retryable"] };
    const [first, second] = [await lost[reason](made), await lost[reason](made)];
    await tick(database, registry);
    expect([await jobOf(first.id), await jobOf(second.id)]).toMatchObject([
      { state: "retryable" },
      { state: "cancelled" },
    ]);
  });

  test("nothing half-done: where the outbox refuses, job and callback stay as they were", async () => {
    const job = await lost[reason]();
    await db.pool.query(
      `INSERT INTO awa_edge.rescue_followups (job_id, run_lease, kind, reason, job) VALUES ($1, 1, 'order', $2, '{}')`,
      [job.id, reason],
    );
    const before = await snapshot(db.pool);
    await expect(database.query(rescueIfLost(reason, ["order"], []))).rejects.toThrow(DatabaseError);
    expect(await snapshot(db.pool)).toEqual(before);
  });
});

test("not lost: a fresh heartbeat, a deadline and a time-out ahead are left alone", async () => {
  await makeRunning(db.pool, {
    heartbeatAt: "now() - interval '85 seconds'",
    deadlineAt: "now() + interval '1 minute'",
  });
  await makeWaiting(db.pool);
  const before = await snapshot(db.pool);
  await tick(database, registry);
  expect(await snapshot(db.pool)).toEqual(before);
});

test("E25 a crash after a resume: the next attempt is rescued and can be worked again; E26 it can be cancelled", async () => {
  const job = await makeWaiting(db.pool);
  await client().completeCallback(job.callbackId, { resume: true });
  await claim(db.pool, job.id);
  await db.pool.query("UPDATE awa_edge.jobs SET heartbeat_at = now() - interval '1 hour' WHERE id = $1", [
    job.id,
  ]);
  await tick(database, registry);
  expect(await jobOf(job.id)).toMatchObject({ state: "retryable" });
  await claim(db.pool, job.id);
  expect(await client().cancel(job.id)).toMatchObject({ status: "cancelled" });
});

test("E21 the second callback of a lease times out: retryable; the first stays superseded", async () => {
  const job = await makeRunning(db.pool);
  const second = await register(db.pool, job.id, "now() - interval '1 second'");
  await park(db.pool, job.id);
  await tick(database, registry);
  expect(await jobOf(job.id)).toMatchObject({ state: "retryable" });
  expect(await client().completeCallback(second)).toMatchObject({ status: "gone", how: "expired" });
  expect(await client().completeCallback(job.callbackId)).toMatchObject({
    status: "gone",
    how: "superseded",
  });
});

test("oban-bg/oban#424 rescue frees the key of a job that is given up", async () => {
  const first = await client().enqueue("once", { n: 1 }, { unique: true, maxAttempts: 1 });
  await claim(db.pool, first.jobId);
  await db.pool.query("UPDATE awa_edge.jobs SET heartbeat_at = now() - interval '1 hour' WHERE id = $1", [
    first.jobId,
  ]);
  expect(await client().enqueue("once", { n: 1 }, { unique: true })).toMatchObject({ deduplicated: true });
  await tick(database, registry);
  expect(await client().enqueue("once", { n: 1 }, { unique: true })).toMatchObject({ deduplicated: false });
});

describe("the outbox", () => {
  test("only kinds with a rescued follow-up get a row", async () => {
    await lost.expired_callback({ kind: "plain" });
    await lost.expired_callback({ kind: "from_another_build" });
    await lost.expired_callback({ kind: "order" });
    const sweeps = TASKS.filter((task) => task.name.startsWith("rescue_"));
    const { lines } = await tick(database, registry, { tasks: sweeps });
    expect(await outbox()).toMatchObject([{ kind: "order", reason: "expired_callback", attempts: 0 }]);
    expect(lines.filter((line) => line.event === "registry_drift")).toMatchObject([
      { kind: "from_another_build" },
    ]);
  });

  test("a tick that dies after the sweep loses nothing: the next one dispatches", async () => {
    const job = await lost.stale_heartbeat();
    await tick(database, registry, { tasks: TASKS.filter((task) => task.name.startsWith("rescue_")) });
    expect(await client().getFollowUps(job.id)).toEqual([]);
    await tick(database, registry);
    expect(await client().getFollowUps(job.id)).toHaveLength(1);
  });

  test("two ticks dispatch the same rows: each follow-up once", async () => {
    const jobs = await Promise.all(Array.from({ length: 50 }, () => lost.expired_callback()));
    await tick(database, registry, { tasks: TASKS.filter((task) => task.name.startsWith("rescue_")) });
    const page = await database.query(readDueRescueFollowUps(["order"]));
    const dispatches = page.rows.map((row) => {
      const planned = planFollowUps(
        registry,
        { outcome: "rescued", job: row.job, context: { reason: row.reason } },
        new Date(),
      );
      return planned.ok
        ? ({ row, followUps: planned.value, failure: null } as const)
        : expect.fail("not planned");
    });
    const done = await Promise.all([1, 2, 3].map(() => database.query(dispatchIfDue(dispatches))));
    expect(done.reduce((sum, { followUps }) => sum + followUps.length, 0)).toBe(50);
    for (const job of jobs) expect(await client().getFollowUps(job.id)).toHaveLength(1);
  });

  test("oban-bg/oban#1390 a closure that throws: the rescue stands, neighbours go through, it is retried, then abandoned", async () => {
    const [before, poison, after] = [
      await lost.expired_callback(),
      await lost.expired_callback({ kind: "poison" }),
      await lost.expired_callback(),
    ];
    const first = await tick(database, registry);
    expect(await jobOf(poison.id)).toMatchObject({ state: "retryable" });
    expect(await client().getFollowUps(before.id)).toHaveLength(1);
    expect(await client().getFollowUps(after.id)).toHaveLength(1);
    expect(first.counts("dispatch_rescue_follow_ups")).toMatchObject({
      dispatched: 2,
      failed: 1,
      abandoned: 0,
    });
    expect(await outbox()).toMatchObject([
      { kind: "poison", attempts: 1, last_error: expect.stringContaining("threw Error") },
    ]);

    const again = await tick(database, registry);
    expect(again.counts("dispatch_rescue_follow_ups")).toMatchObject({ failed: 0 });
    for (let attempt = 2; attempt <= MAX_DISPATCH_ATTEMPTS; attempt++) {
      await db.pool.query("UPDATE awa_edge.rescue_followups SET next_attempt_at = now()");
      await tick(database, registry);
    }
    const [row] = await outbox();
    expect(row).toMatchObject({ attempts: MAX_DISPATCH_ATTEMPTS, abandoned_at: expect.any(Date) });
    await db.pool.query("UPDATE awa_edge.rescue_followups SET next_attempt_at = now()");
    const last = await tick(database, registry);
    expect(last.counts("dispatch_rescue_follow_ups")).toMatchObject({ failed: 0 });
    expect(last.counts("backlog")).toMatchObject({ abandonedRescueFollowUps: 1 });
  });

  test("a follow-up that only Postgres refuses: its neighbours go through, it is put off", async () => {
    const sick = testRegistry();
    // Three characters for JavaScript's check, more than the table allows once a trigger of the application's had its say.
    await db.pool.query(`CREATE FUNCTION refuse_detail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      IF NEW.args->'detail'->>'state' = 'failed' THEN NEW.priority := 9; END IF; RETURN NEW; END $$`);
    await db.pool.query(
      "CREATE TRIGGER refuse_detail BEFORE INSERT ON awa_edge.jobs FOR EACH ROW EXECUTE FUNCTION refuse_detail()",
    );
    try {
      const good = await Promise.all(Array.from({ length: 9 }, () => lost.expired_callback()));
      const bad = await lost.expired_callback({ maxAttempts: 1 });
      const { counts } = await tick(database, sick);
      expect(counts("dispatch_rescue_follow_ups")).toMatchObject({ dispatched: 9, followUps: 9, failed: 1 });
      for (const job of good) expect(await client().getFollowUps(job.id)).toHaveLength(1);
      expect(await client().getFollowUps(bad.id)).toEqual([]);
      expect(await outbox()).toMatchObject([
        { job_id: bad.id, attempts: 1, last_error: expect.stringContaining("job_priority_is_1_to_4") },
      ]);
    } finally {
      await db.pool.query("DROP TRIGGER refuse_detail ON awa_edge.jobs; DROP FUNCTION refuse_detail()");
    }
  });

  test("nothing half-done: a dispatch that Postgres refuses keeps its outbox row and inserts nothing", async () => {
    await lost.expired_callback();
    await tick(database, registry, { tasks: TASKS.filter((task) => task.name.startsWith("rescue_")) });
    const { rows } = await database.query(readDueRescueFollowUps(["order"]));
    const [row] = rows;
    if (row === undefined) expect.fail("nothing due");
    const planned = planFollowUps(
      registry,
      { outcome: "rescued", job: row.job, context: { reason: row.reason } },
      new Date(),
    );
    if (!planned.ok) expect.fail("not planned");
    const [good] = planned.value;
    if (good === undefined) expect.fail("no follow-up");
    const before = await snapshot(db.pool);
    await expect(
      database.query(dispatchIfDue([{ row, followUps: [good, { ...good, priority: 9 }], failure: null }])),
    ).rejects.toMatchObject({ kind: "rejected" });
    expect(await snapshot(db.pool)).toEqual(before);
  });

  test("large rows: a page by bytes, and one that is too large for any answer keeps nobody waiting", async () => {
    const sweeps = TASKS.filter((task) => task.name.startsWith("rescue_"));
    const sizes = [10_000_000, 3_000_000, 3_000_000, 10];
    for (const size of sizes) await lost.expired_callback({ args: { n: 1, filler: "x".repeat(size) } });
    await tick(database, registry, { tasks: sweeps });
    const page = await database.query(readDueRescueFollowUps(["order"]));
    expect([page.rows.length, page.more]).toEqual([1, true]);
    const { counts } = await tick(database, registry);
    expect(counts("dispatch_rescue_follow_ups")).toMatchObject({ dispatched: 3, failed: 0 });
    expect(await outbox()).toHaveLength(1);
  });

  test("what a build doesn't know stays for a build that does", async () => {
    await lost.expired_callback();
    await tick(database, registry, { tasks: TASKS.filter((task) => task.name.startsWith("rescue_")) });
    await db.pool.query("UPDATE awa_edge.rescue_followups SET kind = 'from_another_build'");
    const { counts } = await tick(database, registry);
    expect(await outbox()).toHaveLength(1);
    expect(counts("backlog")).toMatchObject({
      unknownRescueFollowUps: 1,
      oldestDueRescueFollowUpSeconds: null,
    });
  });
});

describe("hooks and tasks", () => {
  test("rescued and cancelled-as-duplicate reach onEvent; a hook that throws harms nobody", async () => {
    const observed = testRegistry();
    const events: Pick<JobEvent, "type">[] = [];
    observed
      .onEvent("order", () => {
        throw new Error("hook-message");
      })
      .onEvent("order", (event) => {
        events.push(event);
      });
    const job = await lost.stale_heartbeat();
    await lost.expired_callback({ uniqueKey: "2".repeat(32), uniqueStates: ["retryable"] });
    await lost.expired_callback({ uniqueKey: "2".repeat(32), uniqueStates: ["retryable"] });
    const { lines } = await tick(database, observed);
    expect(events).toMatchObject([
      {
        type: "rescued",
        reason: "stale_heartbeat",
        args: { n: 1 },
        job: { id: job.id, state: "retryable" },
      },
      { type: "rescued", reason: "expired_callback" },
      { type: "cancelled", reason: expect.stringContaining("rescued as duplicate") },
    ]);
    const failures = lines.filter((line) => line.event === "hook_failed");
    expect(failures).toHaveLength(3);
  });

  test("many rescues: a line for the first hundred, all of them in the counts", async () => {
    await Promise.all(Array.from({ length: 120 }, () => lost.expired_callback({ kind: "plain" })));
    const { lines, counts } = await tick(database, registry);
    expect(lines.filter((line) => line.event === "rescue")).toHaveLength(100);
    expect(counts("rescue_expired_callbacks")).toMatchObject({ rescued: 120 });
  });

  test("a task that fails is reported, and the others run", async () => {
    const job = await lost.expired_callback();
    const broken: Database = {
      query: (statement) =>
        statement.text.includes("heartbeat stale")
          ? Promise.reject(new DatabaseError("unavailable", null))
          : database.query(statement),
      batch: (statements) => database.batch(statements),
    };
    const { results, lines } = await tick(broken, registry);
    expect(results.map((result) => [result.task, result.ok])).toEqual([
      ["rescue_stale_heartbeats", false],
      ["rescue_overrun_deadlines", true],
      ["rescue_expired_callbacks", true],
      ["dispatch_rescue_follow_ups", true],
      ["enqueue_periodic_jobs", true],
      ["retention", true],
      ["backlog", true],
      ["retry_deliveries", true],
      ["run_due_jobs", true],
    ]);
    expect(lines.filter((line) => line.event === "tick_task")).toHaveLength(9);
    expect(await client().getFollowUps(job.id)).toHaveLength(1);
  });

  test("riverqueue/river#1258 the oldest stuck of each kind is reported", async () => {
    await lost.stale_heartbeat();
    await lost.deadline_exceeded();
    await lost.expired_callback();
    for (const queue of ["run", "run", "paused", "not-run"]) {
      await client().enqueue("plain", { n: 1 }, { queue });
    }
    await client().configureQueue("paused", { paused: true });
    await db.pool.query(
      "UPDATE awa_edge.jobs SET run_at = now() - interval '10 minutes' WHERE queue IN ('paused', 'not-run')",
    );
    const running = testRegistry().queue("run").queue("paused");
    const { counts } = await tick(database, running, {
      tasks: TASKS.filter((task) => task.name === "backlog"),
    });
    expect(counts("backlog")).toMatchObject({
      oldestDueJobSeconds: expect.toSatisfy((age: number) => age < 60),
      oldestStaleHeartbeatSeconds: expect.toSatisfy((age: number) => age >= 91 && age < 150),
      oldestOverrunDeadlineSeconds: expect.toSatisfy((age: number) => age >= 1 && age < 60),
      oldestExpiredCallbackSeconds: expect.toSatisfy((age: number) => age >= 1 && age < 60),
    });
  });
});
