import { randomUUID } from "node:crypto";
import * as v from "valibot";
import { beforeEach, describe, expect, test } from "vitest";
import { createClient } from "../../src/client.ts";
import { celRules } from "../../src/shared/cel-rules.ts";
import { DatabaseError } from "../../src/shared/db/errors.ts";
import { countRoundTrips, type Database } from "../../src/shared/db/port.ts";
import {
  lockTarget,
  moveForDelivery,
  recordUnlessPending,
} from "../../src/shared/db/statements/record-delivery.ts";
import { useTestDatabase } from "../support/database.ts";
import { deliver, deliveriesIn, type Event, toReceive } from "../support/deliver.ts";
import { emptyTables } from "../support/empty-tables.ts";
import { claim, makeRunning, makeWaiting, snapshot } from "../support/factory.ts";
import { holdTransaction, interrupt, untilBlocked } from "../support/races.ts";
import { testRegistry } from "../support/registry.ts";
import { registryWithSources, trustingScheme } from "../support/sources.ts";
import { tick } from "../support/tick.ts";

const { db, database } = useTestDatabase();
let broken = false;
const registry = registryWithSources({ broken: () => broken });
const client = createClient({ database, registry });
const pool = () => db.pool;

beforeEach(async () => {
  broken = false;
  await emptyTables(pool());
});

const jobOf = async (id: string) => (await client.getJob(id)) ?? expect.fail("no such job");
const outcomesOf = async (id: string) =>
  (await client.getFollowUps(id)).map(({ kind, trigger }) => `${trigger?.outcome} ${kind}`);
let n = 0;
/** A job of the kind `order` that waits for the shop's event with this key. */
const parkFor = (correlationKey: string, more = {}) =>
  client.park("order", { n: ++n }, { source: "shop", correlationKey, ...more });
/** Parks an event for a callback that isn't there, in a transaction that is still open. */
async function parkUncommitted(event: Event) {
  const { delivery, interpretation } = toReceive(registry, event);
  const { meaning, target } = interpretation.ok ? interpretation.value : expect.fail();
  if (target === null) return expect.fail();
  const parker = await holdTransaction(pool());
  await parker.run(lockTarget("shop", target));
  const record = { delivery, meaning, target, jobId: null, reason: null, error: null };
  const parked = recordUnlessPending("shop", target, false, { ...record, state: "parked" });
  expect(await parker.run(parked)).toBe(true);
  return parker;
}
const COMPLETED = ["waiting_for_callback after", "completed after", "completed once"];

describe("an event for a pending callback", () => {
  test("found by its correlation key: the job completes with the payload, its follow-ups and the delivery in one statement", async () => {
    const { jobId } = await parkFor("ord-1");
    const counted = countRoundTrips(() => database);
    const receipt = await deliver(counted, registry, {
      deliveryId: "d1",
      told: { key: "ord-1", does: "complete", payload: { paid: 5 } },
    });
    expect(receipt).toMatchObject({
      status: "moved",
      jobId,
      state: "completed",
      dueIn: ["follow-ups", "default"],
    });
    expect(counted.roundTrips).toBe(2);
    expect(await jobOf(jobId)).toMatchObject({ state: "completed", result: { paid: 5 } });
    expect(await outcomesOf(jobId)).toEqual(COMPLETED);
    expect(await deliveriesIn(pool())).toMatchObject([
      {
        delivery_id: "d1",
        state: "resolved",
        job_id: jobId,
        correlation_key: "ord-1",
        attempts: 1,
        last_error: null,
      },
    ]);
  });

  test("found by the id in the URL, or in the payload", async () => {
    const [inUrl, inPayload] = [await parkFor("a"), await makeWaiting(pool())];
    const { callbackId } = inUrl;
    await deliver(database, registry, { path: String(callbackId), told: { does: "complete" } });
    await deliver(database, registry, { told: { callback: inPayload.callbackId, does: "complete" } });
    expect((await jobOf(inUrl.jobId)).state).toBe("completed");
    expect((await jobOf(inPayload.id)).state).toBe("completed");
  });

  test("of another source it isn't found, neither by its key nor by its id", async () => {
    const { jobId, callbackId } = await parkFor("ord-1");
    const before = await jobOf(jobId);
    const told = { key: "ord-1", does: "complete" };
    expect(await deliver(database, registry, { source: "bank", told })).toEqual({ status: "parked" });
    const byId = { source: "bank", path: String(callbackId), told: { does: "complete" } };
    expect(await deliver(database, registry, byId)).toEqual({ status: "parked" });
    expect(await jobOf(jobId)).toEqual(before);
  });

  test.each([
    ["fail", "declined", "failed", "exhausted after"],
    ["retry", undefined, "available", "retried after"],
    ["resume", { a: 1 }, "available", null],
    ["resolve", { a: 1 }, "completed", "completed after"],
  ] as const)("%s", async (does, payload, state, followUp) => {
    const { jobId } = await parkFor("k");
    expect(await deliver(database, registry, { told: { key: "k", does, payload } })).toMatchObject({
      status: "moved",
      state,
    });
    expect((await jobOf(jobId)).state).toBe(state);
    expect(await outcomesOf(jobId)).toEqual(expect.arrayContaining(followUp === null ? [] : [followUp]));
  });

  test("heartbeat: its time-out is put off, once for a delivery", async () => {
    const { jobId } = await parkFor("k", { timeoutSeconds: 10 });
    const event = { deliveryId: "beat", told: { key: "k", does: "heartbeat", payload: 5000 } };
    expect(await deliver(database, registry, event)).toMatchObject({ status: "extended", jobId });
    const [callback] = await client.getCallbacks(jobId);
    expect((callback?.timeoutAt.getTime() ?? 0) - Date.now()).toBeGreaterThan(4_000_000);
    expect(await deliver(database, registry, event)).toEqual({ status: "duplicate", state: "resolved" });
  });

  test("ignored events, and those that name no callback, are kept with their reason", async () => {
    const { jobId } = await parkFor("k");
    expect(await deliver(database, registry, { told: { key: "k", does: "ignore" } })).toMatchObject({
      status: "ignored",
    });
    expect(await deliver(database, registry, { told: { does: "complete" } })).toMatchObject({
      status: "ignored",
    });
    expect(
      await deliver(database, registry, { told: { key: "other", does: "heartbeat", payload: 1 } }),
    ).toMatchObject({ status: "ignored" });
    expect((await deliveriesIn(pool())).map(({ state, reason }) => [state, reason])).toEqual([
      ["ignored", "not of interest"],
      ["ignored", "the event names no callback"],
      ["ignored", "no pending callback whose time-out could be put off"],
    ]);
    expect((await jobOf(jobId)).state).toBe("waiting_external");
  });
});

