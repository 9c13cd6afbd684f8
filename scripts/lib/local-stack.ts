import { mkdirSync } from "node:fs";
import path from "node:path";
import { updateDevVars } from "./dev-vars.ts";
import type { Scope } from "./lifecycle.ts";
import { migrate } from "./migrate.ts";
import { startNeonServer } from "./neon-server.ts";
import { claim } from "./owner.ts";
import { startPostgres } from "./postgres.ts";
import { renewWorkerRole } from "./worker-role.ts";

/** What the Worker needs beside it on a developer's machine. */
export interface LocalStack {
  /** The owner's connection string to be printed: of a database that isn't ours, the name of the variable, for use in a shell. */
  readonly printedDatabaseUrl: string;
  readonly neonEndpoint: string;
  /** The variables of .dev.vars, as the Worker gets them. */
  readonly devVars: ReadonlyMap<string, string>;
}

const POSTGRES_PORT = 54329;
const NEON_PORT = 54330;

export const REPOSITORY = path.resolve(import.meta.dirname, "../..");
/** Everything that local development keeps; ignored by git. */
export const DATA_DIR = path.join(REPOSITORY, ".data");

/**
 * Starts a migrated Postgres and a server in front of it that speaks Neon's protocol, and points .dev.vars at them, with the login of
 * the Worker's role. Where DATABASE_URL is set in the environment, that database is used as it says, and migrated, instead of a
 * Postgres of our own.
 *
 * @throws Error that says what to do; what was started by then is registered with the scope
 */
export async function startLocalStack(scope: Scope): Promise<LocalStack> {
  // One at a time: .dev.vars can point at one database only, and a running Worker follows it.
  mkdirSync(DATA_DIR, { recursive: true });
  scope.defer(claim(path.join(DATA_DIR, "dev-vars.owner"), ".dev.vars"));

  const given = process.env.DATABASE_URL;
  const databaseUrl = given || (await startOwnPostgres(scope));
  scope.signal.throwIfAborted();

  // Before the migrations, which end with its rights.
  const workerUrl = given ? databaseUrl : await renewWorkerRole(databaseUrl);
  const { applied } = await migrate({ databaseUrl });
  for (const name of applied) console.log(`Applied migration ${name}.`);
  scope.signal.throwIfAborted();

  const neon = await startNeonServer({ upstream: databaseUrl, port: NEON_PORT });
  scope.defer(() => neon.close());
  const devVars = updateDevVars(
    path.join(REPOSITORY, ".dev.vars"),
    { databaseUrl: workerUrl, neonEndpoint: neon.endpoint },
    await sourceSecrets(),
  );
  return {
    printedDatabaseUrl: given ? "$DATABASE_URL" : databaseUrl,
    neonEndpoint: neon.endpoint,
    devVars,
  };
}

/** Secrets for the registry's sources. A registry that can't be loaded is no reason to stop: the Worker will say what is wrong with it. */
async function sourceSecrets(): Promise<ReadonlyMap<string, string>> {
  try {
    const [{ registry }, { randomSecrets }] = await Promise.all([
      import("../../src/registry.ts"),
      import("./source-secrets.ts"),
    ]);
    return randomSecrets(registry.sources());
  } catch {
    return new Map();
  }
}

async function startOwnPostgres(scope: Scope): Promise<string> {
  const postgres = await startPostgres({
    dataDir: path.join(DATA_DIR, "postgres"),
    port: POSTGRES_PORT,
    log: console.log,
  });
  scope.defer(() => postgres.stop());
  return postgres.url();
}
