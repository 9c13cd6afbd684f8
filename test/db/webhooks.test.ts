import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { startNeonServer } from "../../scripts/lib/neon-server.ts";
import { createClient, pgDatabase } from "../../src/client.ts";
import { createApp } from "../../src/ingress/app.ts";
import { registry as shop } from "../../src/registry.ts";
import { neonDatabase } from "../../src/shared/db/neon.ts";
import { countRoundTrips } from "../../src/shared/db/port.ts";
import type { LogEntry } from "../../src/shared/log.ts";
import type { RegistryView } from "../../src/shared/registry/define.ts";
import { carrierParcels } from "../../src/sources.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { deliveriesIn } from "../support/deliver.ts";
import { emptyTables } from "../support/empty-tables.ts";
import { snapshot } from "../support/factory.ts";
import { ingressDeps } from "../support/ingress.ts";
import { testRegistry } from "../support/registry.ts";
import { SOURCE_SECRETS, signed, type ToSign } from "../support/signed.ts";
import { registryWithSources } from "../support/sources.ts";
import { tick } from "../support/tick.ts";

// The real ingress and the real Neon driver, against a development server in this process: its statements can be counted and its
// answers broken.
let db: TestDatabase;
let neon: Awaited<ReturnType<typeof startNeonServer>>;
const lines: LogEntry[] = [];
const deferred: Promise<unknown>[] = [];
const executionContext = {
  waitUntil: (work: Promise<unknown>) => deferred.push(work),
  passThroughOnException() {},
  props: {},
};

beforeAll(async () => {
  db = await createTestDatabase();
  neon = await startNeonServer({ upstream: db.url });
  app = appOf(shop);
});
afterAll(async () => {
  await Promise.all(deferred);
  await neon.close();
  await db.drop();
});
beforeEach(async () => {
  await emptyTables(db.pool);
  neon.resetStatements(db.name);
  lines.length = 0;
});
afterEach(() => neon.fault(db.name));

const open = () =>
  neonDatabase({ connectionString: db.workerUrl, fetchEndpoint: neon.endpoint, timeoutMs: 2_000 });
function appOf(registry: RegistryView, database = open) {
  const log = (line: LogEntry) => lines.push(line);
  const env = { DATABASE_URL: db.workerUrl, AWA_CALLBACK_ALLOW_UNSIGNED: "true", ...SOURCE_SECRETS };
  return createApp(ingressDeps(env, { registry, log, database }));
}
let app: ReturnType<typeof appOf>;
const client = createClient({ database: countRoundTrips(() => pgDatabase(db.workerPool)), registry: shop });

async function send(toSign: ToSign, ingress = app, registry: RegistryView = shop) {
  const response = await ingress.request(await signed(registry, toSign), {}, {}, executionContext);
  const body: { status?: string; code?: string } = JSON.parse(await response.text());
  return { status: response.status, body };
}
const jobOf = async (id: string) => (await client.getJob(id)) ?? expect.fail("no such job");
const charge = () =>
  client.park(
    "charge_card",
    { orderId: "o-1", email: "a@b.example", amountCents: 100 },
    { source: "stripe" },
  );
const stripeEvent = (type: string, callbackId: string | null, id = crypto.randomUUID()): ToSign => ({
  source: "stripe",
  body: { id: `evt_${id}`, type, data: { object: { id: "pi_1", metadata: { callback_id: callbackId } } } },
});