describe("a redelivery", () => {
  test("does nothing and costs one statement", async () => {
    await parkFor("k");
    const event = { deliveryId: "d1", told: { key: "k", does: "complete" } };
    await deliver(database, registry, event);
    const before = await snapshot(pool());
    const counted = countRoundTrips(() => database);
    expect(await deliver(counted, registry, event)).toEqual({ status: "duplicate", state: "resolved" });
    expect(counted.roundTrips).toBe(1);
    expect(await snapshot(pool())).toEqual(before);
  });

  test("Devlaner/devlane#332, preloop/preloop#517: twenty at once, over their own connections, have one effect", async () => {
    for (const does of ["complete", "retry", "resume", "ignore", "heartbeat"]) {
      const { jobId } = await parkFor(does);
      const event = { deliveryId: does, told: { key: does, does, payload: 900 } };
      const receipts = await Promise.all(
        Array.from({ length: 20 }, () => deliver(database, registry, event)),
      );
      expect(
        receipts.filter(({ status }) => status !== "duplicate"),
        does,
      ).toHaveLength(1);
      const followUps = await outcomesOf(jobId);
      expect(new Set(followUps).size, does).toBe(followUps.length);
    }
    expect(await deliveriesIn(pool())).toHaveLength(5);
  });

  test("the same delivery of another source is another delivery", async () => {
    await deliver(database, registry, { deliveryId: "1", told: { does: "ignore" } });
    expect(
      await deliver(database, registry, { source: "bank", deliveryId: "1", told: { does: "ignore" } }),
    ).toMatchObject({ status: "ignored" });
  });

  test("two deliveries of one event, at once: one moves the job, the other is late", async () => {
    for (let i = 0; i < 20; i++) {
      const { jobId } = await parkFor(`two-${i}`);
      const event = { told: { key: `two-${i}`, does: "complete" } };
      const receipts = await Promise.all([
        deliver(database, registry, event),
        deliver(database, registry, event),
      ]);
      expect(receipts.map(({ status }) => status).sort()).toEqual(["late", "moved"]);
      expect(await outcomesOf(jobId)).toEqual(COMPLETED);
    }
  });

  test("one that another build has ignored meanwhile doesn't move the job: the whole statement is undone", async () => {
    const { jobId } = await parkFor("k");
    const other = await holdTransaction(pool());
    await other.query(
      "INSERT INTO awa_edge.deliveries (source, delivery_id, state, body) VALUES ('shop', 'd1', 'ignored', '{}')",
    );
    const ours = deliver(database, registry, { deliveryId: "d1", told: { key: "k", does: "complete" } });
    await untilBlocked(pool());
    await other.commit();
    expect(await ours).toEqual({ status: "duplicate", state: "ignored" });
    expect((await jobOf(jobId)).state).toBe("waiting_external");
    expect(await outcomesOf(jobId)).toEqual(["waiting_for_callback after"]);
  });

  test("a failed one that somebody else is just resolving isn't resolved twice", async () => {
    const { jobId } = await parkFor("k");
    broken = true;
    await deliver(database, registry, { deliveryId: "d1", told: { key: "k", does: "complete" } });
    broken = false;
    const other = await holdTransaction(pool());
    await other.query(
      "UPDATE awa_edge.deliveries SET state = 'ignored', last_error = NULL, next_attempt_at = NULL",
    );
    const ours = deliver(database, registry, { deliveryId: "d1", told: { key: "k", does: "complete" } });
    await untilBlocked(pool());
    await other.commit();
    expect(await ours).toEqual({ status: "duplicate", state: "ignored" });
    expect((await jobOf(jobId)).state).toBe("waiting_external");
  });
});

