import { execFile } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import pg from "pg";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, inject, test } from "vitest";
import { migrate } from "../../scripts/lib/migrate.ts";
import { dropDatabase, urlOf } from "../support/admin.ts";

const REPOSITORY = path.resolve(import.meta.dirname, "../..");
const DATABASE = `awa_migrate_${process.pid}`;
const databaseUrl = urlOf(inject("serverUrl"), DATABASE);
const admin = new pg.Client({ connectionString: inject("serverUrl") });
let folder: string;

beforeAll(() => admin.connect());
afterAll(() => admin.end());

beforeEach(async () => {
  folder = mkdtempSync(path.join(tmpdir(), "awa-edge-migrations-"));
  await admin.query(`CREATE DATABASE ${DATABASE}`);
});

afterEach(async () => {
  rmSync(folder, { recursive: true });
  await dropDatabase(admin, DATABASE);
});

function migration(name: string, sql: string): void {
  writeFileSync(path.join(folder, `${name}.sql`), sql);
}

async function query(text: string): Promise<unknown[]> {
  const client = new pg.Client({ connectionString: databaseUrl });
  await client.connect();
  try {
    return (await client.query({ text, rowMode: "array" })).rows.flat();
  } finally {
    await client.end();
  }
}

describe("migrate", () => {
  test("E14 an empty database gets every migration of the repository, in order, and a second time nothing", async () => {
    const files = readdirSync(path.join(REPOSITORY, "migrations")).sort();
    expect(await migrate({ databaseUrl })).toEqual({ applied: files.map((file) => path.parse(file).name) });
    expect(await migrate({ databaseUrl })).toEqual({ applied: [] });
    expect(await query("SELECT count(*)::int FROM awa_edge.migrations")).toEqual([files.length]);
  });

  test("two at once: both succeed, and each migration is applied by exactly one", async () => {
    migration("0001_slow", "SELECT pg_sleep(0.3); CREATE TABLE first (id int);");
    migration("0002_next", "CREATE TABLE second (id int);");
    const options = { databaseUrl, migrationsDir: folder };
    const results = await Promise.all([migrate(options), migrate(options), migrate(options)]);
    expect(results.flatMap(({ applied }) => applied)).toEqual(["0001_slow", "0002_next"]);
  });

  test("a migration that was added later is applied alone", async () => {
    migration("0001_one", "CREATE TABLE one (id int);");
    await migrate({ databaseUrl, migrationsDir: folder });
    migration("0002_two", "CREATE TABLE two (id int);");
    expect(await migrate({ databaseUrl, migrationsDir: folder })).toEqual({ applied: ["0002_two"] });
  });

  test("one that fails is rolled back whole and named; those before it stay, and it can be repeated", async () => {
    migration("0001_good", "CREATE TABLE good (id int);");
    migration("0002_bad", "CREATE TABLE half (id int); SELECT 1/0;");
    await expect(migrate({ databaseUrl, migrationsDir: folder })).rejects.toThrow(
      "Migration 0002_bad failed and was rolled back: division by zero",
    );
    expect(await query("SELECT to_regclass('good')::text, to_regclass('half')::text")).toEqual([
      "good",
      null,
    ]);
    migration("0002_bad", "CREATE TABLE half (id int);");
    expect(await migrate({ databaseUrl, migrationsDir: folder })).toEqual({ applied: ["0002_bad"] });
  });

  test("a database that is newer than the code is refused and left alone", async () => {
    migration("0001_one", "CREATE TABLE one (id int);");
    migration("0003_future", "CREATE TABLE future (id int);");
    await migrate({ databaseUrl, migrationsDir: folder });
    rmSync(path.join(folder, "0003_future.sql"));
    migration("0002_two", "CREATE TABLE two (id int);");
    await expect(migrate({ databaseUrl, migrationsDir: folder })).rejects.toThrow(
      "the database schema is newer than this code: it has 0003_future; deploy or check out the matching version",
    );
    expect(await query("SELECT to_regclass('two')::text")).toEqual([null]);
  });

  test("what the tool says goes to log and nowhere else", async () => {
    migration("0001_one", "CREATE TABLE one (id int);");
    const lines: string[] = [];
    await migrate({ databaseUrl, migrationsDir: folder, log: (line) => lines.push(line) });
    expect(lines.join("\n")).toContain("0001_one");
  });
});

describe("migrate, where it can't connect", () => {
  const password = "s3cret-Pa55word";
  const at = (change: (url: URL) => void) => {
    const url = new URL(databaseUrl);
    url.password = password;
    change(url);
    return url.href;
  };

  test.each([
    ["a wrong password", at(() => undefined), "the user or the password is wrong"],
    ["nobody listening", at((url) => Object.assign(url, { port: "1" })), "nothing listens"],
    ["an unknown host", at((url) => Object.assign(url, { host: "nowhere.invalid" })), "can't be resolved"],
    ["no URL", `host=x password=${password}`, "not a postgres:// URL"],
    ["a malformed password", at((url) => Object.assign(url, { password: "%ff" })), "isn't encoded right"],
    [
      "Neon's pooler",
      at((url) => Object.assign(url, { host: "ep-a-pooler.eu.neon.tech" })),
      "direct connection",
    ],
  ])("%s: says so, without the password", async (_, url, expected) => {
    const error = await migrate({ databaseUrl: url }).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(Error);
    expect(String(error)).toContain(expected);
    expect(String(error)).not.toContain(password);
    expect(String(error)).not.toContain(url);
  });

  test("no such database", async () => {
    const url = urlOf(inject("serverUrl"), "awa_no_such_database");
    await expect(migrate({ databaseUrl: url })).rejects.toThrow("there is no such database");
  });
});

describe("npm run migrate", () => {
  async function run(env: NodeJS.ProcessEnv) {
    const { DATABASE_URL: _, ...rest } = process.env;
    const script = path.join(REPOSITORY, "scripts/migrate.ts");
    return promisify(execFile)(process.execPath, [script], { env: { ...rest, ...env } }).then(
      ({ stdout, stderr }) => ({ code: 0, stdout, stderr }),
      ({ code, stdout, stderr }) => ({ code, stdout, stderr }),
    );
  }

  test("prints what it applied, then that nothing is to do", async () => {
    expect(await run({ DATABASE_URL: databaseUrl })).toMatchObject({
      code: 0,
      stdout: expect.stringContaining("Applied 0001_"),
      stderr: "",
    });
    expect(await run({ DATABASE_URL: databaseUrl })).toMatchObject({
      code: 0,
      stdout: "Nothing to do: the schema is up to date.\n",
    });
  });

  test("without DATABASE_URL: exit code 1, and what to set", async () => {
    expect(await run({})).toMatchObject({
      code: 1,
      stderr: expect.stringContaining("DATABASE_URL is not set"),
    });
  });

  test("a wrong password: exit code 1, and no stack", async () => {
    const url = new URL(databaseUrl);
    url.password = "wrong";
    const { code, stderr } = await run({ DATABASE_URL: url.href });
    expect(code).toBe(1);
    expect(stderr.trim().split("\n")).toHaveLength(1);
  });
});
