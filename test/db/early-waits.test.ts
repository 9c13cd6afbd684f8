import { beforeEach, describe, expect, test } from "vitest";
import { createClient } from "../../src/client.ts";
import type { ExecutorDeps } from "../../src/executor/deps.ts";
import {
  complete,
  type Handler,
  type HandlerContext,
  type RegisteredCallback,
  waitForCallback,
} from "../../src/shared/registry/handler.ts";
import { useTestDatabase } from "../support/database.ts";
import { deliver, deliveriesIn } from "../support/deliver.ts";
import { emptyTables } from "../support/empty-tables.ts";
import { run as runAll } from "../support/executor.ts";
import { registryWithSources } from "../support/sources.ts";
import { tick } from "../support/tick.ts";

// Handlers that wait for webhooks, which come before, while and after they register their callbacks.

const { db, database } = useTestDatabase();
const registry = registryWithSources();
const client = createClient({ database, registry });

beforeEach(async () => {
  await emptyTables(db.pool);
});

type Ctx = HandlerContext<{ n: number }>;
const run = (handler: Handler<{ n: number }>, overrides: Partial<ExecutorDeps> = {}) =>
  runAll(database, registryWithSources().handle("order", handler).queue("default"), overrides);
const enqueue = async (options = {}) => (await client.enqueue("order", { n: 1 }, options)).jobId;
const jobOf = async (id: string) => (await client.getJob(id)) ?? expect.fail("the job is gone");
const event = (does: string, payload: unknown = null) =>
  deliver(database, registry, { told: { key: "k", does, payload } });
const BY_KEY = { source: "shop", correlationKey: "k" };
const parks = async (ctx: Ctx) => {
  await ctx.registerCallback(BY_KEY);
  return waitForCallback();
};

describe("registerCallback", () => {
  test("of a source: the provider's URL of this callback is given", async () => {
    const got: RegisteredCallback[] = [];
    await enqueue();
    const callbacks = { baseUrl: "https://edge.example", pathPrefix: "/api/callbacks", secrets: [] };
    await run(
      async (ctx) => {
        got.push(await ctx.registerCallback({ source: "shop" }));
        got.push(await ctx.registerCallback());
        return waitForCallback();
      },
      { callbacks },
    );
    expect(got[0]?.webhookUrl).toBe(`https://edge.example/webhooks/shop/${got[0]?.callbackId}`);
    expect(got[1]?.webhookUrl).toBeNull();
  });

  test.each([
    ["complete", "completed", ["completed after", "completed once"]],
    ["fail", "failed", ["exhausted after"]],
  ])(
    "an early %s ends the job in the transaction that registers; the handler's own end is stale",
    async (does, state, followUps) => {
      const id = await enqueue();
      await event(does, "early");
      const { lines } = await run(parks);
      expect((await jobOf(id)).state).toBe(state);
      expect(
        (await client.getFollowUps(id)).map(({ kind, trigger }) => `${trigger?.outcome} ${kind}`),
      ).toEqual(followUps);
      expect(await deliveriesIn(db.pool)).toMatchObject([{ state: "resolved", job_id: id }]);
      expect(lines).toContainEqual(
        expect.objectContaining({ event: "early_delivery", source: "shop", jobId: id, state }),
      );
    },
  );

  test("an early retry waits until the job is parked, and the tick applies it", async () => {
    const id = await enqueue();
    await event("retry");
    await run(parks);
    expect((await jobOf(id)).state).toBe("waiting_external");
    await tick(database, registry, { runsJobs: false });
    expect((await jobOf(id)).state).toBe("available");
    expect(await deliveriesIn(db.pool)).toMatchObject([{ state: "resolved" }]);
  });

  test("what came between two attempts is taken by the next one, which registers the same key", async () => {
    const id = await enqueue();
    await run(async (ctx) => {
      await ctx.registerCallback({ ...BY_KEY, timeoutSeconds: 0.001 });
      return waitForCallback();
    });
    await tick(database, registry, { runsJobs: false });
    expect((await jobOf(id)).state).toBe("retryable");
    expect(await event("complete", "in between")).toEqual({ status: "parked" });
    await db.pool.query("UPDATE awa_edge.jobs SET run_at = now()");
    await run(parks);
    expect(await jobOf(id)).toMatchObject({ state: "completed", result: "in between", attempt: 2 });
  });

  test("a second registration of the same job supersedes the first, with the same key", async () => {
    const id = await enqueue();
    await run(async (ctx) => {
      await ctx.registerCallback(BY_KEY);
      return parks(ctx);
    });
    expect((await client.getCallbacks(id)).map(({ state }) => state)).toEqual(["superseded", "pending"]);
    expect(await event("complete")).toMatchObject({ status: "moved" });
  });

  test("a key that another job waits for, an unknown source, a key without source: clear errors, and the job stays the handler's", async () => {
    await client.park("order", { n: 2 }, BY_KEY);
    const id = await enqueue();
    const faults: string[] = [];
    await run(async (ctx) => {
      for (const wait of [
        BY_KEY,
        { source: "nobody" },
        { correlationKey: "k" },
        { source: "shop", correlationKey: "" },
        { rules: { filter: "payload." } },
      ]) {
        await ctx.registerCallback(wait).catch((thrown: Error) => faults.push(thrown.message));
      }
      return complete("done");
    });
    expect(faults).toEqual([
      "another callback is waiting for this correlationKey of the source",
      "source isn't a source of this registry",
      "correlationKey needs the source whose key it is",
      "correlationKey must have 1 to 200 characters",
      expect.stringMatching(/^filter: /),
    ]);
    expect(await jobOf(id)).toMatchObject({ state: "completed", result: "done" });
  });

  test("stale: an early delivery is left for whoever has the job", async () => {
    const id = await enqueue();
    await event("complete");
    await run(async (ctx) => {
      await db.pool.query("UPDATE awa_edge.jobs SET run_lease = run_lease + 1 WHERE id = $1", [id]);
      await expect(ctx.registerCallback(BY_KEY)).rejects.toThrow("stale");
    });
    expect(await deliveriesIn(db.pool)).toMatchObject([{ state: "parked" }]);
  });
});