describe("nothing half-done", () => {
  test("where the delivery can't be recorded the job isn't moved", async () => {
    const { jobId, callbackId } = await parkFor("k");
    const given = toReceive(registry, { deliveryId: "d1", told: { key: "k", does: "complete" } });
    const { planMove } = await import("../../src/shared/use-cases/resolve-callback.ts");
    const { readCallback } = await import("../../src/shared/db/statements/read-callback.ts");
    const reading = (await database.query(readCallback(callbackId ?? expect.fail()))) ?? expect.fail();
    const planned = planMove(registry, reading, { type: "complete", payload: null });
    if (!planned.ok) return expect.fail();
    const before = await snapshot(pool());
    const record = { meaning: null, target: null, jobId: null, reason: null, error: null } as const;
    // No such state: the last part of the statement fails.
    const broken = moveForDelivery(planned.value, { ...record, delivery: given.delivery, state: "parked" });
    await expect(database.query(broken)).rejects.toMatchObject({ kind: "rejected" });
    expect(await snapshot(pool())).toEqual(before);
    expect((await jobOf(jobId)).state).toBe("waiting_external");
  });
});

describe("inngest/inngest#1433: an event that comes before its callback", () => {
  test("is parked, and consumed in the transaction that registers the callback", async () => {
    const early = await deliver(database, registry, { told: { key: "k", does: "complete", payload: 7 } });
    expect(early).toEqual({ status: "parked" });
    const parked = await parkFor("k");
    expect(await jobOf(parked.jobId)).toMatchObject({ state: "completed", result: 7 });
    expect(await outcomesOf(parked.jobId)).toEqual(COMPLETED);
    expect(await client.getCallbacks(parked.jobId)).toMatchObject([{ state: "completed", payload: 7 }]);
    expect(await deliveriesIn(pool())).toMatchObject([{ state: "resolved", job_id: parked.jobId }]);
  });

  test.each([
    ["fail", "no", "failed"],
    ["retry", null, "available"],
    ["resume", 1, "available"],
    ["resolve", 1, "completed"],
  ] as const)("early %s", async (does, payload, state) => {
    await deliver(database, registry, { told: { key: "k", does, payload } });
    expect((await jobOf((await parkFor("k")).jobId)).state).toBe(state);
    expect(await deliveriesIn(pool(), "state = 'parked'")).toEqual([]);
  });

  test("of several the first resolves it; the others are late, with what they would have done", async () => {
    for (const payload of [1, 2, 3])
      await deliver(database, registry, { told: { key: "k", does: "complete", payload } });
    const { jobId } = await parkFor("k");
    expect(await jobOf(jobId)).toMatchObject({ state: "completed", result: 1 });
    expect(await deliveriesIn(pool())).toMatchObject([
      { state: "resolved" },
      { state: "late", job_id: jobId, meaning: { type: "complete", payload: 2 } },
      { state: "late", job_id: jobId, meaning: { type: "complete", payload: 3 } },
    ]);
  });

  test("more than one registration looks at are left to the tick, which finds them late", async () => {
    for (let i = 0; i < 13; i++)
      await deliver(database, registry, { told: { key: "k", does: "complete", payload: i } });
    const { jobId } = await parkFor("k");
    expect(await jobOf(jobId)).toMatchObject({ state: "completed", result: 0 });
    await tick(database, registry, { runsJobs: false });
    expect((await deliveriesIn(pool())).map(({ state }) => state)).toEqual([
      "resolved",
      ...Array(12).fill("late"),
    ]);
  });

  test("rules are asked: what they ignore doesn't resolve, and what comes next does", async () => {
    await deliver(database, registry, {
      told: { key: "k", does: "resolve", payload: { status: "starting" } },
    });
    await deliver(database, registry, { told: { key: "k", does: "resolve", payload: { status: "done" } } });
    const { jobId } = await parkFor("k", { rules: { filter: 'payload.status == "done"' } });
    expect(await jobOf(jobId)).toMatchObject({ state: "completed", result: { status: "done" } });
    expect((await deliveriesIn(pool())).map(({ state }) => state)).toEqual(["ignored", "resolved"]);
  });

  test("where its follow-up can't be planned the registration goes through, and the tick records the failure", async () => {
    await deliver(database, registry, { told: { key: "k", does: "complete" } });
    const { jobId } = await client.park("poison", { n: 1 }, { source: "shop", correlationKey: "k" });
    expect((await jobOf(jobId)).state).toBe("waiting_external");
    await tick(database, registry, { runsJobs: false });
    expect(await deliveriesIn(pool())).toMatchObject([
      { state: "failed", last_error: expect.stringContaining("poison-message") },
    ]);
    expect((await jobOf(jobId)).state).toBe("waiting_external");
  });

  test("where Postgres refuses its follow-up the registration goes through as well", async () => {
    await deliver(database, registry, { told: { key: "k", does: "complete" } });
    await pool().query("ALTER TABLE awa_edge.jobs ADD CONSTRAINT no_once CHECK (kind <> 'once')");
    try {
      const { jobId } = await parkFor("k");
      expect((await jobOf(jobId)).state).toBe("waiting_external");
      await tick(database, registry, { runsJobs: false });
      expect(await deliveriesIn(pool())).toMatchObject([{ state: "failed" }]);
    } finally {
      await pool().query("ALTER TABLE awa_edge.jobs DROP CONSTRAINT no_once");
    }
  });

  test("a job that wasn't parked, for its unique key, leaves it where it is", async () => {
    await client.enqueue("order", { n: 1 }, { unique: true });
    await deliver(database, registry, { told: { key: "k", does: "complete" } });
    n = 0;
    expect(await parkFor("k", { unique: true })).toMatchObject({ deduplicated: true });
    expect(await deliveriesIn(pool())).toMatchObject([{ state: "parked" }]);
  });

  test("two waits with one key can't be: the second is refused by name, and nothing is parked", async () => {
    await parkFor("k");
    const before = await snapshot(pool());
    await expect(parkFor("k")).rejects.toThrow("another callback is waiting for this correlationKey");
    expect(await snapshot(pool())).toEqual(before);
  });
});

