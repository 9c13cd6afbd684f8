import type { ExecutorDeps } from "../../src/executor/deps.ts";
import { runJobs } from "../../src/executor/run-jobs.ts";
import type { Database } from "../../src/shared/db/port.ts";
import type { LogEntry } from "../../src/shared/log.ts";
import type { RegistryView } from "../../src/shared/registry/define.ts";

/** What an executor takes, with the lines that it logs and the hooks that it leaves running. */
export function executorDeps(
  database: Database,
  registry: RegistryView,
  overrides: Partial<ExecutorDeps> = {},
) {
  const lines: LogEntry[] = [];
  const deferred: Promise<void>[] = [];
  const deps: ExecutorDeps = {
    database,
    registry,
    log: (line) => lines.push(line),
    clock: () => performance.now(),
    env: {},
    callbacks: null,
    defer: (work) => deferred.push(work),
    ...overrides,
  };
  return { deps, lines, deferred };
}

/** Runs what is due in the queues of a registry until nothing is, and waits for the hooks. */
export async function run(database: Database, registry: RegistryView, overrides: Partial<ExecutorDeps> = {}) {
  const { deps, lines, deferred } = executorDeps(database, registry, overrides);
  const report = await runJobs(deps, { queues: registry.queues(), goesOn: () => true });
  await Promise.all(deferred);
  return { report, lines };
}