describe("the example's sources", () => {
  test("Stripe: a payment that succeeded completes the charge, with its follow-ups, in two statements; its retry costs one", async () => {
    const { jobId, callbackId } = await charge();
    const event = stripeEvent("payment_intent.succeeded", callbackId);
    expect(await send(event)).toEqual({ status: 200, body: { status: "resolved" } });
    expect(neon.statements(db.name)).toBe(2);
    expect(await jobOf(jobId)).toMatchObject({ state: "completed", result: { chargeId: "pi_1" } });
    const kinds = (await client.getFollowUps(jobId)).map(({ kind }) => kind);
    expect(kinds).toEqual(["tell_support", "send_receipt", "ship_order"]);
    neon.resetStatements(db.name);
    expect(await send(event)).toEqual({ status: 200, body: { status: "duplicate" } });
    expect(neon.statements(db.name)).toBe(1);
    expect(await client.getFollowUps(jobId)).toHaveLength(3);
    expect(lines).toContainEqual(
      expect.objectContaining({
        event: "request",
        source: "stripe",
        delivery: "moved",
        jobId,
        outcome: "completed",
      }),
    );
  });

  test("Stripe: a payment that was canceled fails it, one that goes on keeps it waiting, anything else is ignored", async () => {
    const { jobId, callbackId } = await charge();
    expect(await send(stripeEvent("payment_intent.processing", callbackId))).toMatchObject({
      body: { status: "resolved" },
    });
    expect((await jobOf(jobId)).state).toBe("waiting_external");
    expect(await send(stripeEvent("customer.created", null))).toMatchObject({ body: { status: "ignored" } });
    expect(await send(stripeEvent("payment_intent.canceled", callbackId))).toMatchObject({
      body: { status: "resolved" },
    });
    expect((await jobOf(jobId)).state).toBe("failed");
    expect(await send(stripeEvent("payment_intent.succeeded", callbackId))).toMatchObject({
      status: 200,
      body: { status: "late" },
    });
  });

  test("GitHub: a status that comes before its deployment is waited for is parked, and ends it when it is", async () => {
    const status = (state: string) => ({
      source: "github",
      id: `d-${state}`,
      headers: { "X-GitHub-Event": "deployment_status" },
      body: { deployment: { id: 42 }, deployment_status: { state, environment_url: "https://shop.example" } },
    });
    const ping = {
      source: "github",
      headers: { "X-GitHub-Event": "ping" },
      body: { zen: "…" },
    };
    expect(await send(ping)).toMatchObject({ body: { status: "ignored" } });
    expect(await send(status("success"))).toMatchObject({ body: { status: "parked" } });
    expect(await send(status("success"))).toMatchObject({ body: { status: "duplicate" } });
    const { jobId } = await client.park(
      "release_shop",
      { deploymentId: 42 },
      { source: "github", correlationKey: "42" },
    );
    expect(await jobOf(jobId)).toMatchObject({ state: "completed", result: { url: "https://shop.example" } });
  });

  test("Standard Webhooks: the carrier's parcel finds the callback by our order's number", async () => {
    const { jobId } = await client.park(
      "ship_order",
      { orderId: "o-7" },
      { source: "carrier", correlationKey: "o-7" },
    );
    const parcel = (type: string) => ({
      source: "carrier",
      body: { type, data: { reference: "o-7", parcel: "P1" } },
    });
    expect(await send(parcel("parcel.weighed"))).toMatchObject({ body: { status: "ignored" } });
    expect(await send(parcel("parcel.collected"))).toMatchObject({ body: { status: "resolved" } });
    expect(await jobOf(jobId)).toMatchObject({ state: "completed", result: { parcel: "P1" } });
  });

  test("Replicate: every step puts the time-out off, the last one completes; the callback's id stands in the URL", async () => {
    const { jobId, callbackId } = await client.park(
      "draw_picture",
      { orderId: "o-1", prompt: "a cat" },
      { source: "replicate" },
    );
    const step = (status: string, more = {}) => ({
      source: "replicate",
      callbackId,
      body: { id: "p1", status, ...more },
    });
    expect(await send(step("starting"))).toMatchObject({ body: { status: "resolved" } });
    expect(await send(step("processing"))).toMatchObject({ body: { status: "resolved" } });
    expect((await jobOf(jobId)).state).toBe("waiting_external");
    expect(await send(step("succeeded", { output: ["https://img.example/1"] }))).toMatchObject({
      body: { status: "resolved" },
    });
    expect(await jobOf(jobId)).toMatchObject({
      state: "completed",
      result: { prediction: "p1", output: ["https://img.example/1"] },
    });
    const other = await client.park(
      "draw_picture",
      { orderId: "o-2", prompt: "a dog" },
      { source: "replicate" },
    );
    await send({ ...step("failed", { error: "out of memory" }), callbackId: other.callbackId });
    expect(await jobOf(other.jobId)).toMatchObject({ state: "failed", errors: [{ error: "out of memory" }] });
  });

  test("a signature of one source isn't one of another", async () => {
    const { jobId, callbackId } = await charge();
    const request = await signed(shop, {
      source: "replicate",
      callbackId,
      body: { id: "p", status: "succeeded" },
    });
    const elsewhere = new Request(request.url.replace("/replicate/", "/carrier/"), request);
    expect((await app.request(elsewhere)).status).toBe(401);
    expect((await jobOf(jobId)).state).toBe("waiting_external");
  });
});

