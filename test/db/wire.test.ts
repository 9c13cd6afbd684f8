import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { startNeonServer } from "../../scripts/lib/neon-server.ts";
import { createClient, pgDatabase } from "../../src/client.ts";
import { createApp } from "../../src/ingress/app.ts";
import { neonDatabase } from "../../src/shared/db/neon.ts";
import type { Database } from "../../src/shared/db/port.ts";
import type { LogEntry } from "../../src/shared/log.ts";
import type { RegistryView } from "../../src/shared/registry/define.ts";
import { signCallbackId } from "../../src/shared/signature.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { emptyTables } from "../support/empty-tables.ts";
import { claim, type MadeJob, makeRunning, makeWaiting, snapshot } from "../support/factory.ts";
import { ingressDeps } from "../support/ingress.ts";
import { testRegistry } from "../support/registry.ts";
import { TEST_CALLBACK_SECRET } from "../support/secrets.ts";
import { tick } from "../support/tick.ts";

// The real ingress and the real Neon driver, against a development server in this process: its statements can be counted
// and its answers broken.
let db: TestDatabase;
let neon: Awaited<ReturnType<typeof startNeonServer>>;
const TIMEOUT_MS = 1_000;
const lines: LogEntry[] = [];
const deferred: Promise<unknown>[] = [];

beforeAll(async () => {
  db = await createTestDatabase();
  neon = await startNeonServer({ upstream: db.url });
});
afterAll(async () => {
  await neon.close();
  await db.drop();
});
beforeEach(async () => {
  await emptyTables(db.pool);
  neon.resetStatements(db.name);
  lines.length = 0;
});
afterEach(() => neon.fault(db.name));

const open = (): Database =>
  neonDatabase({ connectionString: db.workerUrl, fetchEndpoint: neon.endpoint, timeoutMs: TIMEOUT_MS });

function app(registry: RegistryView = testRegistry(), env: Record<string, string> = {}) {
  const bindings = { DATABASE_URL: db.workerUrl, AWA_CALLBACK_HMAC_SECRET: TEST_CALLBACK_SECRET, ...env };
  const log = (line: LogEntry) => lines.push(line);
  return createApp(ingressDeps(bindings, { registry, log, clock: () => performance.now(), database: open }));
}

async function call(
  job: Pick<MadeJob, "callbackId">,
  action: string,
  body: unknown = {},
  ingress: ReturnType<typeof app> = app(),
) {
  const context = {
    waitUntil: (work: Promise<unknown>) => deferred.push(work),
    passThroughOnException() {},
    props: {},
  };
  const response = await ingress.request(
    `/api/callbacks/${job.callbackId}/${action}`,
    {
      method: "POST",
      headers: {
        "Content-Type": "application/json",
        "X-Awa-Signature": signCallbackId(TEST_CALLBACK_SECRET, job.callbackId),
      },
      body: JSON.stringify(body),
    },
    {},
    context,
  );
  const answer: object = JSON.parse(await response.text());
  return { status: response.status, headers: response.headers, body: answer };
}

const client = () => createClient({ database: pgDatabase(db.workerPool), registry: testRegistry() });

