import { beforeEach, describe, expect, test } from "vitest";
import { migrate } from "../../scripts/lib/migrate.ts";
import { createClient } from "../../src/client.ts";
import { celRules } from "../../src/shared/cel-rules.ts";
import type { Rules } from "../../src/shared/rules.ts";
import { useTestDatabase } from "../support/database.ts";
import { deliver, deliveriesIn } from "../support/deliver.ts";
import { emptyTables } from "../support/empty-tables.ts";
import { executorDeps, run } from "../support/executor.ts";
import { snapshot } from "../support/factory.ts";
import { testRegistry } from "../support/registry.ts";
import { registryWithSources } from "../support/sources.ts";

// Rules of callbacks, stored and resolved: the reference's cel_callback_test. What is pure of it is in unit/rules.test.ts.

const { db, database } = useTestDatabase();
const client = createClient({ database, registry: testRegistry().withRules(celRules) });
const withoutRules = createClient({ database, registry: testRegistry() });
const registry = registryWithSources();

beforeEach(async () => {
  await emptyTables(db.pool);
});

const jobOf = async (id: string) => (await client.getJob(id)) ?? expect.fail("no such job");
async function parkWith(rules?: Rules) {
  const { jobId, callbackId } = await client.park("order", { n: 1 }, rules === undefined ? {} : { rules });
  const resolve = (payload: unknown) => client.resolveCallback(String(callbackId), payload as never);
  return { jobId, callbackId: String(callbackId), resolve };
}

