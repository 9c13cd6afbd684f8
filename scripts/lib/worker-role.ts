import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import path from "node:path";
import pg from "pg";

/** The role of the Worker, of workers and of applications. */
export const WORKER_ROLE = "awa_worker";
/** What that role may do. */
export const WORKER_ROLE_FILE = path.resolve(import.meta.dirname, "../../sql/worker-role.sql");

/**
 * Makes the role on a server of our own, with a new password.
 *
 * @param ownerUrl a superuser's connection string
 * @returns the same with the role's login
 */
export async function renewWorkerRole(ownerUrl: string): Promise<string> {
  const password = randomBytes(16).toString("hex");
  const client = new pg.Client({ connectionString: ownerUrl });
  await client.connect();
  try {
    const { rowCount } = await client.query("SELECT FROM pg_roles WHERE rolname = $1", [WORKER_ROLE]);
    if (rowCount === 0) await client.query(`CREATE ROLE ${WORKER_ROLE}`);
    await client.query(`ALTER ROLE ${WORKER_ROLE} LOGIN PASSWORD '${password}'`);
    await client.query(`ALTER ROLE ${WORKER_ROLE} SET search_path = ''`);
  } finally {
    await client.end();
  }
  const url = new URL(ownerUrl);
  Object.assign(url, { username: WORKER_ROLE, password });
  return url.href;
}

/** Gives the role what this schema's build needs, where the role is there. Once more after every migration. */
export async function grantToWorkerRole(client: pg.Client): Promise<void> {
  const { rowCount } = await client.query("SELECT FROM pg_roles WHERE rolname = $1", [WORKER_ROLE]);
  if (rowCount !== 0) await client.query(readFileSync(WORKER_ROLE_FILE, "utf8"));
}
