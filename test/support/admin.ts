import { setTimeout as sleep } from "node:timers/promises";
import type pg from "pg";
import { errorCode } from "../../scripts/lib/processes.ts";

const OBJECT_IN_USE = "55006";
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
