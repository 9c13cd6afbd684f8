import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import type pg from "pg";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { migrate } from "../../scripts/lib/migrate.ts";
import type { RunningPostgres } from "../../scripts/lib/postgres.ts";
import { startTemporaryPostgres } from "../../scripts/lib/temporary-postgres.ts";
import { createClient, pgDatabase } from "../../src/client.ts";
import { openPool } from "../support/database.ts";
import { testRegistry } from "../support/registry.ts";
import { tick } from "../support/tick.ts";

// The role as the README makes it, word for word, on a server of its own. That its rights suffice is shown by all the other tests, whose
// code under test has them and no others; here, that it has nothing beyond.

const REPOSITORY = path.resolve(import.meta.dirname, "../..");
const README = readFileSync(path.join(REPOSITORY, "README.md"), "utf8");
const section = /^### A role for the Worker\n(.*?)^##/ms.exec(README)?.[1] ?? "";
const printed = /^```sql\n(.*?)^```/ms.exec(section)?.[1] ?? "";

let postgres: RunningPostgres;
let owner: pg.Pool;
let worker: pg.Pool;

beforeAll(async () => {
  postgres = await startTemporaryPostgres();
  const databaseUrl = postgres.url();
  owner = openPool(databaseUrl);
  await owner.query("CREATE SCHEMA app; CREATE TABLE app.orders (id int); INSERT INTO app.orders VALUES (1)");
  // As after an upgrade from an older Postgres, where everybody may create in "public".
  await owner.query("GRANT CREATE ON SCHEMA public TO PUBLIC");
  await owner.query(printed);
  await migrate({ databaseUrl });
  const url = new URL(databaseUrl);
  Object.assign(url, { username: "awa_worker", password: "a long random password" });
  worker = openPool(url.href);
});
afterAll(async () => {
  await Promise.all([owner?.end(), worker?.end()]);
  await postgres?.stop();
});