describe("the status table, against the database", () => {
  test("moved: 200 with Awa's spelling of the state", async () => {
    const [a, b, c, d, e] = [
      await makeWaiting(db.pool, { args: { n: 1 } }),
      await makeWaiting(db.pool),
      await makeWaiting(db.pool),
      await makeWaiting(db.pool),
      await makeRunning(db.pool),
    ];
    expect(await call(a, "complete", { payload: 1 })).toMatchObject({
      status: 200,
      body: { id: a.id, state: "Completed" },
    });
    expect(await call(b, "fail", { error: "x" })).toMatchObject({
      status: 200,
      body: { id: b.id, state: "Failed" },
    });
    expect(await call(c, "retry")).toMatchObject({ status: 200, body: { id: c.id, state: "Available" } });
    expect(await call(d, "heartbeat")).toMatchObject({
      status: 200,
      body: { id: d.id, state: "WaitingExternal" },
    });
    expect(await call(d, "complete", { resume: true })).toMatchObject({
      body: { id: d.id, state: "Available" },
    });
    expect(await call(e, "complete", { resume: true })).toMatchObject({
      body: { id: e.id, state: "Running" },
    });
  });

  test("the same again: the same body and duplicate; another action: 409; nothing changes", async () => {
    const job = await makeWaiting(db.pool);
    const first = await call(job, "complete", { payload: 1 });
    const before = await snapshot(db.pool);
    expect(await call(job, "complete", { payload: 1 })).toMatchObject({
      status: 200,
      body: { ...first.body, duplicate: true },
    });
    for (const [action, body] of [
      ["fail", { error: "x" }],
      ["retry", {}],
      ["heartbeat", {}],
      ["complete", { resume: true }],
    ] as const) {
      expect(await call(job, action, body)).toMatchObject({
        status: 409,
        body: { code: "callback_already_resolved" },
      });
    }
    expect(await snapshot(db.pool)).toEqual(before);
  });

  test("expired, cancelled: 410 by name; unknown: 404 with Awa's text", async () => {
    const expired = await makeWaiting(db.pool, { timeoutAt: "now() - interval '1 second'" });
    await tick(pgDatabase(db.workerPool), testRegistry());
    expect(await call(expired, "complete")).toMatchObject({
      status: 410,
      body: { code: "callback_expired" },
    });
    expect(await call(expired, "heartbeat")).toMatchObject({
      status: 410,
      body: { code: "callback_expired" },
    });
    const cancelled = await makeWaiting(db.pool);
    await client().cancel(cancelled.id);
    expect(await call(cancelled, "fail", { error: "x" })).toMatchObject({
      status: 410,
      body: { code: "callback_cancelled" },
    });
    const unknown = { callbackId: "00000000-0000-4000-8000-000000000000" } as MadeJob;
    expect(await call(unknown, "complete")).toMatchObject({
      status: 404,
      body: { code: "callback_not_found", error: `callback not found: ${unknown.callbackId}` },
    });
  });

  test("heartbeat then fail: 200 both", async () => {
    const job = await makeWaiting(db.pool);
    expect(await call(job, "heartbeat", { timeout_seconds: 0.5 })).toMatchObject({ status: 200 });
    expect(await call(job, "fail", { error: "x" })).toMatchObject({ status: 200 });
  });

  test("retry while running: 409 with Retry-After", async () => {
    const answer = await call(await makeRunning(db.pool), "retry");
    expect(answer).toMatchObject({ status: 409, body: { code: "job_still_running" } });
    expect(answer.headers.get("Retry-After")).toBe("1");
  });

  test("a follow-up that can't be planned: 500 and still pending; with the closure mended the repetition goes through", async () => {
    const job = await makeWaiting(db.pool, { kind: "poison" });
    const before = await snapshot(db.pool);
    expect(await call(job, "complete")).toMatchObject({ status: 500, body: { code: "follow_up_failed" } });
    expect(await snapshot(db.pool)).toEqual(before);
    const mended = {
      ...testRegistry(),
      closures: () => [],
      knows: () => true,
      hooks: () => [],
      sources: () => [],
    } as unknown as RegistryView;
    expect(await call(job, "complete", {}, app(mended))).toMatchObject({ status: 200 });
  });

  test("the job's own unique key is taken by then: 409, nothing changes", async () => {
    const job = await makeWaiting(db.pool, {
      kind: "plain",
      uniqueKey: "3".repeat(32),
      uniqueStates: ["completed"],
    });
    const holder = await makeWaiting(db.pool, {
      kind: "plain",
      uniqueKey: "3".repeat(32),
      uniqueStates: ["completed"],
    });
    await call(holder, "complete");
    const before = await snapshot(db.pool);
    expect(await call(job, "complete")).toMatchObject({ status: 409, body: { code: "unique_conflict" } });
    expect(await snapshot(db.pool)).toEqual(before);
  });

  test("a payload of every shape comes back from the database as it was sent", async () => {
    for (const payload of [
      null,
      0,
      -1.5,
      "",
      "💶 \u2028",
      [],
      {},
      { a: { b: [1, "x", null] } },
      9007199254740991,
    ]) {
      const job = await makeWaiting(db.pool, { kind: "plain" });
      await call(job, "complete", { payload });
      expect((await client().getJob(job.id))?.result).toEqual(payload);
    }
  });

  test("the log: job, kind, callback, outcome, follow-ups, duration, round trips; no payload, no signature", async () => {
    const job = await makeWaiting(db.pool);
    await call(job, "complete", { payload: { card: "4242-secret" } });
    expect(lines).toMatchObject([
      {
        level: "info",
        event: "request",
        action: "complete",
        jobId: job.id,
        kind: "order",
        callbackId: job.callbackId,
        outcome: "completed",
        followUpIds: [expect.any(String), expect.any(String)],
        deduplicated: 0,
        status: 200,
        durationMs: expect.any(Number),
        roundTrips: 2,
      },
    ]);
    const text = JSON.stringify(lines);
    for (const secret of [
      "4242-secret",
      signCallbackId(TEST_CALLBACK_SECRET, job.callbackId),
      TEST_CALLBACK_SECRET,
      db.url,
    ]) {
      expect(text).not.toContain(secret);
    }
  });

  test("a kind from another build: moved, and said so", async () => {
    const job = await makeWaiting(db.pool, { kind: "from_another_build" });
    expect(await call(job, "complete")).toMatchObject({ status: 200 });
    expect(lines).toMatchObject([
      { event: "registry_drift", kind: "from_another_build" },
      { event: "request" },
    ]);
  });
});

