import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import getPort from "get-port";
import type { Scope } from "./lifecycle.ts";
import { REPOSITORY } from "./local-stack.ts";
import { exitOf, waitForExit } from "./processes.ts";
import { QUIET_WRANGLER, WRANGLER } from "./wrangler.ts";

const START_TIMEOUT_MS = 30_000;
const STOP_TIMEOUT_MS = 5_000;

/** A Worker in workerd, with nothing in front of it. */
export interface Workerd {
  readonly url: string;
  /** Where its scheduled trigger is fired, as on `wrangler dev`. */
  readonly triggerUrl: string;
  readonly pid: number;
}

/** How workerd is started. */
export interface WorkerdOptions {
  readonly vars: Readonly<Record<string, string>>;
  /** Of JavaScript, in MiB. A heap that may grow to gigabytes has its garbage collected late: it would look like a leak. */
  readonly maxHeapMib: number;
}

/**
 * Builds the Worker as a deploy would and runs it in workerd itself: `wrangler dev` has a proxy in front, which takes the brunt of bad
 * requests, and answers some of them.
 */
export async function startWorkerd(scope: Scope, { vars, maxHeapMib }: WorkerdOptions): Promise<Workerd> {
  const folder = mkdtempSync(path.join(tmpdir(), "awa-edge-workerd-"));
  scope.defer(() => rmSync(folder, { recursive: true, force: true }));
  execFileSync(process.execPath, [WRANGLER, "deploy", "--dry-run", "--outdir", folder], {
    cwd: REPOSITORY,
    env: { ...process.env, ...QUIET_WRANGLER },
    stdio: ["ignore", "ignore", "inherit"],
  });
  const bundle = readdirSync(folder).find((file) => file.endsWith(".js"));
  if (bundle === undefined) throw new Error("wrangler has built no Worker");
  const port = await getPort({ host: "127.0.0.1" });
  const triggerPort = await getPort({ host: "127.0.0.1" });
  const config = path.join(folder, "config.capnp");
  writeFileSync(config, configOf(bundle, { port, triggerPort, vars, maxHeapMib }), { mode: 0o600 });
  const workerd = createRequire(WRANGLER).resolve("workerd/bin/workerd");
  const child = spawn(workerd, ["serve", "--experimental", config], {
    stdio: ["ignore", "ignore", "inherit"],
  });
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
    if (isReady) return { url, triggerUrl: `http://127.0.0.1:${triggerPort}`, pid };
    if (Date.now() > deadline) throw new Error(`the Worker doesn't answer at ${url}`);
  }
}

/** What a process holds, in KiB. */
export function memoryKib(pid: number): number {
  return Number(execFileSync("ps", ["-o", "rss=", "-p", String(pid)], { encoding: "utf8" }));
}

/** Fires the Worker's scheduled trigger, which only another Worker can. */
const TRIGGER = `export default {
  async fetch(request, { MAIN }) {
    const { outcome } = await MAIN.scheduled({ cron: new URL(request.url).searchParams.get("cron") });
    return new Response(outcome, { status: outcome === "ok" ? 200 : 500 });
  },
};`;

function configOf(
  bundle: string,
  { port, triggerPort, vars, maxHeapMib }: WorkerdOptions & { port: number; triggerPort: number },
): string {
  const compatibility = /^compatibility_date = "([\d-]+)"/m.exec(
    readFileSync(path.join(REPOSITORY, "wrangler.toml"), "utf8"),
  );
  const date = `compatibilityDate = "${compatibility?.[1]}"`;
  const bindings = Object.entries(vars).map(
    ([name, value]) => `(name = ${JSON.stringify(name)}, text = ${JSON.stringify(value)})`,
  );
  return `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  v8Flags = ["--max-heap-size=${maxHeapMib}"],
  services = [
    (name = "main", worker = .main),
    (name = "trigger", worker = .trigger),
    (name = "internet", network = (allow = ["public", "private"])),
  ],
  sockets = [
    (name = "http", address = "127.0.0.1:${port}", http = (), service = "main"),
    (name = "trigger", address = "127.0.0.1:${triggerPort}", http = (), service = "trigger"),
  ],
);
const main :Workerd.Worker = (
  modules = [(name = "index.js", esModule = embed ${JSON.stringify(bundle)})],
  ${date},
  bindings = [${bindings.join(", ")}],
);
const trigger :Workerd.Worker = (
  modules = [(name = "trigger.js", esModule = ${JSON.stringify(TRIGGER)})],
  ${date},
  compatibilityFlags = ["service_binding_extra_handlers"],
  bindings = [(name = "MAIN", service = "main")],
);
`;
}
