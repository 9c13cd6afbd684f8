import pg from "pg";
import type { TestProject } from "vitest/node";
import { migrate } from "../../scripts/lib/migrate.ts";
import { startNeonServer } from "../../scripts/lib/neon-server.ts";
import { startTemporaryPostgres } from "../../scripts/lib/temporary-postgres.ts";
import { cloneTemplate, dropDatabase, makeWorkerLogin, urlOf, type WorkerLogin } from "./admin.ts";

/** What the tests get with `inject`. */
export interface TestServers {
  /** A superuser's connection string of the server; the database in it is "postgres". */
  readonly serverUrl: string;
  /** The same, with a login that has the rights of the Worker's role and no others. */
  readonly workerServerUrl: string;
  /** The migrated database that tests are given copies of. */
  readonly templateDatabase: string;
  /** Neon's HTTP protocol in front of the server; its counters and faults are at /control on the same port. */
  readonly neonEndpoint: string;
  /** The database of the `workers` project, as the Worker gets it. */
  readonly workersDatabaseUrl: string;
  /** The same as its owner. */
  readonly workersOwnerUrl: string;
}

declare module "vitest" {
  interface ProvidedContext extends TestServers {}
}

interface Shared {
  users: number;
  readonly running: Promise<{ servers: TestServers; stop(): Promise<void> }>;
}

// Two projects use this file, and each loads it for itself: what is started once for both has to be kept outside.
const SHARED = Symbol.for("awa-edge.test-servers");
const everything: typeof globalThis & { [SHARED]?: Shared } = globalThis;

/** Starts the servers for the first project that asks; stops them with the last. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const shared = everything[SHARED] ?? { users: 0, running: start() };
  everything[SHARED] = shared;
  shared.users++;
  const { servers, stop } = await shared.running;
  project.provide("serverUrl", servers.serverUrl);
  project.provide("workerServerUrl", servers.workerServerUrl);
  project.provide("templateDatabase", servers.templateDatabase);
  project.provide("neonEndpoint", servers.neonEndpoint);
  project.provide("workersDatabaseUrl", servers.workersDatabaseUrl);
  project.provide("workersOwnerUrl", servers.workersOwnerUrl);
  return async () => {
    if (--shared.users > 0) return;
    delete everything[SHARED];
    await stop();
  };
}

async function start() {
  const postgres = await findServer();
  try {
    // A server of the tester's own may serve other test runs at the same time.
    const suffix = process.pid;
    const templateDatabase = `awa_template_${suffix}`;
    const workersDatabase = `awa_workers_${suffix}`;
    const admin = new pg.Client({ connectionString: postgres.url });
    await admin.connect();
    let login: WorkerLogin;
    try {
      // First: the migrations end with the rights of the Worker's role.
      login = await makeWorkerLogin(admin, postgres.url, `awa_worker_${suffix}`);
      await dropDatabase(admin, templateDatabase);
      await admin.query(`CREATE DATABASE ${templateDatabase}`);
      await migrate({ databaseUrl: urlOf(postgres.url, templateDatabase) });
      await dropDatabase(admin, workersDatabase);
      await cloneTemplate(admin, templateDatabase, workersDatabase);
    } finally {
      await admin.end();
    }
    const neon = await startNeonServer({ upstream: postgres.url, control: true });
    const servers: TestServers = {
      serverUrl: postgres.url,
      workerServerUrl: login.url,
      templateDatabase,
      neonEndpoint: neon.endpoint,
      workersDatabaseUrl: urlOf(login.url, workersDatabase),
      workersOwnerUrl: urlOf(postgres.url, workersDatabase),
    };
    const stop = async () => {
      await neon.close();
      await postgres.stop([templateDatabase, workersDatabase], login);
    };
    return { servers, stop };
  } catch (thrown) {
    await postgres.stop([], null);
    throw thrown;
  }
}

interface Server {
  readonly url: string;
  /** @param databases what was made in it, and then the login */
  stop(databases: readonly string[], login: WorkerLogin | null): Promise<void>;
}

/** The server of TEST_DATABASE_URL, or one that is started for this run and leaves nothing behind. */
async function findServer(): Promise<Server> {
  const given = process.env.TEST_DATABASE_URL;
  if (given !== undefined && given !== "") {
    return {
      url: given,
      async stop(databases, login) {
        const admin = new pg.Client({ connectionString: given });
        await admin.connect();
        for (const database of databases) await dropDatabase(admin, database);
        await login?.drop(admin);
        await admin.end();
      },
    };
  }
  const postgres = await startTemporaryPostgres({ maxConnections: 200 });
  return { url: postgres.url(), stop: () => postgres.stop() };
}
