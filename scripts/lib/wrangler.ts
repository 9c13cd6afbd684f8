import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import getPort from "get-port";
import { readDevVars } from "./dev-vars.ts";
import type { Scope } from "./lifecycle.ts";
import { DATA_DIR, REPOSITORY } from "./local-stack.ts";
import { claim } from "./owner.ts";
import { exitOf, isStill, waitForExit } from "./processes.ts";

const HOST = "127.0.0.1";
const PORT = 8787;
const START_TIMEOUT_MS = 90_000;
const STOP_TIMEOUT_MS = 5_000;
const POLL_MS = 200;

/** No question, no telemetry, no look at the network for updates or the like. */
export const QUIET_WRANGLER = {
  CLOUDFLARE_CF_FETCH_ENABLED: "false",
  WRANGLER_HIDE_BANNER: "true",
  WRANGLER_SEND_METRICS: "false",
} as const;

/** The script to run with Node; `npx` would be one more process between us and it. */
export const WRANGLER = path.join(
  path.dirname(createRequire(import.meta.url).resolve("wrangler/package.json")),
  "bin/wrangler.js",
);

/** Which `wrangler dev` it is. */
export interface WranglerOptions {
  /** Tells one use from another that may go on beside it. Default: "wrangler". */
  readonly name?: string;
  /** Variables that count instead of those in .dev.vars. */
  readonly vars?: Readonly<Record<string, string>>;
  /** Whether it prints what the Worker logs. Default: true. */
  readonly prints?: boolean;
}

/**
 * Starts `wrangler dev` on the Worker of this repository and waits until it answers. Where it ends by itself, the scope
 * fails. One that an earlier run left behind, because it was killed, is stopped first.
 *
 * @returns where the Worker is, without a slash at the end
 */
export async function startWrangler(scope: Scope, options: WranglerOptions = {}): Promise<string> {
  const { name = "wrangler", vars = {}, prints = true } = options;
  const pidFile = path.join(DATA_DIR, `${name}.pid`);
  mkdirSync(DATA_DIR, { recursive: true });
  scope.defer(claim(path.join(DATA_DIR, `${name}.owner`), `The Worker of this repository (${name})`));
  await stopLeftover(pidFile);
  const port = await getPort({ host: HOST, port: PORT });
  const inspectorPort = await getPort({ host: HOST });
  const url = `http://${HOST}:${port}`;
  // Handlers give it away with their callbacks. A value of the developer's own, a tunnel's for example, counts.
  const isAddressed = readDevVars(path.join(REPOSITORY, ".dev.vars")).has("AWA_CALLBACK_BASE_URL");
  const allVars = isAddressed ? vars : { AWA_CALLBACK_BASE_URL: url, ...vars };
  const child = spawn(
    process.execPath,
    [
      WRANGLER,
      "dev",
      ...["--ip", HOST, "--port", String(port), "--inspector-port", String(inspectorPort)],
      "--show-interactive-dev-session=false",
      ...Object.entries(allVars).flatMap(([variable, value]) => ["--var", `${variable}:${value}`]),
    ],
    {
      cwd: REPOSITORY,
      env: { ...process.env, ...QUIET_WRANGLER },
      stdio: ["ignore", prints ? "inherit" : "ignore", "inherit"],
      // A process group of its own: it is several processes, and they are ended together, by us.
      detached: true,
    },
  );
  writeFileSync(pidFile, `${child.pid}\n`);
  scope.defer(async () => {
    await stopGroup(child.pid ?? 0);
    rmSync(pidFile, { force: true });
  });
  exitOf(child).then(
    (code) => scope.fail(`wrangler dev has ended (exit code ${code}): see above.`),
    (error) => scope.fail(`wrangler dev couldn't be started: ${error.message}`),
  );

  await untilHealthy(`${url}/healthz`, child, scope.signal);
  return url;
}

async function untilHealthy(url: string, child: ChildProcess, signal: AbortSignal): Promise<void> {
  const deadline = Date.now() + START_TIMEOUT_MS;
  for (;;) {
    const isHealthy = await fetch(url, { signal }).then(
      (response) => response.status === 200,
      () => false,
    );
    signal.throwIfAborted();
    if (isHealthy) return;
    if (Date.now() > deadline)
      throw new Error(`The Worker (process ${child.pid}) doesn't answer at ${url}: see above.`);
    await sleep(POLL_MS, undefined, { signal });
  }
}

async function stopLeftover(pidFile: string): Promise<void> {
  let pid: number;
  try {
    pid = Number.parseInt(readFileSync(pidFile, "utf8"), 10);
  } catch {
    return;
  }
  if (pid > 0 && isStill("wrangler", pid)) await stopGroup(pid);
}

/** Ends wrangler with all its processes. */
async function stopGroup(pid: number): Promise<void> {
  if (process.platform === "win32") {
    spawnSync("taskkill", ["/pid", String(pid), "/t", "/f"], { stdio: "ignore" });
    return;
  }
  // To the first of them alone: it ends the others in its order and removes its temporary files.
  signal(pid, "SIGTERM");
  await waitForExit(pid, STOP_TIMEOUT_MS);
  // Whoever of them is left.
  signal(-pid, "SIGKILL");
}

function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch {
    // Gone already.
  }
}