describe("hooks", () => {
  test("run after the commit, under waitUntil; one that throws harms nobody; a duplicate fires none", async () => {
    const observed = testRegistry();
    const seen: string[] = [];
    observed
      .onEvent("order", () => {
        throw new Error("hook-message");
      })
      .onEvent("order", async (event) => {
        const stored = await client().getJob(event.job.id);
        seen.push(`${event.type}: stored as ${stored?.state}`);
      });
    const job = await makeWaiting(db.pool);
    deferred.length = 0;
    expect(await call(job, "complete", {}, app(observed))).toMatchObject({ status: 200 });
    expect(deferred).toHaveLength(1);
    await Promise.all(deferred);
    expect(seen).toEqual(["completed: stored as completed"]);
    expect(lines.filter((line) => line.event === "hook_failed")).toMatchObject([
      { jobId: job.id, kind: "order", reason: "hook 1 of order threw Error" },
    ]);
    await call(job, "complete", {}, app(observed));
    expect(deferred).toHaveLength(1);
  });
});

test("unsigned mode, body {}: 200; a prefix of one's own: 200 there and 404 at the default", async () => {
  const ask = async (env: Record<string, string>, path: string) => {
    const headers = { "Content-Type": "application/json" };
    const unsigned = { AWA_CALLBACK_HMAC_SECRET: "", AWA_CALLBACK_ALLOW_UNSIGNED: "true", ...env };
    return (await app(testRegistry(), unsigned).request(path, { method: "POST", headers, body: "{}" }))
      .status;
  };
  const job = await makeWaiting(db.pool, { kind: "plain" });
  expect(await ask({ AWA_CALLBACK_PATH_PREFIX: "/hooks" }, `/api/callbacks/${job.callbackId}/complete`)).toBe(
    404,
  );
  expect(await ask({ AWA_CALLBACK_PATH_PREFIX: "/hooks" }, `/hooks/${job.callbackId}/complete`)).toBe(200);
  const other = await makeWaiting(db.pool, { kind: "plain" });
  expect(await ask({}, `/api/callbacks/${other.callbackId}/complete`)).toBe(200);
});