describe("a race of an event with the registration of its callback", () => {
  const event = { told: { key: "k", does: "complete", payload: 1 } };
  const settled = async (jobId: string) => {
    expect(await jobOf(jobId)).toMatchObject({ state: "completed", result: 1 });
    expect(await outcomesOf(jobId)).toEqual(COMPLETED);
    expect(await deliveriesIn(pool())).toMatchObject([{ state: "resolved" }]);
  };

  test("the event parks first: the registration waits for it, and takes it along", async () => {
    const parker = await parkUncommitted(event);
    const registering = parkFor("k");
    await untilBlocked(pool());
    await parker.commit();
    await settled((await registering).jobId);
  });

  test("the registration comes first: the event waits for it, and resolves it", async () => {
    const statement = await client.prepare.park("order", { n: 1 }, { source: "shop", correlationKey: "k" });
    const registrar = await holdTransaction(pool());
    const parked = (await registrar.run(statement)) ?? expect.fail();
    const delivering = deliver(database, registry, event);
    await untilBlocked(pool());
    await registrar.commit();
    expect(await delivering).toMatchObject({ status: "moved" });
    await settled(parked.jobId);
  });

  test("the event comes between the registration's reading and its lock: it reads again", async () => {
    const late = interrupt(
      database,
      (text) => text.includes("nextval"),
      () => deliver(database, registry, event),
    );
    const { jobId } = await createClient({ database: late, registry }).park(
      "order",
      { n: 1 },
      { source: "shop", correlationKey: "k" },
    );
    await settled(jobId);
  });

  test("the callback is registered between the event's reading and its lock: it reads again", async () => {
    let jobId = "";
    const interrupted = {
      ...database,
      batch: async (statements: Parameters<typeof database.batch>[0]) => {
        if (jobId === "") ({ jobId } = await parkFor("k"));
        return database.batch(statements);
      },
    } as typeof database;
    expect(await deliver(interrupted, registry, event)).toMatchObject({ status: "moved" });
    await settled(jobId);
  });

  test("a registration that was the victim of a deadlock runs again, also where nothing came early", async () => {
    let deadlocks = 1;
    const contended = {
      ...database,
      batch: async (statements: Parameters<typeof database.batch>[0]) => {
        if (deadlocks-- > 0) throw new DatabaseError("contended", "40P01");
        return database.batch(statements);
      },
    } as typeof database;
    const other = createClient({ database: contended, registry });
    const { jobId } = await other.park("order", { n: 1 }, { source: "shop", correlationKey: "k" });
    expect((await jobOf(jobId)).state).toBe("waiting_external");
  });

  test("as they come, two hundred times: never lost, never twice", async () => {
    const done = await Promise.all(
      Array.from({ length: 200 }, async (_, i) => {
        const told = { key: `race-${i}`, does: "complete", payload: 1 };
        const [{ jobId }] = await Promise.all([
          parkFor(`race-${i}`),
          deliver(database, registry, { told }),
          deliver(database, registry, { deliveryId: `race-${i}`, told: { does: "ignore" } }),
        ]);
        return jobId;
      }),
    );
    for (const jobId of done) {
      expect((await jobOf(jobId)).state).toBe("completed");
      expect(await outcomesOf(jobId)).toEqual(COMPLETED);
    }
    expect(await deliveriesIn(pool(), "state = 'parked'")).toEqual([]);
  });
});

