import { existsSync, readFileSync, realpathSync, rmSync } from "node:fs";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { SUPERUSER } from "./postgres-data.ts";
import { isStill } from "./processes.ts";

export const HOST = "127.0.0.1";
const ANSWER_TIMEOUT_MS = 30_000;

/** A Postgres that runs: its first process, and where it listens. */
export interface Server {
  readonly pid: number;
  readonly port: number;
}

/** The server that an earlier run, killed before it could stop it, left running in the folder. */
export async function findRunning(dataDir: string, password: string): Promise<Server | null> {
  const pidFile = path.join(dataDir, "postmaster.pid");
  if (!existsSync(pidFile)) return null;
  // https://www.postgresql.org/docs/current/storage-file-layout.html: process, folder, start, port, …
  const lines = readFileSync(pidFile, "utf8").split("\n");
  const pid = Math.abs(Number(lines[0]));
  const port = Number(lines[3]);
  const deadline = Date.now() + ANSWER_TIMEOUT_MS;
  while (isStill("postgres", pid)) {
    if (port > 0 && (await servedFolder(port, password)) === realpathSync(dataDir)) return { pid, port };
    if (Date.now() > deadline) {
      throw new Error(
        `A Postgres (process ${pid}) holds ${dataDir} and doesn't answer: end it, then try again.`,
      );
    }
    await sleep(100);
  }
  // Left by a crash. Postgres would refuse to start where another process has that id now.
  rmSync(pidFile, { force: true });
  return null;
}

/** The data folder of whoever answers on a port to our password; `null` where nobody does. */
export async function servedFolder(port: number, password: string): Promise<string | null> {
  const client = new pg.Client({
    host: HOST,
    port,
    user: SUPERUSER,
    password,
    database: "postgres",
    ssl: false,
  });
  client.on("error", () => undefined);
  try {
    await client.connect();
    const { rows } = await client.query("SELECT current_setting('data_directory') AS folder");
    return realpathSync(String(rows[0]?.folder));
  } catch {
    return null;
  } finally {
    await client.end().catch(() => undefined);
  }
}
