import { createExecutionContext, waitOnExecutionContext } from "cloudflare:test";
import { exports } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import worker from "../../src/index.ts";
import { registry } from "../../src/registry.ts";
import { ADDRESS_LIMIT, SOURCE_LIMIT } from "../support/limits.ts";
import { signed, type ToSign } from "../support/signed.ts";
import { bindings, client, ORIGIN, PATIENCE, query, runScheduled } from "./worker.ts";

// Webhooks through the deployed thing, in workerd. What the ingress does in detail is tested in `db`.

interface Answer {
  readonly status: number;
  readonly retryAfter: string | null;
  readonly body: { readonly status?: string; readonly code?: string };
}

async function answerTo(request: Request): Promise<Answer> {
  const response = await exports.default.fetch(request);
  const retryAfter = response.headers.get("Retry-After");
  return { status: response.status, retryAfter, body: await response.json() };
}
const send = async (event: ToSign) => answerTo(await signed(registry, event, ORIGIN));

/** A webhook of a source with a signature that isn't the source's. */
function forged(source: string, headers: Readonly<Record<string, string>> = {}): Request {
  return new Request(`${ORIGIN}/webhooks/${source}`, {
    method: "POST",
    headers: { "Content-Type": "application/json", "Stripe-Signature": "t=1,v1=00", ...headers },
    body: "{}",
  });
}

async function charge() {
  const order = { orderId: crypto.randomUUID(), email: "ada@example.com", amountCents: 4200 };
  const { jobId, callbackId } = await client().park("charge_card", order, { source: "stripe" });
  return { jobId, callbackId, order };
}
function paid(callbackId: string | null, id: string = crypto.randomUUID()): ToSign {
  const object = { id: "pi_1", metadata: { callback_id: callbackId } };
  const body = { id: `evt_${id}`, type: "payment_intent.succeeded", data: { object } };
  return { source: "stripe", body };
}

const jobOf = async (id: string) => (await client().getJob(id)) ?? expect.fail("no such job");
const followUpsOf = async (id: string) =>
  (await client().getFollowUps(id))
    .filter(({ trigger }) => trigger?.outcome === "completed")
    .map(({ kind }) => kind);
/** Stripe's own id of an event is in its body. */
const deliveryOf = ({ source, body }: ToSign) => {
  const { id }: { id?: string } = JSON.parse(JSON.stringify(body));
  return client().deliveries.get(source, id ?? "");
};
const countOf = async (source: string) =>
  Number(
    (await query("SELECT count(*) AS n FROM awa_edge.deliveries WHERE source = $1", [source]))[0]?.n ?? -1,
  );

describe("one webhook", () => {
  test("signed: it completes its job with the follow-ups; again: a duplicate, and nothing more", async () => {
    const { jobId, callbackId } = await charge();
    const event = paid(callbackId);
    expect(await send(event)).toMatchObject({ status: 200, body: { status: "resolved" } });
    expect(await jobOf(jobId)).toMatchObject({ state: "completed", result: { chargeId: "pi_1" } });
    expect(await followUpsOf(jobId)).toEqual(["send_receipt", "ship_order"]);
    expect(await send(event)).toMatchObject({ status: 200, body: { status: "duplicate" } });
    expect(await followUpsOf(jobId)).toEqual(["send_receipt", "ship_order"]);
    expect(await deliveryOf(event)).toMatchObject({ state: "resolved", jobId, attempts: 1 });
  });

  test("preloop/preloop#517 ten at once: one moved, nine duplicates", async () => {
    const { jobId, callbackId } = await charge();
    const event = paid(callbackId);
    const answers = await Promise.all(Array.from({ length: 10 }, () => send(event)));
    const statuses = answers.map(({ body }) => body.status).toSorted();
    expect(statuses).toEqual([...Array(9).fill("duplicate"), "resolved"]);
    expect(await followUpsOf(jobId)).toEqual(["send_receipt", "ship_order"]);
  });

  test("forged, or changed by one byte: 401, nothing recorded, the job waits on", async () => {
    const { jobId, callbackId } = await charge();
    const event = paid(callbackId);
    const genuine = await signed(registry, event, ORIGIN);
    const body = (await genuine.clone().text()).replace("pi_1", "pi_2");
    const changed = new Request(genuine, { body });
    const before = await countOf("stripe");
    for (const request of [forged("stripe"), changed]) {
      expect(await answerTo(request)).toMatchObject({ status: 401, body: { code: "unauthorized" } });
    }
    expect(await deliveryOf(event)).toBeNull();
    expect(await countOf("stripe")).toBe(before);
    expect(await jobOf(jobId)).toMatchObject({ state: "waiting_external" });
  });

  test("of a source that the registry doesn't have: 404", async () => {
    expect(await answerTo(forged("nobody"))).toMatchObject({
      status: 404,
      body: { code: "source_not_found" },
    });
    expect(await countOf("nobody")).toBe(0);
  });

  test("for the callback that its URL names: Replicate's", async () => {
    const { jobId, callbackId } = await client().park(
      "draw_picture",
      { orderId: crypto.randomUUID(), prompt: "a tree" },
      { source: "replicate" },
    );
    const body = { id: "p-1", status: "succeeded", output: ["https://images.example/1"] };
    expect(await send({ source: "replicate", body, callbackId })).toMatchObject({
      body: { status: "resolved" },
    });
    expect(await jobOf(jobId)).toMatchObject({
      state: "completed",
      result: { prediction: "p-1", output: ["https://images.example/1"] },
    });
  });
});

