import { request } from "node:http";
import { neon, neonConfig } from "@neondatabase/serverless";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { type NeonServer, startNeonServer } from "../../scripts/lib/neon-server.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";

let db: TestDatabase;
let server: NeonServer;

beforeAll(async () => {
  db = await createTestDatabase();
  await db.pool.query("CREATE TABLE things (id int PRIMARY KEY, name text NOT NULL)");
});
afterAll(() => db.drop());

beforeEach(async () => {
  server = await startNeonServer({ upstream: db.url, control: true });
  neonConfig.fetchEndpoint = server.endpoint;
  await db.pool.query("TRUNCATE things");
});
afterEach(() => server.close());

function post(body: unknown, headers: Record<string, string> = {}): Promise<Response> {
  return fetch(server.endpoint, {
    method: "POST",
    body: JSON.stringify(body),
    headers: { "Neon-Connection-String": db.url, ...headers },
  });
}

async function names(): Promise<string[]> {
  const { rows } = await db.pool.query("SELECT name FROM things ORDER BY id");
  return rows.map(({ name }) => String(name));
}

describe("through the real driver", () => {
  test("a query answers its rows, and values survive both ways", async () => {
    const sql = neon(db.url);
    const at = new Date("2026-01-02T03:04:05.678Z");
    const [row] = await sql.query(
      `SELECT $1::int8 AS big, $2::timestamptz AS at, $3::jsonb AS json, $4::text[] AS list, $5::bool AS yes,
              $6::text AS nothing, $7::text AS empty, $8::bytea AS bytes`,
      [
        "9007199254740993",
        at,
        JSON.stringify({ a: [1, null] }),
        ['x,"y"', null, ""],
        true,
        null,
        "",
        Buffer.from([0, 255]),
      ],
    );
    expect(row).toEqual({
      big: "9007199254740993",
      at,
      json: { a: [1, null] },
      list: ['x,"y"', null, ""],
      yes: true,
      nothing: null,
      empty: "",
      bytes: Buffer.from([0, 255]),
    });
  });

  test("full results carry command, count and fields", async () => {
    const result = await neon(db.url, {
      fullResults: true,
    })`INSERT INTO things VALUES (1, 'a'), (2, 'b') RETURNING id`;
    expect(result).toMatchObject({ command: "INSERT", rowCount: 2, rows: [{ id: 1 }, { id: 2 }] });
    expect(result.fields).toMatchObject([{ name: "id", dataTypeID: 23 }]);
  });

  test("two columns of one name stay two in array mode", async () => {
    expect(await neon(db.url, { arrayMode: true })`SELECT 1 AS a, 2 AS a`).toEqual([[1, 2]]);
  });

  test("an error has Postgres's own fields", async () => {
    const sql = neon(db.url);
    await sql`INSERT INTO things VALUES (1, 'a')`;
    await expect(sql`INSERT INTO things VALUES (1, 'b')`).rejects.toMatchObject({
      name: "NeonDbError",
      code: "23505",
      severity: "ERROR",
      table: "things",
      constraint: "things_pkey",
      detail: "Key (id)=(1) already exists.",
    });
    await expect(sql`SELECT nonsense`).rejects.toMatchObject({ code: "42703", position: "8" });
  });

  test("a batch is one transaction", async () => {
    const sql = neon(db.url);
    const [first, second] = await sql.transaction([
      sql`INSERT INTO things VALUES (1, 'a') RETURNING txid_current()::text AS tx`,
      sql`SELECT txid_current()::text AS tx, count(*)::int FROM things`,
    ]);
    expect(second).toEqual([{ tx: first?.[0]?.tx, count: 1 }]);
    expect(await names()).toEqual(["a"]);
  });

  test("a batch with a failing statement changes nothing, wherever that one stands", async () => {
    const sql = neon(db.url);
    const good = () => sql`INSERT INTO things VALUES (1, 'a')`;
    const bad = () => sql`INSERT INTO things VALUES (2, NULL)`;
    await expect(sql.transaction([good(), bad()])).rejects.toMatchObject({ code: "23502" });
    await expect(sql.transaction([bad(), good()])).rejects.toMatchObject({ code: "23502" });
    expect(await names()).toEqual([]);
  });

  test.each([
    ["ReadUncommitted", "read uncommitted"],
    ["ReadCommitted", "read committed"],
    ["RepeatableRead", "repeatable read"],
    ["Serializable", "serializable"],
  ] as const)("a batch runs at isolation level %s", async (isolationLevel, expected) => {
    const sql = neon(db.url);
    const [rows] = await sql.transaction([sql`SHOW transaction_isolation`], { isolationLevel });
    expect(rows).toEqual([{ transaction_isolation: expected }]);
  });

  test("a batch is read-only and deferrable where asked for", async () => {
    const sql = neon(db.url);
    const write = sql`INSERT INTO things VALUES (1, 'a')`;
    await expect(sql.transaction([write], { readOnly: true })).rejects.toMatchObject({ code: "25006" });
    const show = () => sql`SHOW transaction_deferrable`;
    const options = { isolationLevel: "Serializable", readOnly: true } as const;
    expect(await sql.transaction([show()], options)).toEqual([[{ transaction_deferrable: "off" }]]);
    expect(await sql.transaction([show()], { ...options, deferrable: true })).toEqual([
      [{ transaction_deferrable: "on" }],
    ]);
  });

  test("a wrong password and an unknown database fail with Postgres's own codes", async () => {
    const url = new URL(db.url);
    url.password = "wrong";
    await expect(neon(url.href)`SELECT 1`).rejects.toMatchObject({ code: "28P01" });
    url.href = db.url;
    url.pathname = "/awa_no_such_database";
    await expect(neon(url.href)`SELECT 1`).rejects.toMatchObject({ code: "3D000" });
  });

  test("host and port of the connection string are not followed", async () => {
    const url = new URL(db.url);
    url.host = "elsewhere.invalid:1";
    expect(await neon(url.href)`SELECT current_database()`).toEqual([{ current_database: db.name }]);
  });

  test("nothing of a session outlives its request", async () => {
    const sql = neon(db.url);
    await sql`SET statement_timeout = '7s'`;
    await sql`SELECT pg_advisory_lock(1)`;
    await sql`BEGIN`;
    expect(await sql`SHOW statement_timeout`).toEqual([{ statement_timeout: "0" }]);
    const { rows } = await db.pool.query(
      "SELECT count(*)::int FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = $1)",
      [db.name],
    );
    expect(rows).toEqual([{ count: 0 }]);
  });

  test("a connection that Postgres ends is an error with its code; the next request works", async () => {
    const sql = neon(db.url);
    await expect(sql`SELECT pg_terminate_backend(pg_backend_pid())`).rejects.toMatchObject({ code: "57P01" });
    await sql`SELECT 1`;
    await db.pool.query(
      "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1 AND pid <> pg_backend_pid()",
      [db.name],
    );
    await expect.poll(() => sql`SELECT 1 AS one`.catch(() => null)).toEqual([{ one: 1 }]);
  });
});

