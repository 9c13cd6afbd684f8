import { createExecutionContext, createScheduledController } from "cloudflare:test";
import { exports } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import worker from "../../src/index.ts";
import { signCallbackId } from "../../src/shared/signature.ts";
import { TEST_CALLBACK_SECRET } from "../support/secrets.ts";
import { bindings, client, ORIGIN, PATIENCE, query, runScheduled } from "./worker.ts";

// The deployed thing, in workerd: the default export with the real Neon driver. What it does in detail is tested in `db`.

/** Unique keys are made of it: another run, or another file, has orders of its own. */
const RUN = crypto.randomUUID();
const order = (n: number) => ({ orderId: `${RUN}-${n}`, email: "ada@example.com", amountCents: 4200 });

interface Answer {
  readonly status: number;
  readonly body: { readonly state?: string; readonly duplicate?: boolean; readonly code?: string };
}

async function post(url: string, signature: string, body: unknown): Promise<Answer> {
  const response = await exports.default.fetch(url, {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Awa-Signature": signature },
    body: JSON.stringify(body),
  });
  return { status: response.status, body: await response.json() };
}

async function park(n: number, timeoutSeconds = 3600) {
  const parked = await client().park("charge_card", order(n), { timeoutSeconds });
  if (parked.callbackUrl === null || parked.signature === null) expect.fail("nothing to call back");
  return { jobId: parked.jobId, url: parked.callbackUrl, signature: parked.signature };
}

/** Runs `run` over the items, so many at a time. */
async function eachOf<T, R>(items: readonly T[], atOnce: number, run: (item: T) => Promise<R>): Promise<R[]> {
  const results: R[] = [];
  const rest = items.entries();
  await Promise.all(
    Array.from({ length: atOnce }, async () => {
      for (const [i, item] of rest) results[i] = await run(item);
    }),
  );
  return results;
}

describe("fetch", () => {
  test("a parked job, a signed callback, its follow-ups, and the repetition", async () => {
    const parked = await park(1);
    expect(await post(parked.url, "0".repeat(64), {})).toMatchObject({ status: 401 });
    expect(await post(parked.url, parked.signature, { payload: { chargeId: "ch_1" } })).toEqual({
      status: 200,
      body: { id: parked.jobId, state: "Completed" },
    });
    expect(await post(parked.url, parked.signature, { payload: { chargeId: "ch_1" } })).toMatchObject({
      status: 200,
      body: { duplicate: true },
    });
    const followUps = await client().getFollowUps(parked.jobId);
    expect(followUps.map((job) => [job.kind, job.trigger?.outcome])).toEqual([
      ["tell_support", "waiting_for_callback"],
      ["send_receipt", "completed"],
      ["ship_order", "completed"],
    ]);
  });

  test("health: the build and the database answer; unknown routes don't exist", async () => {
    expect((await exports.default.fetch(`${ORIGIN}/healthz`)).status).toBe(200);
    expect((await exports.default.fetch(`${ORIGIN}/readyz`)).status).toBe(200);
    expect((await exports.default.fetch(`${ORIGIN}/admin`)).status).toBe(404);
  });

  test("QuackbackIO/quackback#302 a body that never ends is cut off at the limit, without Content-Length", async () => {
    const parked = await park(2);
    let sent = 0;
    const body = new ReadableStream({
      pull(controller) {
        sent += 65_536;
        controller.enqueue(new Uint8Array(65_536).fill(32));
        if (sent > 50_000_000) controller.close();
      },
    });
    const response = await exports.default.fetch(parked.url, {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-Awa-Signature": parked.signature },
      body,
    });
    expect(response.status).toBe(413);
    expect(sent).toBeLessThan(10_000_000);
    expect(await client().getJob(parked.jobId)).toMatchObject({ state: "waiting_external" });
  });

  test("misconfigured: 503 that names the variable and not its content", async () => {
    const context = createExecutionContext();
    const broken = { ...bindings, AWA_CALLBACK_HMAC_SECRET: "not-a-secret" };
    const response = await worker.fetch(
      new Request(`${ORIGIN}/api/callbacks/x/complete`, { method: "POST" }),
      broken,
      context,
    );
    expect(response.status).toBe(503);
    const text = await response.text();
    expect(text).toContain("AWA_CALLBACK_HMAC_SECRET");
    expect(text).not.toContain("not-a-secret");
  });
});