describe("waitForCallback by name", () => {
  const waits = (seen: unknown[]) => async (ctx: Ctx) => {
    const payload = await ctx.waitForCallback("paid", BY_KEY);
    seen.push(payload);
    return complete({ payload });
  };

  test.each(["resume", "resolve"])(
    "an early %s: the handler goes on in the same invocation, no attempt is spent",
    async (does) => {
      const id = await enqueue();
      await event(does, { paid: true });
      const seen: unknown[] = [];
      await run(waits(seen));
      expect(seen).toEqual([{ paid: true }]);
      expect(await jobOf(id)).toMatchObject({
        state: "completed",
        attempt: 1,
        result: { payload: { paid: true } },
      });
    },
  );

  test("resolve while it is parked resumes the handler, as a handler awaits it", async () => {
    const id = await enqueue();
    const seen: unknown[] = [];
    await run(waits(seen));
    expect((await jobOf(id)).state).toBe("waiting_external");
    expect(await event("resolve", 5)).toMatchObject({
      status: "moved",
      state: "available",
      dueIn: ["default"],
    });
    await run(waits(seen));
    expect(seen).toEqual([5]);
    expect(await jobOf(id)).toMatchObject({ state: "completed", attempt: 1 });
  });

  test("two waits with the same key: the second event, which comes before the second wait, isn't lost", async () => {
    const id = await enqueue();
    const handler = async (ctx: Ctx) => {
      const first = await ctx.waitForCallback("first", BY_KEY);
      const second = await ctx.waitForCallback("second", BY_KEY);
      return complete({ first, second });
    };
    await run(handler);
    expect(await event("resume", 1)).toMatchObject({ status: "moved" });
    expect(await event("resume", 2)).toEqual({ status: "parked" });
    await run(handler);
    expect(await jobOf(id)).toMatchObject({ state: "completed", result: { first: 1, second: 2 } });
    expect(await deliveriesIn(db.pool, "state = 'parked'")).toEqual([]);
  });

  test("two events before the first of two waits with the same key: each wait gets its own", async () => {
    const id = await enqueue();
    for (const payload of [1, 2]) expect(await event("resume", payload)).toEqual({ status: "parked" });
    await run(async (ctx: Ctx) => {
      const first = await ctx.waitForCallback("first", BY_KEY);
      const second = await ctx.waitForCallback("second", BY_KEY);
      return complete({ first, second });
    });
    expect(await jobOf(id)).toMatchObject({ state: "completed", result: { first: 1, second: 2 } });
    expect((await deliveriesIn(db.pool)).map(({ state }) => state)).toEqual(["resolved", "resolved"]);
  });
});
