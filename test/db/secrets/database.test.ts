import pg from "pg";
import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import { startNeonServer } from "../../../scripts/lib/neon-server.ts";
import { createClient, neonDatabase, pgDatabase } from "../../../src/client.ts";
import { createApp } from "../../../src/ingress/app.ts";
import type { Database } from "../../../src/shared/db/port.ts";
import { complete } from "../../../src/shared/registry/handler.ts";
import { signCallbackId } from "../../../src/shared/signature.ts";
import { type Canary, canary, secretsOf } from "../../support/canaries.ts";
import { createTestDatabase, type TestDatabase } from "../../support/database.ts";
import { run } from "../../support/executor.ts";
import { makeWaiting } from "../../support/factory.ts";
import { ingressDeps } from "../../support/ingress.ts";
import { watchOutside } from "../../support/outside.ts";
import { TEST_CALLBACK_SECRET } from "../../support/secrets.ts";
import { registryWithSources } from "../../support/sources.ts";
import { tick } from "../../support/tick.ts";

// However the database fails: neither its connection string nor what a driver or Postgres says of it, which quotes rows and values, in the
// log, an answer, or an error that an application gets.

let db: TestDatabase;
beforeAll(async () => {
  db = await createTestDatabase();
});
afterAll(() => db.drop());
const outside = watchOutside();

const content = canary("content");
const password = canary("password");
const secrets = (...urls: readonly string[]): readonly Canary[] => [
  { what: "a row", text: content },
  { what: "a password", text: password },
  ...secretsOf(
    Object.fromEntries([db.url, db.workerUrl, ...urls].map((url) => ["a connection string", url])),
  ),
];
const registry = () =>
  registryWithSources()
    .queue("default")
    .handle("plain", () => complete(content));

/**
 * Has a callback completed and a webhook received, a tick and jobs run, and the client do things: whatever of it fails.
 *
 * @param broken what breaks, once there is something to do
 * @returns what the callback was answered
 */
async function goThrough(
  database: Database,
  broken: () => Promise<unknown> = async () => undefined,
): Promise<string> {
  const { callbackId } = await makeWaiting(db.pool, { kind: "plain" });
  await makeWaiting(db.pool, { timeoutAt: "now() - interval '1 s'", metadata: { content } });
  await db.pool.query("INSERT INTO awa_edge.jobs (kind, args, metadata) VALUES ('plain', '{\"n\":1}', $1)", [
    { content },
  ]);
  await broken();
  const env = { DATABASE_URL: db.workerUrl, AWA_CALLBACK_HMAC_SECRET: TEST_CALLBACK_SECRET };
  const app = createApp(
    ingressDeps(env, { registry: registry(), log: outside.log, database: () => database }),
  );
  const context = { waitUntil: () => undefined, passThroughOnException: () => undefined, props: {} };
  const post = async (path: string, headers: Record<string, string>, body: unknown) => {
    const request = { method: "POST", headers, body: JSON.stringify(body) };
    const { status, text } = await outside.answer(await app.request(path, request, {}, context));
    return `${status} ${JSON.parse(text).code ?? ""}`;
  };
  await outside.answer(await app.request("/readyz"));
  await post(
    "/webhooks/shop",
    { "x-delivery": content },
    { key: content, does: "complete", payload: content },
  );
  const signed = {
    "Content-Type": "application/json",
    "X-Awa-Signature": signCallbackId(TEST_CALLBACK_SECRET, callbackId),
  };
  const answer = await post(`/api/callbacks/${callbackId}/complete`, signed, { payload: content });
  const { results } = await tick(database, registry(), { log: outside.log, runsJobs: false });
  for (const result of results) if (!result.ok) outside.error(result.error);
  await run(database, registry(), { log: outside.log }).catch(outside.error);
  const client = createClient({ database, registry: registry() });
  for (const call of [
    () => client.enqueue("plain", { n: 1 }, { tags: [content], unique: true }),
    () => client.park("order", { n: 1 }, { source: "shop", correlationKey: content }),
    () => client.failCallback(callbackId, content),
    () => client.configureQueue("default", { keepsDeadLetters: true }),
  ])
    await call().catch(outside.error);
  return answer;
}
const overNeon = (connectionString: string, fetchEndpoint = inject("neonEndpoint")) =>
  neonDatabase({ connectionString, fetchEndpoint, timeoutMs: 2_000 });
async function overPg(
  connectionString: string,
  work: (database: Database) => Promise<void>,
  config: pg.PoolConfig = {},
) {
  const pool = new pg.Pool({ connectionString, ...config });
  pool.on("error", () => undefined);
  await work(pgDatabase(pool));
  await pool.end();
}

