import { runTick, TASKS } from "../../src/cron/scheduled.ts";
import type { Task } from "../../src/cron/task.ts";
import type { Database } from "../../src/shared/db/port.ts";
import { DEFAULT_RETENTION, type Retention } from "../../src/shared/db/statements/delete-ended.ts";
import type { Log, LogEntry } from "../../src/shared/log.ts";
import type { RegistryView } from "../../src/shared/registry/define.ts";

/** Runs one tick and waits for its hooks. */
export async function tick(
  database: Database,
  registry: RegistryView,
  {
    runsJobs = true,
    tasks = TASKS.filter((task) => runsJobs || task.name !== "run_due_jobs"),
    retention = DEFAULT_RETENTION,
    log = () => undefined,
  }: { tasks?: readonly Task[]; retention?: Retention; runsJobs?: boolean; log?: Log } = {},
) {
  const lines: LogEntry[] = [];
  const deferred: Promise<void>[] = [];
  const results = await runTick(
    {
      database: () => database,
      registry,
      retention,
      log: (line) => {
        lines.push(line);
        log(line);
      },
      clock: () => performance.now(),
      defer: (work) => deferred.push(work),
      env: {},
      callbacks: null,
    },
    tasks,
  );
  await Promise.all(deferred);
  const counts = (task: string) => lines.find((line) => line.task === task)?.counts;
  return { results, lines, counts };
}
