import { randomBytes } from "node:crypto";
import pg from "pg";
import { afterAll, beforeAll, inject } from "vitest";
import { pgDatabase } from "../../src/shared/db/pg.ts";
import { countRoundTrips, type Database } from "../../src/shared/db/port.ts";
import { cloneTemplate, dropDatabase, urlOf } from "./admin.ts";

/** A migrated, empty database of a test file's own. */
export interface TestDatabase {
  readonly name: string;
  /** The owner's, for what a test sets up and looks at. */
  readonly url: string;
  readonly pool: pg.Pool;
  /** The same database with the rights of the Worker's role, for the code under test. */
  readonly workerUrl: string;
  readonly workerPool: pg.Pool;
  /** Neon's HTTP protocol in front of it; the driver takes `workerUrl` as connection string. */
  readonly neonEndpoint: string;
  /**
   * Closes the pools and drops the database. With AWA_KEEP_TEST_DATABASES=1 it stays, to be looked at, and its URL is
   * printed; that is of use on a server of your own (TEST_DATABASE_URL).
   */
  drop(): Promise<void>;
}

/** Makes a copy of the migrated template. Call `drop` when done, in `afterAll`. */
export async function createTestDatabase(): Promise<TestDatabase> {
  const serverUrl = inject("serverUrl");
  const name = `awa_test_${randomBytes(6).toString("hex")}`;
  await asAdmin(serverUrl, (admin) => cloneTemplate(admin, inject("templateDatabase"), name));
  const url = urlOf(serverUrl, name);
  const workerUrl = urlOf(inject("workerServerUrl"), name);
  const [pool, workerPool] = [openPool(url), openPool(workerUrl)];
  return {
    name,
    url,
    pool,
    workerUrl,
    workerPool,
    neonEndpoint: inject("neonEndpoint"),
    async drop() {
      await Promise.all([pool.end(), workerPool.end()]);
      if (process.env.AWA_KEEP_TEST_DATABASES === "1") console.log(`kept: ${url}`);
      else await asAdmin(serverUrl, (admin) => dropDatabase(admin, name));
    },
  };
}

/**
 * A database for the whole test file: made before its first test, dropped after its last.
 *
 * @returns it, and our own port to it over `pg`, with the rights of the Worker's role
 */
export function useTestDatabase(): {
  readonly db: Pick<TestDatabase, "pool" | "workerPool">;
  readonly database: Database;
} {
  let made: TestDatabase | undefined;
  const there = () => {
    if (made === undefined) throw new Error("the database is there from beforeAll on");
    return made;
  };
  const db = {
    get pool() {
      return there().pool;
    },
    get workerPool() {
      return there().workerPool;
    },
  };
  beforeAll(async () => {
    made = await createTestDatabase();
  });
  afterAll(() => made?.drop());
  return { db, database: countRoundTrips(() => pgDatabase(db.workerPool)) };
}

/** A pool whose idle connections may be ended by Postgres. */
export function openPool(connectionString: string): pg.Pool {
  const pool = new pg.Pool({ connectionString, max: 20 });
  pool.on("error", () => undefined);
  return pool;
}

async function asAdmin(serverUrl: string, work: (admin: pg.Client) => Promise<void>): Promise<void> {
  const admin = new pg.Client({ connectionString: serverUrl });
  await admin.connect();
  try {
    await work(admin);
  } finally {
    await admin.end();
  }
}
