import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import type pg from "pg";
import { errorCode } from "../../scripts/lib/processes.ts";
import { WORKER_ROLE } from "../../scripts/lib/worker-role.ts";

const OBJECT_IN_USE = "55006";
const DUPLICATE_OBJECT = "42710";
const UNIQUE_VIOLATION = "23505";
const CLONE_TIMEOUT_MS = 30_000;
const CLONE_RETRY_MS = 50;

/** Copies the template. Postgres copies it for one at a time, and refuses the others. */
export async function cloneTemplate(admin: pg.Client, template: string, name: string): Promise<void> {
  const deadline = Date.now() + CLONE_TIMEOUT_MS;
  for (;;) {
    try {
      // Copying the files is quicker than through the log where nothing is flushed.
      await admin.query(`CREATE DATABASE ${name} TEMPLATE ${template} STRATEGY file_copy`);
      return;
    } catch (thrown) {
      if (errorCode(thrown) !== OBJECT_IN_USE || Date.now() > deadline) throw thrown;
      await sleep(CLONE_RETRY_MS);
    }
  }
}

/** Drops a database with whoever is still connected to it. */
export async function dropDatabase(admin: pg.Client, name: string): Promise<void> {
  await admin.query(`DROP DATABASE IF EXISTS ${name} WITH (FORCE)`);
}

/** The connection string of another database on the same server. */
export function urlOf(serverUrl: string, database: string): string {
  const url = new URL(serverUrl);
  url.pathname = `/${database}`;
  return url.href;
}

/** A login that has the rights of the Worker's role, and no others. */
export interface WorkerLogin {
  /** The server's connection string with it. */
  readonly url: string;
  /** To be called when the databases are gone. */
  drop(admin: pg.Client): Promise<void>;
}

/** A login of this run's own, as a server may serve several runs: the role itself is made where it isn't there. */
export async function makeWorkerLogin(
  admin: pg.Client,
  serverUrl: string,
  name: string,
): Promise<WorkerLogin> {
  const password = randomBytes(16).toString("hex");
  const made = await admin.query(`CREATE ROLE ${WORKER_ROLE}`).then(
    () => true,
    (thrown: unknown) => {
      if (errorCode(thrown) === DUPLICATE_OBJECT || errorCode(thrown) === UNIQUE_VIOLATION) return false;
      throw thrown;
    },
  );
  await admin.query(`DROP ROLE IF EXISTS ${name}`);
  await admin.query(`CREATE ROLE ${name} LOGIN PASSWORD '${password}' IN ROLE ${WORKER_ROLE}`);
  // As the README has it for the role: what names no schema isn't found.
  await admin.query(`ALTER ROLE ${name} SET search_path = ''`);
  const url = new URL(serverUrl);
  Object.assign(url, { username: name, password });
  return {
    url: url.href,
    async drop(client) {
      await client.query(`DROP ROLE IF EXISTS ${name}`);
      // Another run may need it still, and then Postgres keeps it.
      if (made) await client.query(`DROP ROLE ${WORKER_ROLE}`).catch(() => undefined);
    },
  };
}
