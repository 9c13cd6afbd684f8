import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import getPort from "get-port";
import type { Scope } from "../lib/lifecycle.ts";
import { REPOSITORY } from "../lib/local-stack.ts";
import { exitOf, waitForExit } from "../lib/processes.ts";
import { QUIET_WRANGLER, WRANGLER } from "../lib/wrangler.ts";

const START_TIMEOUT_MS = 30_000;
const STOP_TIMEOUT_MS = 5_000;

/** A Worker in workerd, with nothing in front of it. */
export interface Workerd {
  readonly url: string;
  readonly pid: number;
}

/**
 * Builds the Worker as a deploy would and runs it in workerd itself: `wrangler dev` has a proxy in front, which takes the brunt of bad
 * requests, and answers some of them.
 */
export async function startWorkerd(scope: Scope, vars: Readonly<Record<string, string>>): Promise<Workerd> {
  const folder = mkdtempSync(path.join(tmpdir(), "awa-edge-hostile-"));
  scope.defer(() => rmSync(folder, { recursive: true, force: true }));
  execFileSync(process.execPath, [WRANGLER, "deploy", "--dry-run", "--outdir", folder], {
    cwd: REPOSITORY,
    env: { ...process.env, ...QUIET_WRANGLER },
    stdio: ["ignore", "ignore", "inherit"],
  });
  const bundle = readdirSync(folder).find((file) => file.endsWith(".js"));
  if (bundle === undefined) throw new Error("wrangler has built no Worker");
  const port = await getPort({ host: "127.0.0.1" });
  const config = path.join(folder, "config.capnp");
  writeFileSync(config, configOf(bundle, port, vars), { mode: 0o600 });
  const workerd = createRequire(WRANGLER).resolve("workerd/bin/workerd");
  const child = spawn(workerd, ["serve", config], { stdio: ["ignore", "ignore", "inherit"] });
  const pid = child.pid ?? 0;
  scope.defer(async () => {
    child.kill();
    if (!(await waitForExit(pid, STOP_TIMEOUT_MS, () => child.exitCode !== null))) child.kill("SIGKILL");
  });
  exitOf(child).then(
    (code) => scope.fail(`workerd has ended (exit code ${code}): see above.`),
    (error) => scope.fail(`workerd couldn't be started: ${error.message}`),
  );
  const url = `http://127.0.0.1:${port}`;
  for (
    const deadline = Date.now() + START_TIMEOUT_MS;
    ;
    await sleep(100, undefined, { signal: scope.signal })
  ) {
    const isReady = await fetch(`${url}/readyz`).then(
      (response) => response.status === 200,
      () => false,
    );
    if (isReady) return { url, pid };
    if (Date.now() > deadline) throw new Error(`the Worker doesn't answer at ${url}`);
  }
}

/** What a process holds, in KiB. */
export function memoryKib(pid: number): number {
  return Number(execFileSync("ps", ["-o", "rss=", "-p", String(pid)], { encoding: "utf8" }));
}

function configOf(bundle: string, port: number, vars: Readonly<Record<string, string>>): string {
  const compatibility = /^compatibility_date = "([\d-]+)"/m.exec(
    readFileSync(path.join(REPOSITORY, "wrangler.toml"), "utf8"),
  );
  const bindings = Object.entries(vars).map(
    ([name, value]) => `(name = ${JSON.stringify(name)}, text = ${JSON.stringify(value)})`,
  );
  return `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  # A heap that may grow to gigabytes has its garbage collected late: it would look like a leak.
  v8Flags = ["--max-heap-size=32"],
  services = [
    (name = "main", worker = .main),
    (name = "internet", network = (allow = ["public", "private"])),
  ],
  sockets = [(name = "http", address = "127.0.0.1:${port}", http = (), service = "main")],
);
const main :Workerd.Worker = (
  modules = [(name = "index.js", esModule = embed ${JSON.stringify(bundle)})],
  compatibilityDate = "${compatibility?.[1]}",
  bindings = [${bindings.join(", ")}],
);
`;
}