describe("scheduled", () => {
  test("cloudflare/workers-sdk#9882 the tick rescues an expired callback and dispatches its follow-up", async () => {
    const parked = await park(3, 0.001);
    await new Promise((resolve) => setTimeout(resolve, 20));
    await runScheduled();
    await expect.poll(() => client().getJob(parked.jobId), PATIENCE).toMatchObject({ state: "retryable" });
    await expect
      .poll(
        async () => (await client().getFollowUps(parked.jobId)).map((job) => job.trigger?.outcome),
        PATIENCE,
      )
      .toEqual(["waiting_for_callback", "rescued"]);
    expect(await post(parked.url, parked.signature, {})).toMatchObject({
      status: 410,
      body: { code: "callback_expired" },
    });
  });

  test("without a database the invocation fails, and says which variable", async () => {
    const context = createExecutionContext();
    const { DATABASE_URL: _, ...rest } = bindings;
    await expect(worker.scheduled(createScheduledController(), rest, context)).rejects.toThrow(
      /DATABASE_URL is not set/,
    );
  });
});

describe("jobs run in workerd", () => {
  const jobOfKind = async (trigger: string, kind: string) =>
    (await client().getFollowUps(trigger)).find((job) => job.kind === kind) ?? expect.fail(`no ${kind}`);

  test("right after the answer: a follow-up is run, another one parks; each wait is resumed over HTTP", async () => {
    const parked = await park(4);
    await post(parked.url, parked.signature, { payload: { chargeId: "ch_4" } });
    await expect
      .poll(() => jobOfKind(parked.jobId, "send_receipt"))
      .toMatchObject({ state: "completed", attempt: 1, result: { sentAt: expect.any(String) } });
    const { id } = await jobOfKind(parked.jobId, "ship_order");
    for (const name of ["packed", "collected"]) {
      const pending = async () =>
        (await client().getCallbacks(id)).find((callback) => callback.state === "pending");
      await expect.poll(pending).toMatchObject({ name });
      const callbackId = (await pending())?.id ?? "";
      await expect.poll(() => client().getJob(id)).toMatchObject({ state: "waiting_external" });
      const url = `${ORIGIN}/api/callbacks/${callbackId}/complete`;
      const signature = signCallbackId(TEST_CALLBACK_SECRET, callbackId);
      expect(await post(url, signature, { payload: name, resume: true })).toMatchObject({
        status: 200,
        body: { state: "Available" },
      });
    }
    await expect
      .poll(() => client().getJob(id))
      .toMatchObject({
        state: "completed",
        attempt: 1,
        runLease: "3",
        result: { packed: "packed", collected: "collected" },
      });
  });

  test("in the tick: what is due", async () => {
    const { jobId } = await client().enqueue("tell_support", { orderId: "order-5", about: "tick" });
    await runScheduled();
    await expect
      .poll(() => client().getJob(jobId), PATIENCE)
      .toMatchObject({ state: "completed", attempt: 1 });
  });
});