describe("round trips, counted at the development server", () => {
  test("complete with follow-ups 2, duplicate 1, heartbeat 1, refused 0", async () => {
    const job = await makeWaiting(db.pool);
    const counted = async (run: () => Promise<unknown>) => {
      neon.resetStatements(db.name);
      await run();
      return neon.statements(db.name);
    };
    expect(await counted(() => call(job, "heartbeat"))).toBe(1);
    expect(await counted(() => call(job, "complete"))).toBe(2);
    expect((await client().getFollowUps(job.id)).length).toBe(2);
    expect(await counted(() => call(job, "complete"))).toBe(1);
    expect(await counted(() => call(job, "heartbeat", { timeout_seconds: -1 }))).toBe(0);
  });

  test("an idle tick: 8 at the most", async () => {
    const registry = testRegistry().queue("default").queue("other");
    const job = registry.enqueue("plain", { n: 1 });
    registry.periodic("yearly", "0 0 1 1 *", job).periodic("monthly", "0 0 1 * *", job);
    await tick(open(), registry);
    expect(neon.statements(db.name)).toBe(8);
  });

  test.each([1000, 3000])(
    "a sweep of %i rows with the dispatch of their follow-ups: 3 per 1,000 rows at the most",
    async (rows) => {
      await db.pool.query(
        `WITH j AS (INSERT INTO awa_edge.jobs (kind, args, state, attempt, run_lease, callback_id)
         SELECT 'order', jsonb_build_object('n', n), 'waiting_external', 1, 1, gen_random_uuid() FROM generate_series(1, $1) n
         RETURNING id, callback_id)
       INSERT INTO awa_edge.callbacks (id, job_id, run_lease, timeout_at)
       SELECT callback_id, id, 1, now() - interval '1 minute' FROM j`,
        [rows],
      );
      const registry = testRegistry();
      const { lines: report } = await tick(
        neonDatabase({ connectionString: db.workerUrl, fetchEndpoint: neon.endpoint }),
        registry,
      );
      const spent = report
        .filter(
          (line) => line.task === "rescue_expired_callbacks" || line.task === "dispatch_rescue_follow_ups",
        )
        .reduce((sum, line) => sum + (line.roundTrips ?? 0), 0);
      expect(neon.statements(db.name)).toBe(spent + 4);
      expect(spent).toBeLessThanOrEqual((3 * rows) / 1000);
      const { rows: counted } = await db.pool.query(
        "SELECT count(*)::int AS n FROM awa_edge.jobs WHERE trigger_outcome = 'rescued'",
      );
      expect(counted).toEqual([{ n: rows }]);
    },
  );
});

describe("an answer that never came", () => {
  test("restatedev/restate#841 committed, then cut: 503, and the repetition answers duplicate", async () => {
    const job = await makeWaiting(db.pool);
    neon.fault(db.name, ({ statements }) =>
      statements.some(({ text }) => text.includes("UPDATE")) ? "cut-after" : undefined,
    );
    const first = await call(job, "complete", { payload: 1 });
    expect(first).toMatchObject({ status: 503, body: { code: "database_unavailable" } });
    expect(first.headers.get("Retry-After")).toBe("5");
    neon.fault(db.name);
    expect(await call(job, "complete", { payload: 1 })).toMatchObject({
      status: 200,
      body: { state: "Completed", duplicate: true },
    });
    expect(await client().getFollowUps(job.id)).toHaveLength(2);
  });

  test("cut before it ran: 503, nothing changed, and the repetition moves", async () => {
    const job = await makeWaiting(db.pool);
    const before = await snapshot(db.pool);
    neon.fault(db.name, ({ statements }) =>
      statements.some(({ text }) => text.includes("UPDATE")) ? "cut-before" : undefined,
    );
    expect(await call(job, "fail", { error: "x" })).toMatchObject({ status: 503 });
    expect(await snapshot(db.pool)).toEqual(before);
    neon.fault(db.name);
    const again = await call(job, "fail", { error: "x" });
    expect(again).toMatchObject({ status: 200, body: { state: "Failed" } });
    expect(again.body).not.toHaveProperty("duplicate");
  });

  test("neondatabase/serverless#29 a statement that hangs is given up after its time", async () => {
    const job = await makeWaiting(db.pool);
    neon.fault(db.name, () => ({ hangMs: 5 * TIMEOUT_MS }));
    const startedAt = performance.now();
    expect(await call(job, "complete")).toMatchObject({
      status: 503,
      body: { code: "database_unavailable" },
    });
    expect(performance.now() - startedAt).toBeLessThan(4 * TIMEOUT_MS);
  });

  test("HTTP 500 of the database's front: 503, nothing of it in the answer", async () => {
    const job = await makeWaiting(db.pool);
    neon.fault(db.name, () => ({ status: 500 }));
    expect(await call(job, "complete")).toEqual({
      status: 503,
      headers: expect.anything(),
      body: { error: "the database is unavailable, try again", code: "database_unavailable" },
    });
  });
});