describe("an answer that never came", () => {
  test("restatedev/restate#841 committed, then cut: 503, and the redelivery is a duplicate with one effect", async () => {
    const { jobId, callbackId } = await charge();
    const event = stripeEvent("payment_intent.succeeded", callbackId);
    neon.fault(db.name, ({ statements }) =>
      statements.some(({ text }) => text.includes("UPDATE")) ? "cut-after" : undefined,
    );
    expect(await send(event)).toMatchObject({ status: 503, body: { code: "database_unavailable" } });
    neon.fault(db.name);
    expect(await send(event)).toMatchObject({ status: 200, body: { status: "duplicate" } });
    expect(await client.getFollowUps(jobId)).toHaveLength(3);
  });

  test("cut before it ran: 503, nothing recorded, and the redelivery moves the job", async () => {
    const { jobId, callbackId } = await charge();
    const before = await snapshot(db.pool);
    const event = stripeEvent("payment_intent.succeeded", callbackId);
    neon.fault(db.name, ({ statements }) =>
      statements.some(({ text }) => text.includes("UPDATE")) ? "cut-before" : undefined,
    );
    expect(await send(event)).toMatchObject({ status: 503 });
    expect(await snapshot(db.pool)).toEqual(before);
    expect(await deliveriesIn(db.pool)).toEqual([]);
    neon.fault(db.name);
    expect(await send(event)).toMatchObject({ body: { status: "resolved" } });
    expect((await jobOf(jobId)).state).toBe("completed");
  });

  test("an early one that was parked, then cut: the redelivery is a duplicate, and the registration takes it", async () => {
    const parcel = {
      source: "carrier",
      id: "msg_1",
      body: { type: "parcel.collected", data: { reference: "o-9", parcel: "P" } },
    };
    neon.fault(db.name, ({ statements }) =>
      statements.some(({ text }) => text.includes("INSERT")) ? "cut-after" : undefined,
    );
    expect(await send(parcel)).toMatchObject({ status: 503 });
    neon.fault(db.name);
    expect(await send(parcel)).toMatchObject({ body: { status: "duplicate" } });
    const { jobId } = await client.park(
      "ship_order",
      { orderId: "o-9" },
      { source: "carrier", correlationKey: "o-9" },
    );
    expect((await jobOf(jobId)).state).toBe("completed");
  });
});

describe("a source's code that fails", () => {
  test("500 once, then 200", async () => {
    const registry = registryWithSources();
    const ingress = appOf(registry);
    const post = () =>
      ingress.request(
        "/webhooks/shop",
        { method: "POST", body: '{"does":"throw"}', headers: { "x-delivery": "1" } },
        {},
        executionContext,
      );
    const first = await post();
    expect([first.status, await first.json()]).toMatchObject([500, { code: "delivery_failed" }]);
    const second = await post();
    expect([second.status, await second.json()]).toEqual([200, { status: "failed" }]);
    expect(await deliveriesIn(db.pool)).toMatchObject([{ state: "failed", attempts: 2 }]);
  });

  test("what the sender was told failed is resolved by the tick, once it can be", async () => {
    let isBroken = true;
    const registry = registryWithSources({ broken: () => isBroken });
    const ingress = appOf(registry);
    const { jobId } = await createClient({ database: pgDatabase(db.workerPool), registry }).park(
      "order",
      { n: 1 },
      { source: "shop", correlationKey: "k" },
    );
    const post = () =>
      ingress.request(
        "/webhooks/shop",
        { method: "POST", body: '{"key":"k","does":"complete"}', headers: { "x-delivery": "1" } },
        {},
        executionContext,
      );
    expect((await post()).status).toBe(500);
    isBroken = false;
    await db.pool.query("UPDATE awa_edge.deliveries SET next_attempt_at = now()");
    await tick(open(), registry, { runsJobs: false });
    expect((await jobOf(jobId)).state).toBe("completed");
    expect(await (await post()).json()).toEqual({ status: "duplicate" });
  });
});

