import { readdirSync } from "node:fs";
import path from "node:path";
import { PG_MIGRATE_LOCK_ID, runner } from "node-pg-migrate";
import pg from "pg";
import { redact, withExplicitSslMode } from "./connection-string.ts";
import { errorCode, errorMessage } from "./processes.ts";
import { grantToWorkerRole, WORKER_ROLE } from "./worker-role.ts";

/** How a database is migrated. */
export interface MigrateOptions {
  /** A direct connection, not one through a pooler. */
  readonly databaseUrl: string;
  /** The folder with NNNN_name.sql. Default: migrations/ of this repository. */
  readonly migrationsDir?: string;
  /** Told what the migration tool says. Default: nobody. */
  readonly log?: (line: string) => void;
}

const SCHEMA = "awa_edge";
const TABLE = "migrations";
const MIGRATIONS_DIR = path.resolve(import.meta.dirname, "../../migrations");
const CONNECT_TIMEOUT_MS = 15_000;

/**
 * Brings a database to the schema of this code: applies the migrations it doesn't have, each in a transaction of its own.
 * Safe to repeat; where two do it at once, one waits for the other. Never goes backwards. Gives the Worker's role, where it is there,
 * its rights on what there is then.
 *
 * @returns the names applied, in order; empty where nothing was to do
 * @throws Error that says what is wrong and what to do, without quoting the connection string
 */
export async function migrate(options: MigrateOptions): Promise<{ applied: string[] }> {
  const { databaseUrl, migrationsDir = MIGRATIONS_DIR, log = () => undefined } = options;
  const client = await connect(databaseUrl);
  let current = "";
  try {
    // Under the tool's own lock, but waiting for it: so that what is looked at here can't change before the tool runs.
    await client.query("SELECT pg_advisory_lock($1)", [PG_MIGRATE_LOCK_ID]);
    await mustNotBeNewer(client, migrationsDir);
    const applied = await runner({
      dbClient: client,
      dir: migrationsDir,
      direction: "up",
      migrationsTable: TABLE,
      migrationsSchema: SCHEMA,
      createMigrationsSchema: true,
      singleTransaction: false,
      noLock: true,
      log(line) {
        current = /### MIGRATION (\S+) /.exec(line)?.[1] ?? current;
        log(line);
      },
    });
    current = "";
    if (migrationsDir === MIGRATIONS_DIR) await grant(client);
    return { applied: applied.map(({ name }) => name) };
  } catch (thrown) {
    if (current === "") throw thrown;
    throw new Error(`Migration ${current} failed and was rolled back: ${errorMessage(thrown)}`, {
      cause: thrown,
    });
  } finally {
    // Closing the session releases the lock.
    await client.end().catch(() => undefined);
  }
}

async function grant(client: pg.Client): Promise<void> {
  try {
    await grantToWorkerRole(client);
  } catch (thrown) {
    throw new Error(
      `The schema is up to date, but ${WORKER_ROLE} couldn't be given its rights: ${errorMessage(thrown)}. Run sql/worker-role.sql as the owner of the tables.`,
      { cause: thrown },
    );
  }
}

async function connect(databaseUrl: string): Promise<pg.Client> {
  const url = URL.parse(databaseUrl);
  if (url === null || !/^postgres(ql)?:$/.test(url.protocol)) {
    throw new Error(
      "DATABASE_URL is not a postgres:// URL: set it to postgres://user:password@host/database.",
    );
  }
  if (url.hostname.includes("-pooler.")) {
    throw new Error(
      "DATABASE_URL goes through Neon's pooler, where a lock can't be held: " +
        'use the direct connection to migrate (the same host name without "-pooler").',
    );
  }
  let client: pg.Client | undefined;
  try {
    client = new pg.Client({
      connectionString: withExplicitSslMode(databaseUrl),
      connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
      application_name: "awa-edge migrate",
    });
    // What is lost while a query runs is that query's error; the rest can only happen after the last one.
    client.on("error", () => undefined);
    await client.connect();
    return client;
  } catch (thrown) {
    await client?.end().catch(() => undefined);
    throw new Error(`Can't connect to the database of DATABASE_URL: ${whyUnconnected(thrown, url)}`);
  }
}

/** Says why without passing on a driver's message that could quote the connection string. */
function whyUnconnected(thrown: unknown, url: URL): string {
  const code = errorCode(thrown);
  switch (code) {
    case "28P01":
    case "28000":
      return "the user or the password is wrong (SQLSTATE 28P01).";
    case "3D000":
      return "there is no such database on that server (SQLSTATE 3D000).";
    case "ENOTFOUND":
    case "EAI_AGAIN":
      return `its host name can't be resolved (${code}).`;
    case "ECONNREFUSED":
      return `nothing listens at its host and port (${code}).`;
  }
  if (thrown instanceof URIError) return "its user or password isn't encoded right (write % as %25).";
  const message = redact(errorMessage(thrown), url);
  return code === undefined ? `${message}.` : `${message} (${code}).`;
}

async function mustNotBeNewer(client: pg.Client, migrationsDir: string): Promise<void> {
  const { rows: found } = await client.query("SELECT to_regclass($1) IS NOT NULL AS yes", [
    `${SCHEMA}.${TABLE}`,
  ]);
  if (found[0]?.yes !== true) return;
  const { rows } = await client.query(`SELECT name FROM ${SCHEMA}.${TABLE} ORDER BY run_on, id`);
  const ours = new Set(readdirSync(migrationsDir).map((file) => path.parse(file).name));
  const unknown = rows.map(({ name }) => String(name)).filter((name) => !ours.has(name));
  if (unknown.length > 0) {
    throw new Error(
      `the database schema is newer than this code: it has ${unknown.join(", ")}; deploy or check out the matching version`,
    );
  }
}