describe("a callback registered in the application's own transaction", () => {
  const prepare = (correlationKey: string) =>
    client.prepare.park("order", { n: 1 }, { source: "shop", correlationKey });

  test.each(["REPEATABLE READ", "SERIALIZABLE"])(
    "under %s it is refused: it wouldn't see an event that parked meanwhile",
    async (isolation) => {
      const statement = await prepare("k");
      const tx = await holdTransaction(pool());
      await tx.query(`SET TRANSACTION ISOLATION LEVEL ${isolation}`);
      await expect(tx.run(statement)).rejects.toThrow(`READ COMMITTED only, and not under ${isolation}`);
    },
  );

  test("what came early is left to the next tick, which resolves it", async () => {
    await deliver(database, registry, { told: { key: "k", does: "complete", payload: 1 } });
    const parked = (await database.query(await prepare("k"))) ?? expect.fail();
    expect((await jobOf(parked.jobId)).state).toBe("waiting_external");
    const { counts } = await tick(database, registry, { runsJobs: false });
    expect(counts("retry_deliveries")).toMatchObject({ resolved: 1 });
    expect(await jobOf(parked.jobId)).toMatchObject({ state: "completed", result: 1 });
  });

  test("retention leaves what came early, however old, to the tick that is to try it", async () => {
    await deliver(database, registry, { told: { key: "k", does: "complete", payload: 1 } });
    await pool().query("UPDATE awa_edge.deliveries SET received_at = now() - interval '8 days'");
    const parked = (await database.query(await prepare("k"))) ?? expect.fail();
    await tick(database, registry, { runsJobs: false });
    expect(await jobOf(parked.jobId)).toMatchObject({ state: "completed", result: 1 });
  });

  test("an event for its id that comes before the commit is parked, and left to the tick", async () => {
    const statement = await prepare("k");
    const registrar = await holdTransaction(pool());
    const parked = (await registrar.run(statement)) ?? expect.fail();
    const delivering = deliver(database, registry, {
      path: String(parked.callbackId),
      told: { does: "complete" },
    });
    await untilBlocked(pool());
    await registrar.commit();
    expect(await delivering).toMatchObject({ status: "moved" });
  });

  test("the event parks while it is registered, uncommitted: the registration waits, and has the tick look", async () => {
    const statement = await prepare("k");
    const parker = await parkUncommitted({ told: { key: "k", does: "complete" } });
    const registering = database.query(statement);
    await untilBlocked(pool());
    await parker.commit();
    const { jobId } = (await registering) ?? expect.fail();
    await tick(database, registry, { runsJobs: false });
    expect((await jobOf(jobId)).state).toBe("completed");
  });

  test("an id that nobody registered in the end: the event stays parked, until retention", async () => {
    expect(await deliver(database, registry, { path: randomUUID(), told: { does: "complete" } })).toEqual({
      status: "parked",
    });
    const { counts } = await tick(database, registry, { runsJobs: false });
    expect(counts("backlog")).toMatchObject({
      dueDeliveries: 0,
      oldestParkedDeliverySeconds: expect.any(Number),
    });
    await pool().query("UPDATE awa_edge.deliveries SET received_at = now() - interval '8 days'");
    const later = await tick(database, registry, { runsJobs: false });
    expect(later.counts("retention")).toMatchObject({ parkedDeliveries: 1, doneDeliveries: 0 });
    expect(await deliveriesIn(pool())).toEqual([]);
  });
});

describe("an event that comes too late", () => {
  test("for a callback by its id: kept, with what it would have done", async () => {
    const { jobId, callbackId } = await parkFor("k");
    await client.completeCallback(String(callbackId));
    const receipt = await deliver(database, registry, {
      path: String(callbackId),
      told: { does: "fail", payload: "no" },
    });
    expect(receipt).toMatchObject({ status: "late", jobId, reason: "its callback was completed" });
    expect(await deliveriesIn(pool())).toMatchObject([
      { state: "late", job_id: jobId, meaning: { type: "fail", error: "no" } },
    ]);
    expect((await jobOf(jobId)).state).toBe("completed");
  });

  test("for a correlation key whose job is over", async () => {
    const { jobId } = await parkFor("k");
    await deliver(database, registry, { told: { key: "k", does: "complete" } });
    expect(await deliver(database, registry, { told: { key: "k", does: "complete" } })).toMatchObject({
      status: "late",
      jobId,
    });
  });

  test("for a correlation key whose job goes on it is early: the next attempt registers the key again and takes it", async () => {
    const { jobId } = await parkFor("k", { timeoutSeconds: 0.001 });
    await tick(database, registry, { runsJobs: false });
    expect((await jobOf(jobId)).state).toBe("retryable");
    expect(await deliver(database, registry, { told: { key: "k", does: "complete" } })).toEqual({
      status: "parked",
    });
  });

  test("replayed after its callback was registered anew, it resolves it", async () => {
    await parkFor("k");
    await deliver(database, registry, { told: { key: "k", does: "complete" } });
    await deliver(database, registry, {
      deliveryId: "late",
      told: { key: "k", does: "complete", payload: 2 },
    });
    const again = await parkFor("k");
    expect(await client.deliveries.replay("shop", "late")).toMatchObject({
      status: "moved",
      jobId: again.jobId,
    });
    expect(await client.deliveries.replay("shop", "late")).toEqual({ status: "already_resolved" });
    expect(await jobOf(again.jobId)).toMatchObject({ state: "completed", result: 2 });
  });
});

describe("a retry for a job that isn't parked yet", () => {
  test("waits for it, and the tick applies it", async () => {
    const { id, callbackId } = await makeRunning(pool());
    expect(await deliver(database, registry, { path: callbackId, told: { does: "retry" } })).toEqual({
      status: "parked",
    });
    await pool().query("UPDATE awa_edge.deliveries SET next_attempt_at = now()");
    await tick(database, registry, { runsJobs: false });
    expect(await deliveriesIn(pool())).toMatchObject([
      { state: "parked", next_attempt_at: expect.any(Date) },
    ]);
    const { park } = await import("../support/factory.ts");
    await park(pool(), id);
    await pool().query("UPDATE awa_edge.deliveries SET next_attempt_at = now()");
    await tick(database, registry, { runsJobs: false });
    expect((await jobOf(id)).state).toBe("available");
    expect(await deliveriesIn(pool())).toMatchObject([{ state: "resolved" }]);
  });
});

