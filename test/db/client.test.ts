import { beforeEach, describe, expect, test } from "vitest";
import { createClient } from "../../src/client.ts";
import { NOTHING_EARLY } from "../../src/shared/db/statements/early-deliveries.ts";
import { parkUnlessDuplicate } from "../../src/shared/db/statements/park-job.ts";
import { newCallbackId } from "../../src/shared/ids.ts";
import type { JobEvent } from "../../src/shared/registry/define.ts";
import { checkJobInsert } from "../../src/shared/registry/job-insert.ts";
import { signCallbackId } from "../../src/shared/signature.ts";
import { checkWait } from "../../src/shared/wait.ts";
import { useTestDatabase } from "../support/database.ts";
import { emptyTables } from "../support/empty-tables.ts";
import { claim, makeRunning, makeWaiting, snapshot } from "../support/factory.ts";
import { holdTransaction, interrupt, untilBlocked } from "../support/races.ts";
import { testRegistry } from "../support/registry.ts";

const SECRET = "a1".repeat(32);
const { db, database } = useTestDatabase();
const registry = testRegistry();
const callbacks = { baseUrl: "https://edge.example/", secrets: [SECRET, "b2".repeat(32)] };
const client = () => createClient({ database, registry, callbacks });

beforeEach(async () => {
  await emptyTables(db.pool);
});