describe("resolving by the callback's rules", () => {
  test("C1 none: complete with the payload", async () => {
    const { jobId, resolve } = await parkWith();
    expect(await resolve({ a: 1 })).toMatchObject({ status: "moved", state: "completed" });
    expect((await jobOf(jobId)).result).toEqual({ a: 1 });
  });
  test("C2 default ignore: the job goes on waiting, and nothing is written", async () => {
    const { resolve } = await parkWith({ default: "ignore" });
    const before = await snapshot(db.pool);
    expect(await resolve(1)).toMatchObject({ status: "ignored" });
    expect(await snapshot(db.pool)).toEqual(before);
  });
  test("C3 C4 filter: false is ignored, true goes on to the conditions", async () => {
    const { jobId, resolve } = await parkWith({
      filter: 'payload.type == "paid"',
      onComplete: "payload.amount > 10",
    });
    expect(await resolve({ type: "weighed", amount: 99 })).toMatchObject({
      status: "ignored",
      reason: "filter expression returned false",
    });
    expect((await jobOf(jobId)).state).toBe("waiting_external");
    expect(await resolve({ type: "paid", amount: 99 })).toMatchObject({ status: "moved" });
    expect((await jobOf(jobId)).state).toBe("completed");
  });
  test("C5 C6 onFail: failed with the expression that says so, also where onComplete holds", async () => {
    const { jobId, resolve } = await parkWith({ onFail: "payload.bad", onComplete: "true" });
    expect(await resolve({ bad: true })).toMatchObject({ status: "moved", state: "failed" });
    expect((await jobOf(jobId)).errors).toMatchObject([
      { error: "callback failed: on_fail expression matched", expression: "payload.bad", attempt: 1 },
    ]);
    expect(await client.getFollowUps(jobId)).toMatchObject([
      { args: { of: "waiting_for_callback" } },
      { args: { of: "exhausted" } },
    ]);
  });
  test("C7 transform: what the job and its follow-ups get", async () => {
    const { jobId, resolve } = await parkWith({
      onComplete: "true",
      transform: '{"euros": payload.amount / 100}',
    });
    await resolve({ amount: 4200 });
    expect((await jobOf(jobId)).result).toEqual({ euros: 42 });
    expect(await client.getCallbacks(jobId)).toMatchObject([{ payload: { euros: 42 } }]);
  });
  test("C8 C9 C15 a filter or transform that fails doesn't hold the job up; a condition that fails counts as false", async () => {
    const rules: Rules = {
      filter: "payload.a.b.c",
      onFail: "payload.missing",
      onComplete: "true",
      transform: "payload.none / 2",
    };
    const { jobId, resolve } = await parkWith(rules);
    await resolve({ a: 1 });
    expect(await jobOf(jobId)).toMatchObject({ state: "completed", result: { a: 1 } });
  });
  test("C10 nothing matches: the default, fail", async () => {
    const { jobId, resolve } = await parkWith({ onComplete: "payload.ok", default: "fail" });
    await resolve({ ok: false });
    const [error] = (await jobOf(jobId)).errors;
    expect(error).toMatchObject({ error: "callback failed: default action" });
    expect(error).not.toHaveProperty("expression");
  });
  test("C11 bad rules are refused at registration, and nothing is parked", async () => {
    const before = await snapshot(db.pool);
    await expect(parkWith({ filter: "payload.(" })).rejects.toThrow(/can't park order: filter: /);
    await expect(parkWith({ onFail: "other == 1" })).rejects.toThrow(/onFail: .*other/);
    await expect(parkWith(JSON.parse('{"on_complete":"true"}'))).rejects.toThrow("on_complete isn't a field");
    expect(await snapshot(db.pool)).toEqual(before);
  });
  test("C12 a second time: a duplicate where the rules say the same, otherwise already resolved", async () => {
    const { resolve } = await parkWith({ onFail: "payload.bad" });
    await resolve({});
    expect(await resolve({})).toMatchObject({ status: "duplicate", state: "completed" });
    expect(await resolve({ bad: true })).toMatchObject({ status: "already_resolved" });
  });
  test("C13 the migrations can be applied again", async () => {
    const databaseUrl = db.pool.options.connectionString;
    expect(await migrate({ databaseUrl: String(databaseUrl) })).toMatchObject({ applied: [] });
  });
  test("C14 a nested path", async () => {
    const { jobId, resolve } = await parkWith({
      onComplete: 'payload.data.object.status == "done"',
      default: "ignore",
    });
    await resolve({ data: { object: { status: "done" } } });
    expect((await jobOf(jobId)).state).toBe("completed");
  });
  test("C16 a job that is still running is resolved as well", async () => {
    const { jobId } = await client.enqueue("order", { n: 1 });
    const running = testRegistry()
      .withRules(celRules)
      .queue("default")
      .handle("order", async (ctx) => {
        const { callbackId } = await ctx.registerCallback({ rules: { onComplete: "payload == 7" } });
        expect((await client.resolveCallback(callbackId, 7)).status).toBe("moved");
      });
    await run(database, running);
    expect(await jobOf(jobId)).toMatchObject({ state: "completed", result: 7 });
  });
  test("C17 twenty at once: one moves the job, and its follow-ups come once", async () => {
    const { jobId, resolve } = await parkWith({ onComplete: "true" });
    const statuses = (await Promise.all(Array.from({ length: 20 }, () => resolve(1)))).map(
      ({ status }) => status,
    );
    expect(statuses.filter((status) => status === "moved")).toHaveLength(1);
    expect(statuses.filter((status) => status === "duplicate")).toHaveLength(19);
    expect(await client.getFollowUps(jobId)).toHaveLength(3);
  });
  test("never existed: not found", async () => {
    expect(await client.resolveCallback(crypto.randomUUID(), 1)).toEqual({ status: "not_found" });
  });
});

describe("a build that evaluates no rules", () => {
  test("C18 registering a callback with rules: a clear error, and nothing is parked", async () => {
    const before = await snapshot(db.pool);
    await expect(withoutRules.park("order", { n: 1 }, { rules: { onFail: "true" } })).rejects.toThrow(
      "registry.withRules(celRules)",
    );
    expect(await snapshot(db.pool)).toEqual(before);
    const { deps } = executorDeps(database, testRegistry());
    expect(deps.registry.ruleEngine()).toBeNull();
  });
  test("C19 resolving one that has rules: a clear error, and the row is untouched; complete and fail go on working", async () => {
    const { jobId, callbackId } = await parkWith({ onFail: "true" });
    const before = await snapshot(db.pool);
    await expect(withoutRules.resolveCallback(callbackId, 1)).rejects.toThrow("registry.withRules(celRules)");
    expect(await snapshot(db.pool)).toEqual(before);
    expect(await withoutRules.completeCallback(callbackId, { payload: 1 })).toMatchObject({
      status: "moved",
    });
    expect((await jobOf(jobId)).state).toBe("completed");
  });
});

describe("a webhook that means resolve", () => {
  test("is held against the rules; what they ignore is kept as ignored", async () => {
    const park = createClient({ database, registry });
    const { jobId } = await park.park(
      "order",
      { n: 1 },
      {
        source: "shop",
        correlationKey: "k",
        rules: { filter: "payload.final", onFail: "payload.error != null" },
      },
    );
    const tell = (payload: unknown) =>
      deliver(database, registry, { told: { key: "k", does: "resolve", payload } });
    expect(await tell({ final: false })).toEqual({
      status: "ignored",
      reason: "filter expression returned false",
    });
    expect(await tell({ final: true, error: "no paper" })).toMatchObject({
      status: "moved",
      state: "failed",
    });
    expect((await deliveriesIn(db.pool)).map(({ state }) => state)).toEqual(["ignored", "resolved"]);
    expect((await jobOf(jobId)).errors).toMatchObject([{ expression: "payload.error != null" }]);
  });
});