describe("a source's code that fails", () => {
  const event = { deliveryId: "d1", told: { key: "k", does: "complete" } };

  test.each([
    ["throws", { does: "throw" }, "source-message"],
    ["returns nonsense", { does: "nonsense", key: "k" }, "no meaning"],
    ["gets a body that doesn't fit", { does: "dance" }, "doesn't fit the source's schema: at does"],
    ["names a callback that is none", { does: "complete", callback: "x" }, "no UUID"],
  ])("it %s: the delivery is kept with its error, and changes nothing", async (_, told, error) => {
    const { jobId } = await parkFor("k");
    expect(await deliver(database, registry, { told })).toMatchObject({ status: "failed", isFirst: true });
    expect(await deliveriesIn(pool())).toMatchObject([
      {
        state: "failed",
        attempts: 1,
        last_error: expect.stringContaining(error),
        next_attempt_at: expect.any(Date),
      },
    ]);
    expect((await jobOf(jobId)).state).toBe("waiting_external");
  });

  test("its sender hears of it once; a redelivery tries again, and resolves once the fault is mended", async () => {
    const { jobId } = await parkFor("k");
    broken = true;
    expect(await deliver(database, registry, event)).toMatchObject({ status: "failed", isFirst: true });
    expect(await deliver(database, registry, event)).toMatchObject({ status: "failed", isFirst: false });
    expect(await deliveriesIn(pool())).toMatchObject([{ state: "failed", attempts: 2 }]);
    broken = false;
    expect(await deliver(database, registry, event)).toMatchObject({ status: "moved", jobId });
    expect(await deliver(database, registry, event)).toEqual({ status: "duplicate", state: "resolved" });
    expect(await deliveriesIn(pool())).toMatchObject([
      { state: "resolved", last_error: null, next_attempt_at: null },
    ]);
  });

  test("the tick tries again with back-off, and gives up after twelve times, visibly", async () => {
    await parkFor("k");
    broken = true;
    await deliver(database, registry, event);
    const pauses: number[] = [];
    for (let attempts = 2; attempts <= 12; attempts++) {
      const due = await pool().query<{ pause: number }>(
        "SELECT extract(epoch FROM next_attempt_at - now())::float8 / 60 AS pause FROM awa_edge.deliveries",
      );
      pauses.push(Math.round(due.rows[0]?.pause ?? 0));
      await pool().query("UPDATE awa_edge.deliveries SET next_attempt_at = now()");
      await tick(database, registry, { runsJobs: false });
      expect(await deliveriesIn(pool())).toMatchObject([{ state: "failed", attempts }]);
    }
    expect(pauses).toEqual([2, 4, 8, 16, 32, 64, 128, 256, 360, 360, 360]);
    expect(await deliveriesIn(pool())).toMatchObject([{ next_attempt_at: null }]);
    broken = false;
    const { counts } = await tick(database, registry, { runsJobs: false });
    expect(counts("backlog")).toMatchObject({ abandonedDeliveries: 1, dueDeliveries: 0 });
  });

  test("the tick resolves it once the fault is mended", async () => {
    const { jobId } = await parkFor("k");
    broken = true;
    await deliver(database, registry, event);
    broken = false;
    await pool().query("UPDATE awa_edge.deliveries SET next_attempt_at = now()");
    const { counts, lines } = await tick(database, registry, { runsJobs: false });
    expect(counts("retry_deliveries")).toMatchObject({ resolved: 1, failed: 0 });
    expect(lines).toContainEqual(
      expect.objectContaining({ event: "delivery_retried", source: "shop", jobId }),
    );
    expect((await jobOf(jobId)).state).toBe("completed");
  });

  test("one that ends each tick that tries it doesn't keep the others from their turn", async () => {
    const jobs = [await parkFor("a"), await parkFor("b"), await parkFor("c")];
    broken = true;
    for (const key of ["a", "b", "c"])
      await deliver(database, registry, { deliveryId: key, told: { key, does: "complete" } });
    broken = false;
    const overdue = "UPDATE awa_edge.deliveries SET next_attempt_at = next_attempt_at - interval '1 hour'";
    await pool().query(overdue);
    const hangs: Database = {
      ...database,
      query: (statement) => {
        if (statement.values[1] === "a") throw new DatabaseError("unavailable", null);
        return database.query(statement);
      },
    };
    const states = async () => Promise.all(jobs.map(async ({ jobId }) => (await jobOf(jobId)).state));
    const end = ["waiting_external", "completed", "completed"];
    for (let ticks = 0; ticks < 50 && (await states()).join() !== end.join(); ticks++) {
      await tick(hangs, registry, { runsJobs: false });
      await pool().query(overdue);
    }
    expect(await states()).toEqual(end);
  });

  test("of a source that this build doesn't have: it is counted, and left to a build that does", async () => {
    await parkFor("k");
    broken = true;
    await deliver(database, registry, event);
    const before = await deliveriesIn(pool());
    const { counts } = await tick(database, testRegistry(), { runsJobs: false });
    expect(counts("backlog")).toMatchObject({
      unknownDeliveries: 1,
      dueDeliveries: 0,
      abandonedDeliveries: 0,
    });
    expect(await deliveriesIn(pool())).toEqual(before);
  });

  test("two ticks at once resolve it once", async () => {
    const { jobId } = await parkFor("k");
    broken = true;
    await deliver(database, registry, event);
    broken = false;
    await pool().query("UPDATE awa_edge.deliveries SET next_attempt_at = now()");
    await Promise.all([1, 2, 3].map(() => tick(database, registry, { runsJobs: false })));
    expect(await outcomesOf(jobId)).toEqual(COMPLETED);
  });

  test("an operator replays one, or all of a state", async () => {
    const jobs = [await parkFor("a"), await parkFor("b"), await parkFor("c")];
    broken = true;
    for (const key of ["a", "b", "c"])
      await deliver(database, registry, { deliveryId: key, told: { key, does: "complete" } });
    expect(await client.deliveries.replay("shop", "a")).toMatchObject({ status: "failed", isFirst: false });
    broken = false;
    expect(await client.deliveries.replay("shop", "a")).toMatchObject({
      status: "moved",
      jobId: jobs[0]?.jobId,
    });
    expect(await client.deliveries.replay("shop", "none")).toEqual({ status: "not_found" });
    expect(await client.deliveries.replayAll({ state: "failed" })).toEqual({ moved: 2 });
    for (const { jobId } of jobs) expect(await outcomesOf(jobId)).toEqual(COMPLETED);
  });

  test("deleted by retention between its reading and its replay: nothing is left to be done", async () => {
    await deliver(database, registry, { deliveryId: "d", told: { key: "k", does: "complete" } });
    const raced = interrupt(
      database,
      (text) => text.includes("callback__id"),
      () => pool().query("DELETE FROM awa_edge.deliveries"),
    );
    const replay = createClient({ database: raced, registry }).deliveries.replay("shop", "d");
    expect(await replay).toEqual({ status: "duplicate", state: "parked" });
    expect(await deliveriesIn(pool())).toEqual([]);
  });

  test("rules that this build can't read, of another build: kept, the callback is still pending", async () => {
    const { jobId } = await parkFor("k");
    await pool().query(`UPDATE awa_edge.callbacks SET rules = '{"newer": "true"}'`);
    const receipt = await deliver(database, registry, { told: { key: "k", does: "resolve" } });
    expect(receipt).toMatchObject({ status: "failed", isFirst: true });
    expect(await deliveriesIn(pool())).toMatchObject([
      { state: "failed", next_attempt_at: expect.any(Date) },
    ]);
    expect((await jobOf(jobId)).state).toBe("waiting_external");
  });

  test("rules that this build can't read don't stop a registration: the tick finds what came early", async () => {
    await deliver(database, registry, { told: { key: "k", does: "resolve" } });
    const engine = { ...celRules, judge: () => expect.fail("rules of a newer build") };
    const older = registryWithSources({ rules: engine });
    const wait = { source: "shop", correlationKey: "k", rules: { filter: "true" } };
    const { jobId } = await createClient({ database, registry: older }).park("order", { n: ++n }, wait);
    expect((await jobOf(jobId)).state).toBe("waiting_external");
    await tick(database, registry, { runsJobs: false });
    expect((await jobOf(jobId)).state).toBe("completed");
  });

  test("a meaning that this build can't read: registration and tick go on, its source's code says it again", async () => {
    await deliver(database, registry, { told: { key: "k", does: "complete" } });
    await pool().query(`UPDATE awa_edge.deliveries SET meaning = '{"type": "newer"}'`);
    const { jobId } = await parkFor("k");
    expect((await jobOf(jobId)).state).toBe("waiting_external");
    expect((await client.deliveries.list()).deliveries).toMatchObject([{ meaning: null, state: "parked" }]);
    await tick(database, registry, { runsJobs: false });
    expect((await jobOf(jobId)).state).toBe("completed");
  });

  test("a replay by a build without the source is refused, and leaves the delivery as it was", async () => {
    await deliver(database, registry, { deliveryId: "d", told: { key: "k", does: "complete" } });
    const before = await snapshot(pool());
    const other = createClient({ database, registry: testRegistry() });
    await expect(other.deliveries.replay("shop", "d")).rejects.toThrow("doesn't have the source shop");
    await expect(other.deliveries.replayAll({ state: "parked" })).rejects.toThrow("the source shop");
    expect(await snapshot(pool())).toEqual(before);
  });

  test("what its code throws may be anything", async () => {
    const odd = testRegistry().webhook("odd", {
      scheme: trustingScheme(),
      payload: v.unknown(),
      meaning: () => {
        throw Object.create(null);
      },
    });
    expect(await deliver(database, odd, { source: "odd", told: {} })).toMatchObject({ status: "failed" });
  });

  test("the tick tells of a kind that this build doesn't know", async () => {
    broken = true;
    const { id, callbackId } = await makeWaiting(pool(), { kind: "from_another_build" });
    await deliver(database, registry, { path: callbackId, told: { does: "complete" } });
    broken = false;
    await pool().query("UPDATE awa_edge.deliveries SET next_attempt_at = now()");
    const { lines } = await tick(database, registry, { runsJobs: false });
    expect(lines.filter((line) => line.event === "registry_drift")).toMatchObject([
      { jobId: id, kind: "from_another_build" },
    ]);
  });

  test("what was resolved is never replayed, whoever asks: the next wait for its key isn't its", async () => {
    await parkFor("k");
    await deliver(database, registry, event);
    const next = await parkFor("k");
    expect(await client.deliveries.replayAll(JSON.parse('{"state":"resolved"}'))).toEqual({ duplicate: 1 });
    expect((await jobOf(next.jobId)).state).toBe("waiting_external");
  });

  test("a follow-up that can't be planned, or that Postgres refuses: kept, the callback is still pending", async () => {
    const poison = await makeWaiting(pool(), { kind: "poison" });
    expect(
      await deliver(database, registry, { path: poison.callbackId, told: { does: "complete" } }),
    ).toMatchObject({ status: "failed" });
    expect((await jobOf(poison.id)).state).toBe("waiting_external");
    await pool().query("ALTER TABLE awa_edge.jobs ADD CONSTRAINT no_once CHECK (kind <> 'once')");
    const order = await makeWaiting(pool());
    try {
      expect(
        await deliver(database, registry, { path: order.callbackId, told: { does: "complete" } }),
      ).toMatchObject({ status: "failed" });
    } finally {
      await pool().query("ALTER TABLE awa_edge.jobs DROP CONSTRAINT no_once");
    }
    expect((await jobOf(order.id)).state).toBe("waiting_external");
    expect((await deliveriesIn(pool())).map(({ state }) => state)).toEqual(["failed", "failed"]);
    expect(await client.deliveries.replayAll({ state: "failed", source: "shop" })).toEqual({
      failed: 1,
      moved: 1,
    });
  });

  test("a body with what Postgres can't store in the payload is kept, too", async () => {
    await parkFor("k");
    const body = '{"key":"k","does":"complete","payload":"a\\u0000b"}';
    expect(await deliver(database, registry, { body })).toMatchObject({ status: "failed" });
    expect(await deliver(database, registry, { body: "not JSON" })).toMatchObject({ status: "failed" });
    const [first] = (await client.deliveries.list({ state: "failed" })).deliveries;
    expect(first).toMatchObject({ body, lastError: expect.stringContaining("NUL") });
  });
});