describe("enqueue", () => {
  test("defaults, and every option", async () => {
    const plain = await client().enqueue("plain", { n: 1 });
    expect(await client().getJob(plain.jobId)).toMatchObject({
      state: "available",
      queue: "default",
      priority: 2,
      attempt: 0,
      maxAttempts: 25,
      runLease: "0",
      metadata: {},
      tags: [],
      trigger: null,
    });
    const runAt = new Date(Date.now() + 3_600_000);
    const full = await client().enqueue(
      "plain",
      { n: 2 },
      {
        queue: "q",
        priority: 4,
        maxAttempts: 3,
        metadata: { a: [1] },
        tags: ["x", 'y"z', "{}"],
        unique: { byQueue: true, byPeriodSeconds: 3600 },
        runAt,
        deadlineSeconds: 1.5,
        orderingKey: "customer-1",
      },
    );
    expect(await client().getJob(full.jobId)).toMatchObject({
      state: "scheduled",
      queue: "q",
      priority: 4,
      maxAttempts: 3,
      metadata: { a: [1] },
      tags: ["x", 'y"z', "{}"],
      runAt,
      deadlineSeconds: 1.5,
      orderingKey: "customer-1",
      uniqueKey: expect.stringMatching(/^[0-9a-f]{32}$/),
    });
  });

  test("bad input: a clear error, nothing inserted", async () => {
    const before = await snapshot(db.pool);
    const wrong: [object, object, RegExp][] = [
      [{ n: "secret-value" }, {}, /can't enqueue plain: its args don't fit the kind's schema: at n/],
      [{ n: 1 }, { queue: "" }, /queue must have 1 to 200 characters/],
      [{ n: 1 }, { priority: 5 }, /priority must be a whole number from 1 to 4/],
      [{ n: 1 }, { metadata: { a: "\0" } }, /metadata contains a NUL character/],
      [
        { n: 1 },
        { unique: { states: ["running"] } },
        /running must have scheduled, available, retryable as well/,
      ],
      [{ n: 1 }, { tags: Array(21).fill("t") }, /tags must be a list of 20 at most/],
      [{ n: 1 }, { runAt: new Date(Number.NaN) }, /runAt isn't a valid Date/],
    ];
    for (const [args, options, message] of wrong) {
      await expect(client().enqueue("plain", args as never, options as never)).rejects.toThrow(message);
    }
    expect(await snapshot(db.pool)).toEqual(before);
  });

  test("Devlaner/devlane#332 ten at once with one unique key: one job, nine told which", async () => {
    const all = await Promise.all(
      Array.from({ length: 10 }, () => client().enqueue("once", { n: 5 }, { unique: true })),
    );
    expect(all.filter((enqueued) => !enqueued.deduplicated)).toHaveLength(1);
    expect(new Set(all.map((enqueued) => enqueued.jobId)).size).toBe(1);
  });

  test("the key's holder isn't committed yet: the second waits, then says which job", async () => {
    const holder = await holdTransaction(db.pool);
    const first = await holder.run(client().prepare.enqueue("once", { n: 6 }, { unique: true }));
    const second = client().enqueue("once", { n: 6 }, { unique: true });
    await untilBlocked(db.pool);
    await holder.commit();
    expect(await second).toEqual({ jobId: first?.jobId, deduplicated: true });
  });

  test("E13 a parked job holds its key; an ended one lets it go", async () => {
    const parked = await client().park("once", { n: 7 }, { unique: true });
    expect(await client().enqueue("once", { n: 7 }, { unique: true })).toEqual({
      jobId: parked.jobId,
      deduplicated: true,
    });
    await client().completeCallback(parked.callbackId ?? "");
    expect(await client().enqueue("once", { n: 7 }, { unique: true })).toMatchObject({ deduplicated: false });
  });
});

describe("park", () => {
  test("E1 parked as its first attempt, with callback, URL, signature and follow-up; the closure saw the stored callback id", async () => {
    const parked = await client().park(
      "order",
      { n: 3 },
      { timeoutSeconds: 60, name: "payment", queue: "q" },
    );
    expect(parked).toMatchObject({
      deduplicated: false,
      callbackUrl: `https://edge.example/api/callbacks/${parked.callbackId}/complete`,
      signature: signCallbackId(SECRET, parked.callbackId ?? ""),
    });
    expect(await client().getJob(parked.jobId)).toMatchObject({
      state: "waiting_external",
      queue: "q",
      attempt: 1,
      runLease: "1",
      callbackId: parked.callbackId,
      attemptedAt: expect.any(Date),
    });
    const [callback] = await client().getCallbacks(parked.jobId);
    expect(callback).toMatchObject({
      id: parked.callbackId,
      name: "payment",
      state: "pending",
      runLease: "1",
    });
    expect((callback?.timeoutAt.getTime() ?? 0) - (callback?.createdAt.getTime() ?? 0)).toBe(60_000);
    expect(await client().getFollowUps(parked.jobId)).toMatchObject([
      {
        args: { of: "waiting_for_callback", detail: parked.callbackId },
        trigger: { jobId: parked.jobId, outcome: "waiting_for_callback", runLease: "1" },
      },
    ]);
  });

  test("vercel/workflow#553 nobody says how long: an hour", async () => {
    const parked = await client().park("plain", { n: 1 });
    const [callback] = await client().getCallbacks(parked.jobId);
    expect((callback?.timeoutAt.getTime() ?? 0) - (callback?.createdAt.getTime() ?? 0)).toBe(3_600_000);
  });

  test("again with the same unique key (an answer that was lost): the same job, callback, URL and signature", async () => {
    const first = await client().park("order", { n: 4 }, { unique: true });
    const again = await client().park("order", { n: 4 }, { unique: true });
    expect(again).toEqual({ ...first, deduplicated: true, followUps: [] });
    expect(await client().getFollowUps(first.jobId)).toHaveLength(1);
  });

  test("bad input: an error, nothing inserted", async () => {
    const before = await snapshot(db.pool);
    for (const timeoutSeconds of [0, -1, Number.NaN, Number.POSITIVE_INFINITY, 31_536_001]) {
      await expect(client().park("plain", { n: 1 }, { timeoutSeconds })).rejects.toThrow(/timeoutSeconds/);
    }
    await expect(client().park("plain", { n: 1 }, { name: "x".repeat(201) })).rejects.toThrow(/name/);
    await expect(client().park("plain", { n: "x" } as never)).rejects.toThrow(/at n/);
    expect(await snapshot(db.pool)).toEqual(before);
  });

  test("nothing half-done: a follow-up that Postgres refuses leaves no job and no callback", async () => {
    const insert = checkJobInsert(registry.kinds, { kind: "plain", args: { n: 1 }, options: {} }, new Date());
    if (!insert.ok) expect.fail(insert.error);
    const before = await snapshot(db.pool);
    const wait = checkWait({ timeoutSeconds: 60 }, registry);
    if (!wait.ok) expect.fail(wait.error);
    const callback = { ...wait.value, id: newCallbackId() };
    const broken = [{ ...insert.value, priority: 9 }];
    await expect(
      database.query(parkUnlessDuplicate(insert.value, callback, broken, null, NOTHING_EARLY)),
    ).rejects.toMatchObject({ kind: "rejected" });
    expect(await snapshot(db.pool)).toEqual(before);
  });
});

describe("cancel", () => {
  test.each(["waiting", "running", "available", "scheduled"])(
    "E8 %s: cancelled, its callback too, with the follow-up",
    async (from) => {
      const id =
        from === "waiting"
          ? (await makeWaiting(db.pool)).id
          : from === "running"
            ? (await makeRunning(db.pool)).id
            : (
                await client().enqueue(
                  "order",
                  { n: 1 },
                  from === "scheduled" ? { runAt: new Date(Date.now() + 9e6) } : {},
                )
              ).jobId;
      expect(await client().cancel(id, { reason: "customer left" })).toMatchObject({ status: "cancelled" });
      expect(await client().getJob(id)).toMatchObject({
        state: "cancelled",
        callbackId: null,
        errors: [{ error: "cancelled: customer left" }],
      });
      for (const callback of await client().getCallbacks(id)) expect(callback.state).toBe("cancelled");
      expect(await client().getFollowUps(id)).toMatchObject([
        { args: { of: "cancelled", detail: "customer left" }, trigger: { outcome: "cancelled" } },
      ]);
      expect(await client().cancel(id)).toEqual({ status: "already_ended", state: "cancelled" });
    },
  );
  test("unknown: not found; no id at all: an error", async () => {
    expect(await client().cancel("999999")).toEqual({ status: "not_found" });
    await expect(client().cancel("abc")).rejects.toThrow(/job id/);
  });
  test("a follow-up that can't be planned: nothing changes", async () => {
    const job = await makeWaiting(db.pool, { kind: "poison" });
    const before = await snapshot(db.pool);
    expect(await client().cancel(job.id)).toMatchObject({ status: "follow_up_failed" });
    expect(await snapshot(db.pool)).toEqual(before);
  });
  test("nothing half-done: a follow-up that Postgres refuses leaves job and callback as they were", async () => {
    const job = await makeWaiting(db.pool);
    const planned = await client().prepare.cancel(job.id);
    if (planned.statement === null) expect.fail("nothing to run");
    const before = await snapshot(db.pool);
    const values = planned.statement.values.map((value) =>
      typeof value === "string" ? value.replace('"priority":2', '"priority":9') : value,
    );
    await expect(database.query({ ...planned.statement, values })).rejects.toMatchObject({
      kind: "rejected",
      constraint: "job_priority_is_1_to_4",
    });
    expect(await snapshot(db.pool)).toEqual(before);
  });
  test("claimed between plan and write: planned again, cancelled once", async () => {
    const { jobId } = await client().enqueue("order", { n: 1 });
    const slow = interrupt(
      database,
      (text) => text.includes("UPDATE awa_edge.jobs"),
      () => claim(db.pool, jobId),
    );
    const racing = createClient({ database: slow, registry });
    expect(await racing.cancel(jobId)).toMatchObject({ status: "cancelled" });
    expect(await client().getFollowUps(jobId)).toHaveLength(1);
  });
});

describe("drain", () => {
  test("E10 all that nobody works on, counted, callbacks cleared, with follow-ups; running and other queues stay", async () => {
    const { id: waiting } = await makeWaiting(db.pool, { queue: "q" });
    const { jobId: available } = await client().enqueue("order", { n: 1 }, { queue: "q" });
    const { jobId: scheduled } = await client().enqueue(
      "order",
      { n: 2 },
      { queue: "q", runAt: new Date(Date.now() + 9e6) },
    );
    const { id: running } = await makeRunning(db.pool, { queue: "q" });
    const { id: poison } = await makeWaiting(db.pool, { queue: "q", kind: "poison" });
    const { id: elsewhere } = await makeWaiting(db.pool);
    expect(await client().drain("q", { reason: "closing" })).toEqual({
      cancelled: 3,
      followUpFailed: [poison],
    });
    const stateOf = async (id: string) => (await client().getJob(id))?.state;
    expect(await Promise.all([waiting, available, scheduled].map(stateOf))).toEqual(
      Array(3).fill("cancelled"),
    );
    expect(await Promise.all([running, poison, elsewhere].map(stateOf))).toEqual([
      "running",
      "waiting_external",
      "waiting_external",
    ]);
    expect(await client().getCallbacks(waiting)).toMatchObject([{ state: "cancelled" }]);
    expect(await client().getFollowUps(waiting)).toMatchObject([
      { args: { of: "cancelled", detail: "closing" } },
    ]);
    expect(await client().drain("q")).toEqual({ cancelled: 0, followUpFailed: [poison] });
  });
  test("more than a page; one that is claimed in between is left to its worker", async () => {
    const jobs = await Promise.all(
      Array.from({ length: 230 }, (_, n) => client().enqueue("plain", { n }, { queue: "q" })),
    );
    const [first] = jobs.map((job) => job.jobId).toSorted((a, b) => Number(a) - Number(b));
    if (first === undefined) expect.fail("no job");
    const slow = interrupt(
      database,
      (text) => text.includes("UPDATE awa_edge.jobs"),
      () => claim(db.pool, first),
    );
    const racing = createClient({ database: slow, registry });
    expect(await racing.drain("q")).toEqual({ cancelled: 229, followUpFailed: [] });
    expect(await client().getJob(first)).toMatchObject({ state: "running" });
  });
});

describe("retry", () => {
  test("E9 failed, cancelled or waiting: available, attempt 0, errors kept, callback cancelled, no dead letter", async () => {
    const failed = await makeWaiting(db.pool);
    await client().failCallback(failed.callbackId, "x");
    const cancelled = await makeWaiting(db.pool);
    await client().cancel(cancelled.id);
    const waiting = await makeWaiting(db.pool);
    for (const job of [failed, cancelled, waiting]) {
      expect(await client().retry(job.id)).toEqual({ status: "retried" });
      expect(await client().getJob(job.id)).toMatchObject({
        state: "available",
        attempt: 0,
        callbackId: null,
      });
    }
    expect((await client().getJob(failed.id))?.errors).toHaveLength(1);
    expect(await client().completeCallback(waiting.callbackId)).toMatchObject({
      status: "gone",
      how: "cancelled",
    });
    expect(await client().retry(failed.id)).toEqual({ status: "not_retriable", state: "available" });
    expect(await client().retry("999999")).toEqual({ status: "not_found" });
  });
});

describe("in the application's own transaction", () => {
  test("enqueue, park, cancel, retry and resolve commit or roll back with the application's rows", async () => {
    await db.pool.query("CREATE TABLE orders (id int PRIMARY KEY); GRANT INSERT ON orders TO awa_worker");
    const waiting = await makeWaiting(db.pool);
    const cancelMe = await makeWaiting(db.pool);
    const before = await snapshot(db.pool);
    const attempt = async (end: "COMMIT" | "ROLLBACK") => {
      const enqueue = client().prepare.enqueue("plain", { n: 1 });
      const park = await client().prepare.park("order", { n: 1 });
      const cancel = await client().prepare.cancel(cancelMe.id);
      const complete = await client().prepare.completeCallback(waiting.callbackId, { payload: 1 });
      if (cancel.statement === null || complete.statement === null) expect.fail("nothing to run");
      const mine = await db.workerPool.connect();
      await mine.query("BEGIN");
      await mine.query("INSERT INTO public.orders VALUES (1)");
      const results: unknown[] = [];
      for (const { text, values, decode } of [enqueue, park, cancel.statement, complete.statement]) {
        results.push(decode((await mine.query(text, [...values])).rows));
      }
      await mine.query(end);
      mine.release();
      return results;
    };
    await attempt("ROLLBACK");
    expect(await snapshot(db.pool)).toEqual(before);
    expect(await attempt("COMMIT")).toMatchObject([
      { deduplicated: false },
      { callbackUrl: expect.stringContaining("/complete"), signature: expect.any(String) },
      { status: "cancelled" },
      { status: "moved", state: "completed" },
    ]);
    expect((await db.pool.query("SELECT * FROM orders")).rowCount).toBe(1);
  });

  test("a plan that went stale decodes to null: the application rolls back", async () => {
    const job = await makeWaiting(db.pool);
    const planned = await client().prepare.completeCallback(job.callbackId);
    await client().failCallback(job.callbackId, "first");
    if (planned.statement === null) expect.fail("nothing to run");
    expect(await database.query(planned.statement)).toBeNull();
  });
});

test("hooks of the client's own outcomes run after the commit", async () => {
  const observed = testRegistry();
  const outcomes: string[] = [];
  observed.onEvent("order", (event: JobEvent) => {
    outcomes.push(`${event.type} ${event.job.state}`);
  });
  const running: Promise<void>[] = [];
  const watching = createClient({ database, registry: observed, waitUntil: (work) => running.push(work) });
  const parked = await watching.park("order", { n: 1 });
  await watching.cancel(parked.jobId);
  const other = await watching.park("order", { n: 2 });
  await watching.failCallback(other.callbackId ?? "", "x");
  await watching.failCallback(other.callbackId ?? "", "x");
  await Promise.all(running);
  expect(outcomes).toEqual([
    "waiting_for_callback waiting_external",
    "cancelled cancelled",
    "waiting_for_callback waiting_external",
    "exhausted failed",
  ]);
});

test("a receiver that can't be is refused before anything is parked", () => {
  const made = (receiver: Partial<typeof callbacks> & { pathPrefix?: string }) => () =>
    createClient({ database, registry, callbacks: { ...callbacks, ...receiver } });
  expect(made({ secrets: ["short"] })).toThrow(/64 hexadecimal digits/);
  expect(made({ baseUrl: "edge.example" })).toThrow(/baseUrl/);
  expect(made({ pathPrefix: "/a b" })).toThrow(/pathPrefix/);
});

test("a batch is one transaction: the second statement fails, the first didn't happen", async () => {
  const before = await snapshot(db.pool);
  const good = client().prepare.enqueue("plain", { n: 1 });
  const bad = { text: "SELECT 1 / $1::int", values: [0], decode: () => 0 };
  await expect(database.batch([good, bad])).rejects.toMatchObject({ kind: "rejected", sqlState: "22012" });
  expect(await snapshot(db.pool)).toEqual(before);
  const [one, two] = await database.batch([good, { ...bad, values: [1] }]);
  expect(one).toMatchObject({ deduplicated: false });
  expect(two).toBe(0);
});

test("nudge: told of the queues in which something is due now, and of nothing else", async () => {
  const nudged: (readonly string[])[] = [];
  const nudging = createClient({ database, registry, nudge: (queues) => nudged.push(queues) });
  await nudging.enqueue("plain", { n: 1 }, { queue: "a", unique: true });
  await nudging.enqueue("plain", { n: 1 }, { queue: "a", unique: true });
  await nudging.enqueue("plain", { n: 2 }, { queue: "b", runAt: new Date(Date.now() + 60_000) });
  const parked = await nudging.park("order", { n: 1 });
  await nudging.completeCallback(parked.callbackId ?? "", { resume: true });
  await nudging.completeCallback(parked.callbackId ?? "", { resume: true });
  await nudging.cancel(parked.jobId);
  expect(nudged).toEqual([["a"], ["follow-ups"], ["default"], ["follow-ups"]]);
});