describe("one that can't be received yet", () => {
  test("a deployment's status before its job waits for it: parked, and consumed where the handler registers", async () => {
    const deploymentId = Math.floor(Math.random() * 2 ** 48);
    const status: ToSign = {
      source: "github",
      id: crypto.randomUUID(),
      headers: { "X-GitHub-Event": "deployment_status" },
      body: {
        deployment: { id: deploymentId },
        deployment_status: { state: "success", environment_url: "https://shop.example" },
      },
    };
    expect(await send(status)).toMatchObject({ status: 200, body: { status: "parked" } });
    expect(await send(status)).toMatchObject({ status: 200, body: { status: "duplicate" } });
    const { jobId } = await client().enqueue("release_shop", { deploymentId });
    await runScheduled();
    await expect
      .poll(() => jobOf(jobId), PATIENCE)
      .toMatchObject({ state: "completed", attempt: 1, result: { url: "https://shop.example" } });
    expect(await client().deliveries.get("github", status.id ?? "")).toMatchObject({
      state: "resolved",
      jobId,
    });
    expect(await send(status)).toMatchObject({ status: 200, body: { status: "duplicate" } });
  });

  test("one whose follow-up can't be planned fails, and is recorded; once that is mended, the tick moves its job", async () => {
    const { jobId, callbackId, order } = await charge();
    const withArgs = (args: object) =>
      query("UPDATE awa_edge.jobs SET args = $2::jsonb WHERE id::text = $1", [jobId, JSON.stringify(args)]);
    await withArgs({ orderId: order.orderId });
    const event = paid(callbackId);
    expect(await send(event)).toMatchObject({ status: 500, body: { code: "delivery_failed" } });
    expect(await jobOf(jobId)).toMatchObject({ state: "waiting_external" });
    expect(await deliveryOf(event)).toMatchObject({ state: "failed", attempts: 1 });
    await withArgs(order);
    await query("UPDATE awa_edge.deliveries SET next_attempt_at = now() WHERE delivery_id = $1", [
      (await deliveryOf(event))?.deliveryId ?? "",
    ]);
    await runScheduled();
    await expect.poll(() => jobOf(jobId), PATIENCE).toMatchObject({ state: "completed" });
    expect(await followUpsOf(jobId)).toEqual(["send_receipt", "ship_order"]);
    expect(await deliveryOf(event)).toMatchObject({ state: "resolved", jobId });
  });
});

describe("what is wrong with the configuration", () => {
  test("a secret that isn't set: 503 that names the variable; the other sources go on", async () => {
    const context = createExecutionContext();
    const { STRIPE_WEBHOOK_SECRET: _, ...without } = bindings;
    const fetchWithout = ({ url, method, headers, body }: Request) =>
      worker.fetch(new Request(url, { method, headers, body }), without, context);
    const refused = await fetchWithout(forged("stripe"));
    expect([refused.status, await refused.text()]).toEqual([
      503,
      expect.stringContaining("STRIPE_WEBHOOK_SECRET is not set"),
    ]);
    const { callbackId } = await charge();
    const body = { deployment: null };
    const taken = await fetchWithout(await signed(registry, { source: "github", body, callbackId }, ORIGIN));
    expect([taken.status, await taken.json()]).toEqual([200, { status: "ignored" }]);
    await waitOnExecutionContext(context);
  });
});

describe("the platform's rate limiter", () => {
  /** Sends them at once. Twice the limit and one more: should a new minute begin meanwhile, one of the two is over its limit. */
  const flood = (limit: number, request: () => Request) =>
    Promise.all(Array.from({ length: 2 * limit + 1 }, () => answerTo(request())));
  const over = { status: 429, retryAfter: "60", body: expect.objectContaining({ code: "rate_limited" }) };

  test("over the limit of a source: 429 with Retry-After; the other sources are let in", async () => {
    const answers = await flood(SOURCE_LIMIT, () => forged("carrier"));
    const admitted = answers.filter(({ status }) => status === 401);
    expect(admitted.length).toBeGreaterThanOrEqual(SOURCE_LIMIT);
    const refused = answers.filter((answer) => !admitted.includes(answer));
    expect(refused.length).toBeGreaterThan(0);
    for (const answer of refused) expect(answer).toEqual(over);
    expect(await answerTo(forged("replicate"))).toMatchObject({ status: 401 });
  });

  test("over the limit of an address: 429 for it, not for others", async () => {
    const from = (address: string) => forged("github", { "CF-Connecting-IP": address });
    const answers = await flood(ADDRESS_LIMIT, () => from("192.0.2.1"));
    expect(answers.filter(({ status }) => status === 401).length).toBeGreaterThanOrEqual(ADDRESS_LIMIT);
    expect(answers).toContainEqual(over);
    expect(await answerTo(from("192.0.2.2"))).toMatchObject({ status: 401 });
  });
});
