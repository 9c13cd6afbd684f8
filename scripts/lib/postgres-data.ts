import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { chownSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import type { Place } from "./postgres-binaries.ts";
import { errorCode, exitOf, tail } from "./processes.ts";

/** Postgres's superuser in the data folders that we make. */
export const SUPERUSER = "postgres";
/** Kept inside the data folder: it lives and dies with the data. */
const PASSWORD_FILE = "awa-edge-password";

/** Creates the data folder beside its place and moves it there when it is whole: an interrupted one is never used. */
export async function initialise({ binaries, account, dataDir }: Place): Promise<void> {
  const partial = `${dataDir}.partial`;
  const passwordFile = `${dataDir}.password`;
  const password = randomBytes(16).toString("hex");
  rmSync(partial, { recursive: true, force: true });
  rmSync(passwordFile, { force: true });
  mkdirSync(partial, { mode: 0o700 });
  writeFileSync(passwordFile, password, { mode: 0o600, flag: "wx" });
  if (account.uid !== undefined && account.gid !== undefined) {
    chownSync(partial, account.uid, account.gid);
    chownSync(passwordFile, account.uid, account.gid);
  }
  try {
    const child = spawn(
      binaries.initdb,
      [
        `--pgdata=${partial}`,
        `--username=${SUPERUSER}`,
        `--pwfile=${passwordFile}`,
        "--auth=scram-sha-256",
        "--encoding=UTF8",
        "--locale=C",
      ],
      { ...account, ...surroundings(), stdio: ["ignore", "pipe", "pipe"] },
    );
    let output = "";
    for (const stream of [child.stdout, child.stderr]) {
      stream.on("data", (chunk) => {
        output += chunk;
      });
    }
    const code = await exitOf(child);
    if (code !== 0) throw new Error(`Postgres couldn't create its data in ${dataDir}:\n${tail(output)}`);
    writeFileSync(path.join(partial, PASSWORD_FILE), password, { mode: 0o600 });
    renameSync(partial, dataDir);
  } finally {
    rmSync(passwordFile, { force: true });
    rmSync(partial, { recursive: true, force: true });
  }
}

/** The superuser's password. @throws Error where the folder isn't ours to use */
export function readPassword(dataDir: string): string {
  try {
    return readFileSync(path.join(dataDir, PASSWORD_FILE), "utf8");
  } catch (thrown) {
    const hint =
      errorCode(thrown) === "EACCES" ? "it belongs to another user" : "it is not a data folder of awa-edge";
    throw new Error(`Can't use the data in ${dataDir}: ${hint}. Delete it to start afresh.`, {
      cause: thrown,
    });
  }
}

/** What every Postgres program gets: a folder that anybody may enter, English messages, and no PG* settings of the user's. */
export function surroundings(): { cwd: string; env: NodeJS.ProcessEnv; windowsHide: true } {
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("PG")));
  return { cwd: path.parse(process.cwd()).root, env: { ...env, LC_ALL: "C" }, windowsHide: true };
}
