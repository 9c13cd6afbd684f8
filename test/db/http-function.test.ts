import { createServer, type IncomingHttpHeaders, type ServerResponse } from "node:http";
import { text } from "node:stream/consumers";
import { beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { createClient } from "../../src/client.ts";
import type { ExecutorDeps } from "../../src/executor/deps.ts";
import { type HttpFunctionOptions, httpFunction } from "../../src/executor/http-function.ts";
import { createApp } from "../../src/ingress/app.ts";
import type { JobRow } from "../../src/shared/job.ts";
import { signCallbackId, verifyCallbackId } from "../../src/shared/signature.ts";
import { useTestDatabase } from "../support/database.ts";
import { emptyTables } from "../support/empty-tables.ts";
import { run as runAll } from "../support/executor.ts";
import { ingressDeps } from "../support/ingress.ts";
import { testRegistry } from "../support/registry.ts";
import { TEST_CALLBACK_SECRET } from "../support/secrets.ts";

// Kinds that a URL serves, against real functions: what the reference's http_worker_test shows (HW1 to HW10), and more.

const { db, database } = useTestDatabase();
const client = createClient({ database, registry: testRegistry() });
const BASE_URL = "https://edge.example";
const callbacks = { baseUrl: BASE_URL, pathPrefix: "/api/callbacks", secrets: [TEST_CALLBACK_SECRET] };

beforeEach(async () => {
  await emptyTables(db.pool);
});

interface Received {
  readonly method: string | undefined;
  readonly path: string | undefined;
  readonly headers: IncomingHttpHeaders;
  readonly body: Record<string, unknown>;
}
type Answer = (response: ServerResponse, received: Received) => void | Promise<void>;

/** A function: keeps what it is sent, and answers. `gone` resolves when its first answer is over, for whatever reason. */
async function serve(answer: Answer) {
  const received: Received[] = [];
  const server = createServer((request, response) => {
    void text(request).then((body) => {
      const { method, url: path, headers } = request;
      const one = { method, path, headers, body: JSON.parse(body) };
      received.push(one);
      return answer(response, one);
    });
  });
  const gone = new Promise<void>((resolve) => {
    server.once("request", (_, response) => response.on("close", resolve));
  });
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("the function has no port");
  return { url: `http://127.0.0.1:${address.port}/render?token=secret-token`, received, gone };
}
const answerWith =
  (status: number, body: string | Buffer = "", headers: Record<string, string> = {}): Answer =>
  (response) => {
    response.writeHead(status, headers).end(body);
  };
const json = { "Content-Type": "application/json" };

/** Runs a new job of a kind that is served like this, to the end of its attempt. */
async function run(
  options: HttpFunctionOptions,
  deps: Partial<ExecutorDeps> = {},
  enqueueOptions: { maxAttempts?: number; deadlineSeconds?: number } = {},
) {
  const registry = testRegistry().handle("order", httpFunction(options)).queue("default");
  const { jobId } = await client.enqueue("order", { n: 1 }, enqueueOptions);
  const { report, lines } = await runAll(database, registry, { callbacks, ...deps });
  const job: JobRow = (await client.getJob(jobId)) ?? expect.fail("the job is gone");
  const waits = await client.getCallbacks(jobId);
  const outcomes = (await client.getFollowUps(jobId)).map(({ trigger }) => trigger?.outcome);
  expect(JSON.stringify([lines, job.errors])).not.toContain("secret-token");
  return { job, report, lines, waits, outcomes, error: job.errors.at(-1)?.error };
}

/** The ingress that the function calls back. */
function ingress(env: Record<string, string> = {}) {
  const url = "postgres://me:password@localhost/not_used";
  const bindings = { DATABASE_URL: url, AWA_CALLBACK_HMAC_SECRET: TEST_CALLBACK_SECRET, ...env };
  return createApp(ingressDeps(bindings, { registry: testRegistry(), database: () => database }));
}
/** Does what a function does when it is done: posts to the URL that it was given, with the signature that it was given. */
async function callBack({ body, headers }: Received, payload: unknown, app = ingress()) {
  const url = String(body.callback_url);
  const signature = String(headers["x-awa-signature"]);
  const response = await app.request(url.slice(BASE_URL.length), {
    method: "POST",
    headers: { ...json, "X-Awa-Signature": signature },
    body: JSON.stringify({ payload }),
  });
  return { status: response.status, body: await response.json() };
}

describe("sync", () => {
  test("HW1 200 completes; the request is the reference's, without callback and signature", async () => {
    const { url, received } = await serve(answerWith(200, "done", { "Content-Type": "text/plain" }));
    const { job, waits, outcomes } = await run({ url, mode: "sync" });
    expect(job).toMatchObject({ state: "completed", result: null, attempt: 1, errors: [] });
    expect(waits).toEqual([]);
    expect(outcomes).toEqual(["completed", "completed"]);
    expect(received).toMatchObject([{ method: "POST", path: "/render?token=secret-token" }]);
    expect(received[0]?.body).toEqual({
      job_id: Number(job.id),
      kind: "order",
      args: { n: 1 },
      attempt: 1,
      max_attempts: 25,
    });
    expect(received[0]?.headers["content-type"]).toBe("application/json");
    expect(received[0]?.headers).not.toHaveProperty("x-awa-signature");
  });

  test.each<[string, string, string, unknown]>([
    ["JSON is the result", "application/json", '{"pages":3}', { pages: 3 }],
    ["JSON by another name", "application/vnd.render+json; charset=utf-8", "[1]", [1]],
    ["text isn't kept", "text/plain", '{"pages":3}', null],
    ["what only says that it is JSON", "application/json", "not JSON", null],
    ["nothing", "application/json", "", null],
    ["what Postgres can't store", "application/json", '"a NUL: \\u0000"', null],
    ["64 KiB", "application/json", JSON.stringify("x".repeat(65_534)), "x".repeat(65_534)],
    ["more than 64 KiB", "application/json", JSON.stringify("x".repeat(65_535)), null],
  ])("the result of a 2xx: %s", async (_, type, body, result) => {
    const { url } = await serve(answerWith(201, body, { "Content-Type": type }));
    expect((await run({ url, mode: "sync" })).job).toMatchObject({ state: "completed", result });
  });

  test("HW2 500: retried with back-off, with status and body as its error", async () => {
    const { url } = await serve(answerWith(500, "out of ink"));
    const { job, error, outcomes } = await run({ url, mode: "sync" });
    expect(job).toMatchObject({ state: "retryable", attempt: 1 });
    expect(error).toBe("function returned 500: out of ink");
    expect(outcomes).toEqual(["retried"]);
  });

  test("HW3 400: failed for good, at the first attempt", async () => {
    const { url } = await serve(answerWith(400, "no such template"));
    const { job, outcomes } = await run({ url, mode: "sync" });
    expect(job).toMatchObject({
      state: "failed",
      errors: [{ error: "function returned 400: no such template", attempt: 1, terminal: true }],
      deadLetter: { reason: "terminal_error" },
    });
    expect(outcomes).toEqual(["exhausted"]);
  });

  test("a JSON answer that breaks off is no answer: retried", async () => {
    const { url } = await serve((response) => {
      response.writeHead(200, { ...json, "Content-Length": "100" });
      response.write('{"pages":', () => response.destroy());
    });
    const { job, error } = await run({ url, mode: "sync" });
    expect(job).toMatchObject({ state: "retryable" });
    expect(error).toMatch(/^function unreachable(: [A-Z_]+)?$/);
  });
});

describe("async", () => {
  test("HW4 202 parks; the function has the stored id, calls the ingress, and the job completes", async () => {
    const { url, received } = await serve(answerWith(202));
    const { job, waits, outcomes } = await run({ url, callbackTimeoutSeconds: 60 });
    expect(job).toMatchObject({ state: "waiting_external", callbackId: waits[0]?.id });
    expect(waits).toMatchObject([{ state: "pending" }]);
    const [wait = expect.fail("no callback"), request = expect.fail("no request")] = [waits[0], received[0]];
    expect(wait.timeoutAt.getTime() - wait.createdAt.getTime()).toBe(60_000);
    expect(outcomes).toEqual(["waiting_for_callback"]);
    expect(request.body).toEqual({
      job_id: Number(job.id),
      kind: "order",
      args: { n: 1 },
      attempt: 1,
      max_attempts: 25,
      callback_id: wait.id,
      callback_url: `${BASE_URL}/api/callbacks/${wait.id}/complete`,
    });
    expect(await callBack(request, { pages: 3 })).toEqual({
      status: 200,
      body: { id: job.id, state: "Completed" },
    });
    expect(await client.getJob(job.id)).toMatchObject({ state: "completed", result: { pages: 3 } });
    expect(await client.getFollowUps(job.id)).toHaveLength(3);
  });

  test("HW5 503: retried; its callback is cancelled, and calling it is too late", async () => {
    const { url, received } = await serve(answerWith(503, "overloaded"));
    const { job, error, waits } = await run({ url });
    expect(job).toMatchObject({ state: "retryable", callbackId: null });
    expect(error).toBe("function returned 503: overloaded");
    expect(waits).toMatchObject([{ state: "cancelled" }]);
    expect(await callBack(received[0] ?? expect.fail("no request"), 1)).toMatchObject({ status: 410 });
  });

  test("HW6 unreachable: retried; the error has the network's code and not the URL", async () => {
    // A port that nobody listens on; not port 1, which fetch itself refuses.
    const { job, error, waits } = await run({ url: "http://127.0.0.1:2/render?token=secret-token" });
    expect(job).toMatchObject({ state: "retryable" });
    expect(error).toBe("function unreachable: ECONNREFUSED");
    expect(waits).toMatchObject([{ state: "cancelled" }]);
    const { url, received } = await serve((response) => {
      response.destroy();
    });
    const broken = await run({ url });
    expect(received).toHaveLength(1);
    expect(broken.error).toMatch(/^function unreachable: [A-Z_]+$/);
  });

  test("HW7 headers: fixed ones, and those that the bindings make; Content-Type and signature stay ours", async () => {
    const { url, received } = await serve(answerWith(202));
    const reserved = { "content-type": "text/plain", "x-awa-signature": "forged" };
    await run({ url, headers: { "X-Custom": "yes", ...reserved } });
    await run(
      {
        url: ({ RENDER_URL }) => RENDER_URL,
        headers: ({ RENDER_TOKEN }) => ({ Authorization: `Bearer ${RENDER_TOKEN}`, ...reserved }),
      },
      { env: { RENDER_URL: url, RENDER_TOKEN: "t0" }, callbacks: null },
    );
    await run({ url, headers: reserved, mode: "sync" });
    const [fixed, made, sync] = received.map(({ headers }) => headers);
    expect(fixed).toMatchObject({
      "x-custom": "yes",
      "content-type": "application/json",
      "x-awa-signature": expect.stringMatching(/^[0-9a-f]{64}$/),
    });
    expect(made).toMatchObject({ authorization: "Bearer t0", "content-type": "application/json" });
    expect(made).not.toHaveProperty("x-awa-signature");
    expect(sync).not.toHaveProperty("x-awa-signature");
  });

  test("HW8 the signature verifies with the secret; the ingress of another secret refuses it", async () => {
    const { url, received } = await serve(answerWith(202));
    const { job, waits } = await run({ url });
    const request = received[0] ?? expect.fail("no request");
    const id = waits[0]?.id ?? "";
    const signature = String(request.headers["x-awa-signature"]);
    expect(verifyCallbackId([TEST_CALLBACK_SECRET], id, signature)).toBe(true);
    const other = "0b".repeat(32);
    expect(signature).not.toBe(signCallbackId(other, id));
    expect(await callBack(request, 1, ingress({ AWA_CALLBACK_HMAC_SECRET: other }))).toMatchObject({
      status: 401,
      body: { error: "invalid callback signature" },
    });
    expect(await client.getJob(job.id)).toMatchObject({ state: "waiting_external" });
  });

  test("HW9 HW10 the URL has the default prefix, or one's own; the ingress there takes it", async () => {
    const { url, received } = await serve(answerWith(202));
    await run({ url });
    const { job } = await run({ url }, { callbacks: { ...callbacks, pathPrefix: "/hooks/v1" } });
    const [byDefault, own = expect.fail("no request")] = received;
    expect(byDefault?.body.callback_url).toBe(
      `${BASE_URL}/api/callbacks/${byDefault?.body.callback_id}/complete`,
    );
    expect(own.body.callback_url).toBe(`${BASE_URL}/hooks/v1/${own.body.callback_id}/complete`);
    expect(await callBack(own, 1, ingress({ AWA_CALLBACK_PATH_PREFIX: "/hooks/v1" }))).toMatchObject({
      status: 200,
    });
    expect(await client.getJob(job.id)).toMatchObject({ state: "completed" });
  });

  test("without a base URL there is no callback_url; without a secret there is no signature", async () => {
    const { url, received } = await serve(answerWith(202));
    await run({ url }, { callbacks: { ...callbacks, baseUrl: null, secrets: [] } });
    const { job } = await run({ url }, { callbacks: null });
    for (const { body, headers } of received) {
      expect(body).toHaveProperty("callback_id");
      expect(body).not.toHaveProperty("callback_url");
      expect(headers).not.toHaveProperty("x-awa-signature");
    }
    expect(received[1]?.body.callback_id).toBe(job.callbackId);
  });

  test("calls back before it answers 202: completed once, with one set of follow-ups; our own end is stale", async () => {
    const { url } = await serve(async (response, request) => {
      expect(await callBack(request, "early")).toMatchObject({ status: 200 });
      response.writeHead(202).end();
    });
    const { job, report, lines, outcomes, waits } = await run({ url });
    expect(job).toMatchObject({ state: "completed", result: "early", errors: [] });
    expect(waits).toMatchObject([{ state: "completed" }]);
    expect(outcomes).toEqual(["completed", "completed"]);
    expect(report.lost).toBe(1);
    expect(lines.find((line) => line.jobId === job.id)).toMatchObject({
      reason: expect.stringContaining("stale"),
    });
  });

  test("calls back, and then answers 500: the callback stands", async () => {
    const { url } = await serve(async (response, request) => {
      await callBack(request, "done");
      response.writeHead(500).end("crashed afterwards");
    });
    expect((await run({ url })).job).toMatchObject({ state: "completed", result: "done", errors: [] });
  });

  test("a 202 whose body never ends parks at once", async () => {
    const { url, gone } = await serve((response) => {
      response.writeHead(202);
      response.write("working");
    });
    expect((await run({ url })).job).toMatchObject({ state: "waiting_external" });
    await gone;
  });

  test("a job id that a number can't hold is sent as its digits", async () => {
    await db.pool.query("ALTER TABLE awa_edge.jobs ALTER COLUMN id RESTART WITH 9007199254740992");
    onTestFinished(async () => {
      await db.pool.query("ALTER TABLE awa_edge.jobs ALTER COLUMN id RESTART WITH 1000");
    });
    const { url, received } = await serve(answerWith(202));
    await run({ url });
    expect(received[0]?.body.job_id).toBe("9007199254740992");
  });
});

describe("the bindings are to blame: failed for good, nobody is called, no callback is left", () => {
  test.each<[string, HttpFunctionOptions, string]>([
    ["no URL", { url: ({ NOT_SET }) => NOT_SET }, "its url is not an http(s) URL"],
    ["not a URL", { url: ({ TOKEN }) => TOKEN }, "its url is not an http(s) URL"],
    [
      "a password",
      { url: ({ TOKEN }) => `http://me:${TOKEN}@127.0.0.1` },
      "its url has a user name or a password: send a header instead",
    ],
    [
      "a header that isn't set",
      { url: "http://127.0.0.1", headers: ({ NOT_SET }) => ({ "X-Key": NOT_SET }) },
      'its header "X-Key" isn\'t a string',
    ],
    [
      "a header with a line break",
      { url: "http://127.0.0.1", headers: ({ TOKEN }) => ({ "X-Key": `${TOKEN}\n${TOKEN}` }) },
      'its header "X-Key" can\'t be sent',
    ],
  ])("%s", async (_, options, message) => {
    const { job, error, waits } = await run(options, { env: { TOKEN: "secret-token" } });
    expect(job).toMatchObject({ state: "failed", attempt: 1, deadLetter: { reason: "terminal_error" } });
    expect(error).toBe(`can't call the function: ${message}`);
    expect(waits).toEqual([]);
  });
});

describe("statuses beyond the reference", () => {
  const secondsFrom = (job: JobRow) => (job.runAt.getTime() - (job.finalizedAt?.getTime() ?? 0)) / 1000;

  test.each([408, 429, 503])("%i with Retry-After in seconds: due then", async (status) => {
    const { url } = await serve(answerWith(status, "later", { "Retry-After": "120" }));
    const { job, error } = await run({ url });
    expect(job).toMatchObject({ state: "retryable" });
    expect(error).toBe(`function returned ${status}: later`);
    expect(secondsFrom(job)).toBe(120);
  });

  test("429 with Retry-After as a date: due then, at the latest a second after", async () => {
    const at = new Date(Math.ceil(Date.now() / 1000) * 1000 + 120_000);
    const { url } = await serve(answerWith(429, "", { "Retry-After": at.toUTCString() }));
    const { job, error } = await run({ url });
    expect(error).toBe("function returned 429");
    expect(secondsFrom(job)).toBeGreaterThan(100);
    expect(secondsFrom(job)).toBeLessThanOrEqual(121);
  });

  test("429 with nonsense for Retry-After, or none: the usual back-off", async () => {
    for (const headers of [{ "Retry-After": "soon" }, {}]) {
      const { url } = await serve(answerWith(429, "", headers));
      const { job } = await run({ url });
      expect(job).toMatchObject({ state: "retryable" });
      expect(secondsFrom(job)).toBeLessThan(3);
    }
  });

  test("429 at the last attempt: failed, and it says why", async () => {
    const { url } = await serve(answerWith(429, "later", { "Retry-After": "120" }));
    const { job, error } = await run({ url }, {}, { maxAttempts: 1 });
    expect(job).toMatchObject({ state: "failed", deadLetter: { reason: "max_attempts_exhausted" } });
    expect(error).toBe(
      "max_attempts exhausted (handler requested retry after 120 s): function returned 429: later",
    );
  });

  test.each([301, 302, 307, 308])("%i: failed for good; nobody gets the signature", async (status) => {
    const elsewhere = await serve(answerWith(202));
    const { url } = await serve(answerWith(status, "", { Location: elsewhere.url }));
    const { job, error } = await run({ url });
    expect(job).toMatchObject({ state: "failed", attempt: 1 });
    expect(error).toBe(`function returned ${status}`);
    expect(elsewhere.received).toEqual([]);
  });
});

describe("bodies that are too much", () => {
  /** Writes until nobody listens any more. */
  const endless =
    (status: number, headers: Record<string, string> = {}): Answer =>
    (response) => {
      response.writeHead(status, headers);
      const more = () => {
        while (!response.destroyed && response.write("0123456789".repeat(100)));
      };
      response.on("drain", more);
      more();
    };

  test("an endless error body is cut off at 4 KiB, and the connection closed", async () => {
    const { url, gone } = await serve(endless(500));
    const { job, error } = await run({ url });
    await gone;
    expect(job).toMatchObject({ state: "retryable" });
    expect(error).toBe(`function returned 500: ${"0123456789".repeat(500).slice(0, 4096)}…`);
  });

  test("an endless JSON result completes without a result, and the connection is closed", async () => {
    const { url, gone } = await serve(endless(200, json));
    expect((await run({ url, mode: "sync" })).job).toMatchObject({ state: "completed", result: null });
    await gone;
  });

  test("a huge one cut in the middle of a character, with NULs and broken UTF-8: what can be stored is stored", async () => {
    const body = Buffer.concat([Buffer.from([0x61, 0x00, 0xff, 0x62]), Buffer.from("é".repeat(3_000_000))]);
    const { url } = await serve(answerWith(400, Buffer.concat([Buffer.from("x"), body])));
    expect((await run({ url })).error).toBe(`function returned 400: xa\ufffdb${"é".repeat(2045)}…`);
  });

  test("one of 4 KiB is whole", async () => {
    const { url } = await serve(answerWith(400, "y".repeat(4096)));
    expect((await run({ url })).error).toBe(`function returned 400: ${"y".repeat(4096)}`);
  });

  test("one that stalls or breaks off: the status counts, with what came", async () => {
    const stalling = await serve((response) => {
      response.writeHead(400);
      response.write("no such temp");
    });
    const stalled = await run({ url: stalling.url, timeoutSeconds: 1 });
    expect(stalled.job).toMatchObject({ state: "failed" });
    expect(stalled.error).toBe("function returned 400: no such temp…");
    const breaking = await serve((response) => {
      response.writeHead(400, { "Content-Length": "100" });
      response.write("no such temp", () => response.destroy());
    });
    expect((await run({ url: breaking.url })).error).toMatch(/^function returned 400: (no such temp)?…$/);
  });
});

describe("no answer in time", () => {
  test.each(["async", "sync"] as const)("%s: retried, and the connection closed", async (mode) => {
    const { url, gone } = await serve(() => undefined);
    const { job, error, waits } = await run({ url, mode, timeoutSeconds: 0.8004 });
    expect(job).toMatchObject({ state: "retryable", callbackId: null });
    expect(error).toBe("function timed out after 0.8004 s");
    expect(waits.map(({ state }) => state)).toEqual(mode === "async" ? ["cancelled"] : []);
    await gone;
  });

  test("a result that stalls counts as no answer", async () => {
    const { url } = await serve((response) => {
      response.writeHead(200, json);
      response.write('{"pages":');
    });
    const { job, error } = await run({ url, mode: "sync", timeoutSeconds: 1 });
    expect(job).toMatchObject({ state: "retryable" });
    expect(error).toBe("function timed out after 1 s");
  });

  test("the attempt's own deadline comes first: its words, not ours", async () => {
    const { url, gone } = await serve(() => undefined);
    const { job, error } = await run({ url }, {}, { deadlineSeconds: 1 });
    expect(job).toMatchObject({ state: "retryable" });
    expect(error).toBe("hard deadline exceeded");
    await gone;
  });
});