describe("the protocol", () => {
  test("without raw text and array mode, rows are objects with JSON values", async () => {
    const response = await post({
      query: "SELECT 1 AS n, true AS b, '{\"a\":1}'::jsonb AS j, 5::int8 AS big",
    });
    expect(await response.json()).toMatchObject({
      rows: [{ n: 1, b: true, j: { a: 1 }, big: "5" }],
      rowAsArray: false,
    });
  });

  test("several statements in one query are refused, as on Neon", async () => {
    const response = await post({ query: "SELECT 1; SELECT 2" });
    expect(response.status).toBe(400);
    expect(await response.json()).toMatchObject({ code: "42601" });
  });

  test.each<[string, unknown, Record<string, string>, string]>([
    [
      "no connection string",
      { query: "SELECT 1" },
      { "Neon-Connection-String": "" },
      "invalid connection string",
    ],
    [
      "another protocol",
      { query: "SELECT 1" },
      { "Neon-Connection-String": "http://a@b/c" },
      "invalid connection",
    ],
    [
      "an unknown isolation level",
      { queries: [] },
      { "Neon-Batch-Isolation-Level": "constructor" },
      "Isolation",
    ],
    ["a body of another shape", { sql: "SELECT 1" }, {}, "a query must be"],
    ["a batch of another shape", { queries: ["SELECT 1"] }, {}, "a query must be"],
  ])("%s is 400", async (_, body, headers, message) => {
    const response = await post(body, headers);
    expect(response.status).toBe(400);
    expect(await response.json()).toMatchObject({ message: expect.stringContaining(message) });
  });

  test("a body that isn't JSON is 400", async () => {
    const response = await fetch(server.endpoint, {
      method: "POST",
      body: "{",
      headers: { "Neon-Connection-String": db.url },
    });
    expect(response.status).toBe(400);
  });

  test("another path is 404, another method 405, too large a body 413", async () => {
    expect((await fetch(`${server.endpoint}/x`, { method: "POST" })).status).toBe(404);
    expect((await fetch(server.endpoint)).status).toBe(405);
    const large = await fetch(server.endpoint, {
      method: "POST",
      body: new Uint8Array(64 * 1024 * 1024 + 1),
    });
    expect(large.status).toBe(413);
  });

  test("a name of somebody else's that points here is refused, as a page in a browser could use", async () => {
    const outcome = await new Promise((resolve, reject) => {
      const options = { method: "POST", headers: { Host: "evil.example", "Neon-Connection-String": db.url } };
      request(server.endpoint, options, (response) => resolve(response.statusCode))
        .on("error", reject)
        .end(JSON.stringify({ query: "SELECT 1" }));
    });
    expect(outcome).toBe(403);
  });

  test("an unreachable Postgres is 500 with a message", async () => {
    const upstream = new URL(db.url);
    upstream.port = "1";
    const orphan = await startNeonServer({ upstream: upstream.href });
    const response = await fetch(orphan.endpoint, {
      method: "POST",
      body: JSON.stringify({ query: "SELECT 1" }),
      headers: { "Neon-Connection-String": db.url },
    });
    expect(response.status).toBe(500);
    expect(await response.json()).toEqual({ message: expect.stringContaining("ECONNREFUSED") });
    await orphan.close();
  });
});