describe("exactly once, through the ingress", () => {
  const JOBS = 200;
  const DELIVERIES = 10;
  const AT_ONCE = 40;

  /** Follow-ups of the resolution (parking has one of its own), by trigger and outcome. */
  async function followUpsOf(jobIds: readonly string[]): Promise<Map<string, string[]>> {
    const rows = await query(
      `SELECT trigger_job_id::text AS job, trigger_outcome || ' ' || kind AS what FROM awa_edge.jobs
       WHERE trigger_job_id::text = ANY ($1::text[]) AND trigger_outcome <> 'waiting_for_callback' ORDER BY id`,
      [`{${jobIds.join(",")}}`],
    );
    const found = new Map<string, string[]>();
    for (const { job, what } of rows)
      found.set(String(job), [...(found.get(String(job)) ?? []), String(what)]);
    return found;
  }
  const followUpsAfter: Record<string, readonly string[]> = {
    Completed: ["completed send_receipt", "completed ship_order"],
    Failed: ["exhausted release_stock"],
    expired: ["rescued tell_support"],
  };

  async function parkMany(from: number, jobs = JOBS) {
    return eachOf(
      Array.from({ length: jobs }, (_, n) => from + n),
      AT_ONCE,
      (n) => park(n),
    );
  }
  const deliveriesOf = <T>(jobs: readonly T[], times: number) =>
    jobs.flatMap((job) => Array.from({ length: times }, (_, n) => ({ job, n })));

  test("preloop/preloop#517 200 callbacks × 10 identical deliveries at once: 200 moved, 1,800 duplicate, follow-ups once", async () => {
    const jobs = await parkMany(1_000);
    const answers = await eachOf(deliveriesOf(jobs, DELIVERIES), AT_ONCE, ({ job }) =>
      post(job.url, job.signature, { payload: { chargeId: "ch_1" } }),
    );
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200]));
    expect(answers.filter(({ body }) => body.duplicate === true)).toHaveLength(JOBS * DELIVERIES - JOBS);
    const followUps = await followUpsOf(jobs.map((job) => job.jobId));
    for (const job of jobs) expect(followUps.get(job.jobId)).toEqual(followUpsAfter.Completed);
  }, 60_000);

  test("complete racing fail: one winner each, with the follow-ups of the winner only", async () => {
    const jobs = await parkMany(2_000, JOBS / 2);
    const answers = await eachOf(deliveriesOf(jobs, 4), AT_ONCE, async ({ job, n }) => {
      const complete = n % 2 === 0;
      const url = complete ? job.url : job.url.replace(/complete$/, "fail");
      return {
        job,
        answer: await post(url, job.signature, complete ? { payload: null } : { error: "declined" }),
      };
    });
    const followUps = await followUpsOf(jobs.map((job) => job.jobId));
    for (const job of jobs) {
      const mine = answers.filter((given) => given.job === job).map((given) => given.answer);
      const winners = mine.filter(({ status, body }) => status === 200 && body.duplicate !== true);
      expect(winners).toHaveLength(1);
      const state = winners[0]?.body.state ?? "";
      expect(mine.filter(({ body }) => body.duplicate === true && body.state === state)).toHaveLength(1);
      expect(mine.filter(({ body }) => body.code === "callback_already_resolved")).toHaveLength(2);
      expect(followUps.get(job.jobId)).toEqual(followUpsAfter[state]);
    }
  }, 60_000);

  test("complete racing the expiry sweep: one winner each, with the follow-ups of the winner only", async () => {
    const jobs = await parkMany(3_000);
    await query(
      `UPDATE awa_edge.callbacks SET timeout_at = now() - interval '1 second' WHERE job_id::text = ANY ($1::text[])`,
      [`{${jobs.map((job) => job.jobId).join(",")}}`],
    );
    const completing = eachOf(jobs, 20, async (job) => ({
      job,
      answer: await post(job.url, job.signature, {}),
    }));
    const ticks = (async () => {
      for (let i = 0; i < 3; i++) await runScheduled();
    })();
    const [answers] = await Promise.all([completing, ticks]);
    const expected = new Map<string, readonly string[] | undefined>();
    for (const { job, answer } of answers) {
      const winner = answer.status === 200 ? "Completed" : "expired";
      if (winner === "expired")
        expect(answer).toMatchObject({ status: 410, body: { code: "callback_expired" } });
      expected.set(job.jobId, followUpsAfter[winner]);
    }
    await expect.poll(() => followUpsOf(jobs.map((job) => job.jobId)), PATIENCE).toEqual(expected);
  }, 60_000);
});