/** What a table or a sequence is used for, by the text of the statements: `{ jobs: ["DELETE", "INSERT", …] }`. */
function usesInSource(): Record<string, string[]> {
  const src = path.join(REPOSITORY, "src");
  const uses = new Map<string, Set<string>>();
  for (const file of readdirSync(src, { recursive: true, encoding: "utf8" })) {
    if (!file.endsWith(".ts")) continue;
    const text = readFileSync(path.join(src, file), "utf8");
    const found = text.matchAll(/\b(INSERT INTO|UPDATE|DELETE FROM|FROM|JOIN) awa_edge\.(\w+)\b(?!\()/g);
    for (const [, verb = "", table = ""] of found) {
      const used = uses.get(table) ?? new Set();
      uses.set(table, used.add(/^(INSERT|UPDATE|DELETE)/.exec(verb)?.[0] ?? "SELECT"));
    }
    const upserts = text.matchAll(/\bINSERT INTO awa_edge\.(\w+)\b[^`]*\bDO UPDATE\b/g);
    for (const [, table = ""] of upserts) uses.get(table)?.add("UPDATE");
    for (const [, table = ""] of text.matchAll(/\bpg_get_serial_sequence\('awa_edge\.(\w+)', 'id'\)/g)) {
      uses.set(`${table}_id_seq`, new Set(["USAGE"]));
    }
  }
  return Object.fromEntries([...uses].map(([table, used]) => [table, [...used].sort()]));
}

async function granted(): Promise<Record<string, string[]>> {
  const { rows } = await owner.query<{ name: string; rights: string[] }>(
    `SELECT c.relname::text AS name, array_agg(a.privilege_type ORDER BY a.privilege_type) AS rights
     FROM pg_class c, aclexplode(c.relacl) a WHERE a.grantee = 'awa_worker'::regrole GROUP BY 1`,
  );
  return Object.fromEntries(rows.map(({ name, rights }) => [name, rights]));
}

test("the README prints the SQL and names the file that npm run migrate runs", () => {
  expect(printed).toMatch(/^CREATE ROLE awa_worker LOGIN PASSWORD/);
  expect(section).toContain("(sql/worker-role.sql)");
});

test("the role has the rights on tables and sequences that the statements in the code use, and no other", async () => {
  expect(await granted()).toEqual(usesInSource());
});

test("rights that were given otherwise are taken back by the next npm run migrate", async () => {
  const before = await granted();
  await owner.query("GRANT ALL ON ALL TABLES IN SCHEMA awa_edge TO awa_worker");
  await owner.query("GRANT ALL ON ALL SEQUENCES IN SCHEMA awa_edge TO awa_worker");
  await owner.query("ALTER DEFAULT PRIVILEGES IN SCHEMA awa_edge GRANT ALL ON TABLES TO awa_worker");
  expect((await migrate({ databaseUrl: postgres.url() })).applied).toEqual([]);
  expect(await granted()).toEqual(before);
  expect((await owner.query("SELECT FROM pg_default_acl")).rowCount).toBe(0);
});

test("a table that a migration adds is out of the role's reach until it is granted", async () => {
  await owner.query("CREATE TABLE awa_edge.later (id int)");
  await expect(worker.query("SELECT FROM awa_edge.later")).rejects.toMatchObject({ code: "42501" });
  await owner.query("DROP TABLE awa_edge.later");
});

test("a migration by another role than the tables' owner says that the rights couldn't be given, and what to do", async () => {
  await owner.query("CREATE ROLE migrator LOGIN PASSWORD 'm'; GRANT ALL ON DATABASE postgres TO migrator");
  await owner.query(
    "GRANT USAGE ON SCHEMA awa_edge TO migrator; ALTER TABLE awa_edge.migrations OWNER TO migrator",
  );
  const url = new URL(postgres.url());
  Object.assign(url, { username: "migrator", password: "m" });
  await expect(migrate({ databaseUrl: url.href })).rejects.toThrow(/sql\/worker-role\.sql/);
  await owner.query("REASSIGN OWNED BY migrator TO postgres");
  await migrate({ databaseUrl: postgres.url() });
});

test("with it a job is parked, completed, followed up and run, and its functions find everything without a search path", async () => {
  const registry = testRegistry();
  const database = pgDatabase(worker);
  const client = createClient({ database, registry });
  const { jobId, callbackId } = await client.park("order", { n: 1 });
  expect(
    await client.completeCallback(callbackId ?? expect.fail("no callback"), { payload: 1 }),
  ).toMatchObject({ status: "moved" });
  expect((await client.getFollowUps(jobId)).length).toBeGreaterThan(0);
  expect((await tick(database, registry)).results.filter(({ ok }) => !ok)).toEqual([]);
  await client.configureQueue("q", { paused: true });
  expect((await worker.query("SHOW search_path")).rows).toEqual([{ search_path: '""' }]);
  for (const call of [
    "awa_edge.make_early_due('s', 'k', gen_random_uuid())",
    "awa_edge.raise_stale_delivery()",
  ]) {
    await worker.query(`SELECT ${call}`).catch((thrown) => expect(thrown).toMatchObject({ code: "AE002" }));
  }
});

test("no function lends it the rights of another role", async () => {
  const { rows } = await owner.query(
    `SELECT p.oid::regprocedure::text AS name FROM pg_proc p
     WHERE prosecdef AND has_function_privilege('awa_worker', p.oid, 'EXECUTE')`,
  );
  expect(rows).toEqual([]);
});

describe("the role may not", () => {
  test.each([
    "CREATE TABLE public.mine (id int)",
    "CREATE TABLE awa_edge.mine (id int)",
    "CREATE TEMPORARY TABLE jobs (id int)",
    "CREATE SCHEMA mine",
    "CREATE DATABASE mine",
    "CREATE EXTENSION file_fdw SCHEMA public",
    "CREATE ROLE mine",
    "CREATE FUNCTION awa_edge.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE INDEX ON awa_edge.jobs (kind)",
    "CREATE TRIGGER mine BEFORE INSERT ON awa_edge.jobs EXECUTE FUNCTION suppress_redundant_updates_trigger()",
    "CREATE RULE mine AS ON INSERT TO awa_edge.jobs DO INSTEAD NOTHING",
    "CREATE OR REPLACE FUNCTION awa_edge.raise_stale_delivery() RETURNS jsonb LANGUAGE sql AS 'SELECT NULL::jsonb'",
    "ALTER TABLE awa_edge.jobs ADD COLUMN mine int",
    "ALTER TABLE awa_edge.jobs DISABLE TRIGGER ALL",
    "ALTER TABLE awa_edge.jobs DROP CONSTRAINT job_state_is_known",
    "ALTER TABLE awa_edge.jobs OWNER TO awa_worker",
    "ALTER ROLE awa_worker SUPERUSER",
    "ALTER ROLE postgres PASSWORD 'mine'",
    "ALTER SYSTEM SET log_statement = 'all'",
    "SET ROLE postgres",
    "SET session_replication_role = replica",
    "DROP TABLE awa_edge.jobs",
    "DROP INDEX awa_edge.jobs_unique_key",
    "DROP FUNCTION awa_edge.raise_stale_delivery()",
    "DROP SCHEMA awa_edge CASCADE",
    "TRUNCATE awa_edge.jobs CASCADE",
    "DELETE FROM awa_edge.callbacks",
    "DELETE FROM awa_edge.queues",
    "DELETE FROM awa_edge.schedules",
    "INSERT INTO awa_edge.migrations (name, run_on) VALUES ('9999_mine', now())",
    "UPDATE awa_edge.migrations SET name = '9999_mine'",
    "DELETE FROM awa_edge.migrations",
    "SELECT setval('awa_edge.jobs_id_seq', 1)",
    "SELECT nextval('awa_edge.deliveries_id_seq')",
    "SELECT rolpassword FROM pg_catalog.pg_authid",
    "SELECT * FROM app.orders",
    "INSERT INTO app.orders VALUES (2)",
    "SELECT pg_read_file('/etc/passwd')",
    "COPY awa_edge.jobs TO PROGRAM 'cat'",
    "COPY awa_edge.jobs TO '/tmp/awa-edge-jobs'",
  ])("%s", async (text) => {
    await expect(worker.query(text)).rejects.toMatchObject({ code: "42501" });
  });
});