describe("what tests use", () => {
  test("statements, requests and texts are counted, without BEGIN and COMMIT", async () => {
    const sql = neon(db.url);
    await sql`SELECT 1`;
    await sql.transaction([sql`SELECT 2`, sql`SELECT 3`]);
    expect(server.requests(db.name)).toBe(2);
    expect(server.statements(db.name)).toBe(3);
    expect(server.log.map(({ text }) => text)).toEqual(["SELECT 1", "SELECT 2", "SELECT 3"]);
    expect(server.statements("another")).toBe(0);
    server.resetStatements(db.name);
    expect([server.statements(db.name), server.requests(db.name), server.log]).toEqual([0, 0, []]);
  });

  test("cut-before: the driver fails to connect, and nothing ran", async () => {
    server.fault(db.name, () => "cut-before");
    await expect(neon(db.url)`INSERT INTO things VALUES (1, 'a')`).rejects.toMatchObject({
      sourceError: expect.anything(),
    });
    expect(await names()).toEqual([]);
  });

  test("cut-after: the driver fails the same way, and it is committed", async () => {
    const sql = neon(db.url);
    server.fault(db.name, ({ begin }) => (begin === null ? undefined : "cut-after"));
    await sql`INSERT INTO things VALUES (1, 'a')`;
    const batch = sql.transaction([sql`INSERT INTO things VALUES (2, 'b')`]);
    await expect(batch).rejects.toMatchObject({ sourceError: expect.anything() });
    expect(await names()).toEqual(["a", "b"]);
    server.fault(db.name);
    await sql.transaction([sql`SELECT 1`]);
  });

  test("hang: committed, but the answer is late", async () => {
    server.fault(db.name, () => ({ hangMs: 10_000 }));
    const fetchOptions = { signal: AbortSignal.timeout(200) };
    await expect(neon(db.url, { fetchOptions })`INSERT INTO things VALUES (1, 'a')`).rejects.toThrow(
      "timeout",
    );
    expect(await names()).toEqual(["a"]);
  });

  test("status: answered so, and nothing ran", async () => {
    server.fault(db.name, () => ({ status: 503 }));
    await expect(neon(db.url)`INSERT INTO things VALUES (1, 'a')`).rejects.toThrow("HTTP status 503");
    expect(await names()).toEqual([]);
  });

  test("truncate: committed, and the answer breaks off", async () => {
    server.fault(db.name, () => "truncate");
    await expect(neon(db.url)`INSERT INTO things VALUES (1, 'a') RETURNING name`).rejects.toThrow();
    expect(await names()).toEqual(["a"]);
  });

  test("delay: it runs after its sender has given it up", async () => {
    server.fault(db.name, () => ({ delayMs: 300 }));
    const fetchOptions = { signal: AbortSignal.timeout(100) };
    await expect(neon(db.url, { fetchOptions })`INSERT INTO things VALUES (1, 'a')`).rejects.toThrow(
      "timeout",
    );
    expect(await names()).toEqual([]);
    await expect.poll(names).toEqual(["a"]);
  });

  test("status without JSON: as a proxy in front of it would answer", async () => {
    server.fault(db.name, () => ({ status: 502, text: "<html>Bad Gateway</html>" }));
    await expect(neon(db.url)`INSERT INTO things VALUES (1, 'a')`).rejects.toThrow("HTTP status 502");
    expect(await names()).toEqual([]);
  });

  test("end: Postgres goes away in the middle of a batch, and nothing of it stays", async () => {
    const sql = neon(db.url);
    server.fault(db.name, () => ({ endBefore: 1 }));
    const batch = sql.transaction([
      sql`INSERT INTO things VALUES (1, 'a')`,
      sql`INSERT INTO things VALUES (2, 'b')`,
    ]);
    await expect(batch).rejects.toMatchObject({ code: "57P01" });
    expect(server.statements(db.name)).toBe(1);
    expect(await names()).toEqual([]);
  });

  test("hooks: something else can happen before a statement and after a commit", async () => {
    const seen: string[] = [];
    const hooked = await startNeonServer({
      upstream: db.url,
      hooks: {
        async beforeStatement({ text }) {
          if (text.startsWith("INSERT")) await db.pool.query("INSERT INTO things VALUES (1, 'first')");
        },
        async afterCommit() {
          seen.push(...(await names()));
        },
      },
    });
    neonConfig.fetchEndpoint = hooked.endpoint;
    await neon(db.url)`INSERT INTO things VALUES (2, 'second')`;
    expect(seen).toEqual(["first", "second"]);
    await hooked.close();
  });

  test("the same over HTTP, and only where it was switched on", async () => {
    const call = (method: string, what: string, body?: unknown) =>
      fetch(`http://127.0.0.1:${server.port}/control/${what}?database=${db.name}`, {
        method,
        ...(body !== undefined && { body: JSON.stringify(body) }),
      });
    const sql = neon(db.url);
    await call("POST", "fault", { kind: "cut-after", times: 1 });
    await expect(sql`INSERT INTO things VALUES (1, 'a')`).rejects.toThrow();
    await sql`SELECT 1`;
    expect(await (await call("GET", "statements")).json()).toEqual({
      statements: 2,
      requests: 2,
      texts: ["INSERT INTO things VALUES (1, 'a')", "SELECT 1"],
    });
    await call("POST", "reset");
    expect(await (await call("GET", "statements")).json()).toMatchObject({ statements: 0, requests: 0 });

    const plain = await startNeonServer({ upstream: db.url });
    expect((await fetch(`http://127.0.0.1:${plain.port}/control/statements?database=x`)).status).toBe(404);
    await plain.close();
  });
});