test("nothing fails: what goes through is seen, and a row stands nowhere", async () => {
  await overPg(db.workerUrl, async (database) => {
    expect(await goThrough(database)).toBe("200 ");
  });
  expect(outside.whole()).toContain('"outcome":"completed"');
  expect(outside.leaks(secrets())).toEqual([]);
});

describe("it can't be reached", () => {
  const at = (change: (url: URL) => void) => {
    const url = new URL(db.workerUrl);
    change(url);
    return url.href;
  };
  test.each<[string, () => string]>([
    ["a wrong password", () => at((url) => Object.assign(url, { password }))],
    ["a password that isn't encoded right", () => db.workerUrl.replace(/:[^:@]*@/, `:${password}%ZZ@`)],
    [
      "a port that can't be",
      () => db.workerUrl.replace(/:\d+\//, ":99999/").replace(/:[^:@]*@/, `:${password}@`),
    ],
    ["a host that can't be", () => `postgres://u:${password}@a b/x`],
    [
      "a certificate that isn't there",
      () => `${at((url) => Object.assign(url, { password }))}?sslrootcert=/${password}`,
    ],
  ])("%s", async (_, url) => {
    await overPg(url(), async (database) => {
      expect(await goThrough(database)).toBe("503 database_unavailable");
    });
    // The driver quotes one that it can't read.
    expect(await goThrough(overNeon(url()))).toMatch(/^(503 database_unavailable|200 )$/);
    expect(outside.leaks(secrets(url()))).toEqual([]);
  });

  test("what stands before it says no, in HTML or in JSON, or isn't there", async () => {
    const neon = await startNeonServer({ upstream: db.workerUrl });
    try {
      for (const text of [
        `<h1>${content}</h1>`,
        JSON.stringify({ message: content, code: content, detail: content }),
      ]) {
        for (const status of [400, 502]) {
          neon.fault(db.name, () => ({ status, text }));
          expect(await goThrough(overNeon(db.workerUrl, neon.endpoint))).toBe("503 database_unavailable");
        }
      }
    } finally {
      await neon.close();
    }
    expect(await goThrough(overNeon(db.workerUrl, neon.endpoint))).toBe("503 database_unavailable");
    expect(outside.leaks(secrets())).toEqual([]);
  });
});

describe("it refuses, and quotes what it was given", () => {
  const TABLES = ["jobs", "callbacks", "deliveries", "rescue_followups", "queues"];
  /** Makes it refuse what the Worker's role writes. Claims may pass, so that it is the end of an attempt that fails. */
  async function refuse(code: string, { claimsPass }: { readonly claimsPass: boolean }) {
    await db.pool.query(`CREATE OR REPLACE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      IF ${claimsPass} AND to_jsonb(NEW)->>'state' = 'running' THEN RETURN NEW; END IF;
      RAISE EXCEPTION USING ERRCODE = '${code}', MESSAGE = 'can''t store ' || NEW::text || '${content}',
        DETAIL = 'Failing row contains ' || NEW::text || '${content}', HINT = '${content}', COLUMN = '${content}';
    END $$`);
    for (const table of TABLES)
      await db.pool.query(
        `CREATE OR REPLACE TRIGGER refuse BEFORE INSERT OR UPDATE ON awa_edge.${table} FOR EACH ROW
         WHEN (session_user ~ '^awa_worker') EXECUTE FUNCTION public.refuse()`,
      );
  }
  const mend = () =>
    db.pool.query(TABLES.map((table) => `DROP TRIGGER IF EXISTS refuse ON awa_edge.${table}`).join("; "));

  test.each([
    ["23505", "409 unique_conflict"],
    ["23514", "500 follow_up_failed"],
    ["40P01", "503 database_unavailable"],
    ["P0001", "500 internal_error"],
  ])("SQLSTATE %s: %s", async (code, answer) => {
    const isFinal = !answer.startsWith("503");
    const broken = () => refuse(code, { claimsPass: isFinal });
    try {
      await overPg(db.workerUrl, async (database) => {
        expect(await goThrough(database, broken)).toBe(answer);
      });
      await mend();
      expect(await goThrough(overNeon(db.workerUrl), broken)).toBe(answer);
    } finally {
      await mend();
    }
    expect(outside.whole()).toContain(code);
    expect(outside.leaks(secrets())).toEqual([]);
  });

  test("a statement that takes too long", async () => {
    const holder = await db.pool.connect();
    const lock = async () => {
      await holder.query("BEGIN; LOCK TABLE awa_edge.jobs");
    };
    try {
      await overPg(
        db.workerUrl,
        async (database) => {
          expect(await goThrough(database, lock)).toBe("503 database_unavailable");
        },
        { statement_timeout: 20 },
      );
    } finally {
      await holder.query("ROLLBACK");
      holder.release();
    }
    expect(outside.whole()).toContain("57014");
    expect(outside.leaks(secrets())).toEqual([]);
  });
});