describe("what is kept of a delivery", () => {
  test("the body as it came, the headers that the source reads, no signature", async () => {
    await send({
      source: "github",
      headers: { "X-GitHub-Event": "push", Authorization: "secret" },
      body: { emoji: "💶", n: 12345678901234567000 },
    });
    const { rows } = await db.pool.query(
      "SELECT headers, body, row_to_json(d)::text AS whole FROM awa_edge.deliveries d",
    );
    expect(rows).toMatchObject([
      {
        headers: { "content-type": "application/json", "x-github-event": "push" },
        body: '{"emoji":"💶","n":12345678901234567000}',
      },
    ]);
    expect(rows[0].whole).not.toMatch(/sha256=|secret/);
  });

  test("a delivery without an id of its own is known by its body and the callback in its URL", async () => {
    const ingress = appOf(registryWithSources());
    const [a, b] = [crypto.randomUUID(), crypto.randomUUID()];
    const post = async (path: string, body: string) =>
      (await ingress.request(`/webhooks/shop${path}`, { method: "POST", body }, {}, executionContext)).json();
    expect(await post("", '{"does":"ignore"}')).toEqual({ status: "ignored" });
    expect(await post("", '{"does":"ignore"}')).toEqual({ status: "duplicate" });
    expect(await post("", '{"does":"ignore" }')).toEqual({ status: "ignored" });
    expect(await post(`/${a}`, '{"does":"complete"}')).toEqual({ status: "parked" });
    expect(await post(`/${b}`, '{"does":"complete"}')).toEqual({ status: "parked" });
    expect(await post(`/${a}`, '{"does":"complete"}')).toEqual({ status: "duplicate" });
  });
});

test("a thousand deliveries, each three times in random order and at once, a third of them before their callback: each has its effect once", async () => {
  const COUNT = 1000;
  const registry = testRegistry().webhook("carrier", carrierParcels);
  // Counted above over Neon's protocol; here the connections are Postgres's own, so that more of them are at it at once.
  const pooled = pgDatabase(db.workerPool, { prepares: true });
  const ingress = appOf(registry, () => pooled);
  const sender = createClient({ database: pooled, registry });
  const jobs: Promise<{ jobId: string }>[] = [];
  const park = (i: number) => {
    jobs[i] ??= sender.park("order", { n: i }, { source: "carrier", correlationKey: `key-${i}` });
    return jobs[i];
  };
  const sends = Array.from({ length: 3 * COUNT }, (_, i) => ({
    i: i % COUNT,
    order: Math.random(),
  })).toSorted((a, b) => a.order - b.order);
  const statuses: Record<string, number> = {};
  async function sendNext(): Promise<void> {
    for (let next = sends.pop(); next !== undefined; next = sends.pop()) {
      const { i } = next;
      // A third come before their callback, or at the same time.
      if (i % 3 !== 0) await park(i);
      const body = { type: "parcel.collected", data: { reference: `key-${i}`, parcel: `P${i}` } };
      const sent = send({ source: "carrier", id: `msg_${i}`, body }, ingress, registry);
      if (i % 3 === 0 && jobs[i] === undefined) {
        if (i % 2 === 0) await sent;
        await park(i);
      }
      const { status, body: answer } = await sent;
      expect(status).toBe(200);
      statuses[answer.status ?? ""] = (statuses[answer.status ?? ""] ?? 0) + 1;
    }
  }
  await Promise.all(Array.from({ length: 16 }, sendNext));
  const { rows } = await db.pool.query(`SELECT
    (SELECT count(*)::int FROM awa_edge.jobs WHERE kind = 'order' AND state = 'completed') AS completed,
    (SELECT count(*)::int FROM awa_edge.jobs WHERE kind = 'after' AND trigger_outcome = 'completed') AS after,
    (SELECT count(*)::int FROM awa_edge.jobs WHERE kind = 'once' AND trigger_outcome = 'completed') AS once,
    (SELECT count(DISTINCT trigger_job_id)::int FROM awa_edge.jobs WHERE trigger_outcome = 'completed') AS triggers,
    (SELECT count(*)::int FROM awa_edge.deliveries WHERE state = 'resolved') AS resolved,
    (SELECT count(*)::int FROM awa_edge.deliveries) AS deliveries`);
  expect(rows).toEqual([
    { completed: COUNT, after: COUNT, once: COUNT, triggers: COUNT, resolved: COUNT, deliveries: COUNT },
  ]);
  expect(statuses.duplicate).toBe(2 * COUNT);
  expect((statuses.resolved ?? 0) + (statuses.parked ?? 0)).toBe(COUNT);
  expect(statuses.parked).toBeGreaterThan(COUNT / 10);
}, 60_000);