describe("a database that can't serve", () => {
  test("unreachable, wrong password, no such database, unmigrated, read-only: 503 that says what it may", async () => {
    const job = await makeWaiting(db.pool);
    const before = await snapshot(db.pool);
    const refused = new URL(db.url);
    refused.username = "no_such_role";
    refused.password = "wrong";
    const empty = `${db.name}_empty`;
    await db.pool.query(`CREATE DATABASE ${empty}`);
    const elsewhere = new URL(db.url);
    elsewhere.pathname = `/${empty}`;
    const missing = new URL(db.url);
    missing.pathname = "/no_such_database";
    const through = (connectionString: string, fetchEndpoint = neon.endpoint) =>
      createApp(
        ingressDeps(
          { DATABASE_URL: connectionString, AWA_CALLBACK_HMAC_SECRET: TEST_CALLBACK_SECRET },
          {
            registry: testRegistry(),
            log: (line) => lines.push(line),
            database: () => neonDatabase({ connectionString, fetchEndpoint, timeoutMs: TIMEOUT_MS }),
          },
        ),
      );
    const unavailable = { status: 503, body: { code: "database_unavailable" } };
    expect(await call(job, "complete", {}, through(db.url, "http://127.0.0.1:1/sql"))).toMatchObject(
      unavailable,
    );
    expect(await call(job, "complete", {}, through(missing.href))).toMatchObject(unavailable);
    expect(await call(job, "complete", {}, through(refused.href))).toMatchObject(unavailable);
    const unmigrated = await call(job, "complete", {}, through(elsewhere.href));
    expect(unmigrated).toMatchObject({
      status: 503,
      body: { error: expect.stringContaining("npm run migrate") },
    });
    await db.pool.query(`ALTER DATABASE ${db.name} SET default_transaction_read_only = on`);
    const fresh = await startNeonServer({ upstream: db.url });
    try {
      expect(await call(job, "complete", {}, through(db.url, fresh.endpoint))).toMatchObject(unavailable);
      expect(await call(job, "heartbeat", {}, through(db.url, fresh.endpoint))).toMatchObject(unavailable);
    } finally {
      await fresh.close();
      await db.pool.query(
        `SET default_transaction_read_only = off; ALTER DATABASE ${db.name} RESET default_transaction_read_only`,
      );
    }
    await db.pool.query(`DROP DATABASE ${empty} WITH (FORCE)`);
    expect(await snapshot(db.pool)).toEqual(before);
  });

  test("readyz: ready; behind, ahead and without a schema it says what to do", async () => {
    const ready = async () => {
      const response = await app().request("/readyz");
      return { status: response.status, body: await response.json() };
    };
    expect(await ready()).toMatchObject({ status: 200, body: { status: "ready" } });
    await db.pool.query("INSERT INTO awa_edge.migrations (name, run_on) VALUES ('9999_ahead', now())");
    expect(await ready()).toMatchObject({
      status: 503,
      body: { error: expect.stringContaining("newer than this build") },
    });
    await db.pool.query("DELETE FROM awa_edge.migrations WHERE name = '9999_ahead'");
    await db.pool.query("ALTER TABLE awa_edge.migrations RENAME TO migrations_elsewhere");
    expect(await ready()).toMatchObject({
      status: 503,
      body: { error: expect.stringContaining("npm run migrate") },
    });
    await db.pool.query("ALTER TABLE awa_edge.migrations_elsewhere RENAME TO migrations");
    expect(await ready()).toMatchObject({ status: 200 });
  });
});

test("a batch over Neon is one request and one transaction, at READ COMMITTED", async () => {
  const statement = (text: string, values: readonly string[] = []) => ({
    text,
    values,
    decode: (rows: readonly object[]) => rows,
  });
  const insert = "INSERT INTO awa_edge.queues (queue) VALUES ($1)";
  const before = neon.requests(db.name);
  const [, isolation, found] = await open().batch([
    statement(insert, ["batched"]),
    statement("SHOW transaction_isolation"),
    statement("SELECT queue FROM awa_edge.queues WHERE queue = $1", ["batched"]),
  ]);
  expect(neon.requests(db.name)).toBe(before + 1);
  expect([isolation, found]).toEqual([[{ transaction_isolation: "read committed" }], [{ queue: "batched" }]]);
  await expect(
    open().batch([statement(insert, ["undone"]), statement(insert, ["batched"])]),
  ).rejects.toMatchObject({
    kind: "unique_violation",
  });
  const { rows } = await db.pool.query("SELECT queue FROM awa_edge.queues");
  expect(rows).toEqual([{ queue: "batched" }]);
});

test("after a resume and a claim the next callback of the same job is another one", async () => {
  const job = await makeWaiting(db.pool);
  await call(job, "complete", { payload: 1, resume: true });
  await claim(db.pool, job.id);
  expect(await call(job, "complete", { payload: 1, resume: true })).toMatchObject({
    body: { duplicate: true },
  });
  expect(await call(job, "complete")).toMatchObject({ status: 409 });
});