describe("the inbox", () => {
  test("lists by source and state, a page at a time", async () => {
    for (let i = 0; i < 5; i++)
      await deliver(database, registry, {
        deliveryId: `${i}`,
        headers: { "x-kind": "test" },
        told: { does: "ignore" },
      });
    await deliver(database, registry, {
      source: "bank",
      deliveryId: "b",
      told: { key: "k", does: "complete" },
    });
    const first = await client.deliveries.list({ source: "shop", limit: 3 });
    expect(first.deliveries.map(({ deliveryId }) => deliveryId)).toEqual(["0", "1", "2"]);
    const second = await client.deliveries.list({ source: "shop", limit: 3, after: first.next ?? "" });
    expect(second.deliveries.map(({ deliveryId }) => deliveryId)).toEqual(["3", "4"]);
    expect(second.next).toBeNull();
    expect((await client.deliveries.list({ state: "parked" })).deliveries).toMatchObject([
      { source: "bank", target: { correlationKey: "k" } },
    ]);
    expect(await client.deliveries.get("shop", "0")).toMatchObject({
      headers: { "x-kind": "test" },
      state: "ignored",
      attempts: 1,
    });
    expect(await client.deliveries.get("shop", "x")).toBeNull();
  });

  test("refuses what can't be", async () => {
    await expect(client.deliveries.list({ limit: 0 })).rejects.toThrow("limit");
    await expect(client.deliveries.list({ after: "x" })).rejects.toThrow("after");
    await expect(client.deliveries.list(JSON.parse('{"stat":"failed"}'))).rejects.toThrow(
      "no such condition: stat",
    );
    await expect(client.deliveries.list(JSON.parse('{"state":"lost"}'))).rejects.toThrow("state must be");
    await expect(client.deliveries.replayAll(JSON.parse("{}"))).rejects.toThrow("which state");
  });

  test("retention by state: resolved and ignored for a week, late and failed with the dead letters", async () => {
    broken = true;
    await deliver(database, registry, { deliveryId: "failed", told: { does: "ignore" } });
    broken = false;
    await deliver(database, registry, { deliveryId: "ignored", told: { does: "ignore" } });
    await deliver(database, registry, { deliveryId: "parked", told: { key: "k", does: "complete" } });
    await pool().query(
      "UPDATE awa_edge.deliveries SET received_at = now() - interval '8 days', next_attempt_at = NULL",
    );
    const kept = {
      completedSeconds: 1e6,
      failedSeconds: 1e6,
      deadLetterSeconds: 1e6,
      deliverySeconds: 1e6,
      parkedDeliverySeconds: 1e6,
    };
    const left = async (retention: typeof kept) => {
      await tick(database, registry, { runsJobs: false, retention });
      return (await deliveriesIn(pool())).map(({ delivery_id }) => delivery_id);
    };
    expect(await left(kept)).toEqual(["failed", "ignored", "parked"]);
    expect(await left({ ...kept, deliverySeconds: 1 })).toEqual(["failed", "parked"]);
    expect(await left({ ...kept, parkedDeliverySeconds: 1 })).toEqual(["failed"]);
    expect(await left({ ...kept, deadLetterSeconds: 1 })).toEqual([]);
  });
});

test("a job that was claimed again has another callback: the old id is late", async () => {
  const { id, callbackId } = await makeWaiting(pool());
  await client.retryCallback(callbackId);
  await claim(pool(), id);
  expect(await deliver(database, registry, { path: callbackId, told: { does: "complete" } })).toMatchObject({
    status: "late",
    reason: "its callback was retried",
  });
});
