import { type ChildProcess, spawn } from "node:child_process";
import { createServer } from "node:net";
import path from "node:path";
import { createInterface } from "node:readline";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, inject, test } from "vitest";
import { exitOf } from "../../scripts/lib/processes.ts";
import { neonDatabase, pgDatabase } from "../../src/client.ts";
import { runJobs } from "../../src/executor/run-jobs.ts";
import { urlOf } from "../support/admin.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { emptyTables } from "../support/empty-tables.ts";
import { executorDeps } from "../support/executor.ts";
import { holdTransaction, untilBlocked } from "../support/races.ts";
import { GATE_TABLE, RUNS_TABLE, recordingRegistry } from "../support/recording-registry.ts";
import { TEST_CALLBACK_SECRET } from "../support/secrets.ts";
import { tick } from "../support/tick.ts";

// `npm run worker` as processes of their own.

let db: TestDatabase;
beforeAll(async () => {
  db = await createTestDatabase();
  await db.pool.query(`${RUNS_TABLE}; ${GATE_TABLE}; GRANT SELECT, INSERT ON runs, gate TO awa_worker`);
});
afterAll(() => db.drop());
beforeEach(async () => {
  await emptyTables(db.pool, "runs", "gate");
});

interface WorkerProcess {
  readonly child: ChildProcess;
  /** What it has logged, but for the line of each job. */
  readonly lines: Record<string, unknown>[];
  readonly errors: string[];
  readonly exited: Promise<number | null>;
  /** Resolves with the address of the health endpoint once it has started. */
  readonly started: Promise<string>;
}
const processes: WorkerProcess[] = [];
afterEach(async () => {
  for (const { child, exited } of processes.splice(0)) {
    child.kill("SIGKILL");
    await exited;
  }
});

function startWorker(
  env: Record<string, string> = {},
  how: "directly" | "through-a-shell" = "directly",
): WorkerProcess {
  const main = path.resolve(import.meta.dirname, "../support/worker-main.ts");
  // The colon keeps the shell from becoming what it runs.
  const command: [string, string[]] =
    how === "directly"
      ? [process.execPath, [main]]
      : ["/bin/sh", ["-c", '"$0" "$1"; :', process.execPath, main]];
  const child = spawn(...command, {
    env: {
      PATH: process.env.PATH,
      DATABASE_URL: db.workerUrl,
      AWA_CALLBACK_HMAC_SECRET: TEST_CALLBACK_SECRET,
      AWA_WORKER_PORT: "0",
      ...env,
    },
    stdio: ["ignore", "pipe", "pipe"],
  });
  const lines: Record<string, unknown>[] = [];
  const errors: string[] = [];
  const exited = exitOf(child);
  const started = new Promise<string>((resolve, reject) => {
    createInterface(child.stdout).on("line", (line) => {
      if (line.includes('"event":"attempt"')) return;
      lines.push(JSON.parse(line));
      if (line.includes('"worker_started"')) resolve(/http:[^"]+/.exec(line)?.[0] ?? "");
    });
    createInterface(child.stderr).on("line", (line) => errors.push(line));
    exited.then(() => reject(new Error(`the worker has ended: ${errors.join("\n")}`)), reject);
  });
  started.catch(() => undefined);
  const made = { child, lines, errors, exited, started };
  processes.push(made);
  return made;
}

const sleep = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));
const insert = (kind: string, count: number) =>
  db.pool.query(
    "INSERT INTO awa_edge.jobs (kind, args, priority) SELECT $1, '{}', 1 + n % 4 FROM generate_series(1, $2::int) n",
    [kind, count],
  );
const statesOf = async (kind: string) => {
  const { rows } = await db.pool.query<{ state: string; n: number }>(
    "SELECT state, count(*)::int AS n FROM awa_edge.jobs WHERE kind = $1 GROUP BY state",
    [kind],
  );
  return Object.fromEntries(rows.map(({ state, n }) => [state, n]));
};

const DRAINED = 20_000;
test(`two workers and a ticking one together drain ${DRAINED} jobs: each run is one attempt of one job, none is left`, async () => {
  await insert("quick", DRAINED);
  const workers = [startWorker(), startWorker()];
  await Promise.all(workers.map(({ started }) => started));
  // As the Worker's tick does it: over Neon's protocol, so many at a time.
  const registry = recordingRegistry(db.pool, "tick");
  const { deps } = executorDeps(
    neonDatabase({
      connectionString: db.workerUrl,
      fetchEndpoint: inject("neonEndpoint"),
      timeoutMs: 30_000,
    }),
    registry,
  );
  let ticked = 0;
  for (let exhausted = true; exhausted; ) {
    const report = await runJobs(deps, { queues: registry.queues(), maxJobs: 100, goesOn: () => true });
    exhausted = report.exhausted;
    ticked += report.finished;
    await sleep(1_000);
  }
  await expect
    .poll(() => statesOf("quick"), { timeout: 60_000, interval: 200 })
    .toEqual({ completed: DRAINED });
  const { rows } = await db.pool.query(
    `SELECT count(*)::int AS runs, count(DISTINCT job_id)::int AS jobs, count(DISTINCT who)::int AS who,
       count(*) FILTER (WHERE run_lease <> 1)::int AS repeated FROM runs`,
  );
  expect(rows).toEqual([{ runs: DRAINED, jobs: DRAINED, who: 3, repeated: 0 }]);
  const { rows: jobs } = await db.pool.query("SELECT DISTINCT attempt, run_lease FROM awa_edge.jobs");
  expect(jobs).toEqual([{ attempt: 1, run_lease: "1" }]);
  expect(ticked).toBeGreaterThan(0);
}, 120_000);

test("kill -9 in the middle of a batch: every job it held is rescued and finishes; follow-ups exist exactly once", async () => {
  await db.pool.query("INSERT INTO gate VALUES (true)");
  await insert("slow", 30);
  const first = startWorker({ AWA_WORKER_CONCURRENCY: "20" });
  await first.started;
  await expect.poll(() => statesOf("slow"), { timeout: 10_000 }).toEqual({ running: 20, available: 10 });
  // Some of them are finished by the first one, some are under way when it is killed.
  await db.pool.query("UPDATE awa_edge.jobs SET priority = 4 WHERE state = 'available'");
  await db.pool.query("DELETE FROM gate");
  await expect
    .poll(async () => (await statesOf("slow")).completed ?? 0, { timeout: 10_000, interval: 2 })
    .toBeGreaterThan(0);
  first.child.kill("SIGKILL");
  await first.exited;
  await insert("slow", 5);
  await db.pool.query(
    "UPDATE awa_edge.jobs SET heartbeat_at = now() - interval '1 hour' WHERE state = 'running'",
  );
  const { lines } = await tick(pgDatabase(db.workerPool), recordingRegistry(db.pool, "nobody"), {
    runsJobs: false,
  });
  const held = lines.filter((line) => line.event === "rescue").map((line) => line.jobId);
  expect(held.length).toBeGreaterThan(0);
  await db.pool.query("UPDATE awa_edge.jobs SET run_at = now() WHERE state = 'retryable'");
  await startWorker().started;
  await expect.poll(() => statesOf("slow"), { timeout: 20_000 }).toEqual({ completed: 35 });
  const { rows } = await db.pool.query(
    "SELECT count(*)::int AS n, count(DISTINCT trigger_job_id)::int AS jobs FROM awa_edge.jobs WHERE kind = 'after'",
  );
  expect(rows).toEqual([{ n: 35, jobs: 35 }]);
  const again = await db.pool.query("SELECT id FROM awa_edge.jobs WHERE kind = 'slow' AND run_lease > 1");
  expect(again.rows.map(({ id }) => id).sort()).toEqual(held.sort());
}, 60_000);

test("a rejection that a handler left behind is logged by its name, and the worker goes on", async () => {
  await insert("stray", 1);
  const worker = startWorker();
  await worker.started;
  await expect.poll(() => statesOf("stray"), { timeout: 10_000 }).toEqual({ completed: 1 });
  await expect
    .poll(() => worker.lines)
    .toContainEqual({ level: "error", event: "unhandled_rejection", reason: "TypeError" });
  expect(JSON.stringify(worker.lines)).not.toContain("hunter2");
  await insert("quick", 1);
  await expect.poll(() => statesOf("quick"), { timeout: 10_000 }).toEqual({ completed: 1 });
}, 30_000);

test("an exception that nobody could catch: its name is printed, and the worker drains and ends with 1", async () => {
  await insert("thrown", 1);
  const worker = startWorker();
  expect(await worker.exited).toBe(1);
  expect(worker.errors).toEqual(["The worker ends: nobody caught an exception (RangeError)."]);
  expect(await statesOf("thrown")).toEqual({ completed: 1 });
}, 30_000);

test("a database that answers and takes nothing: the worker isn't ready, and goes on trying", async () => {
  const url = new URL(db.workerUrl);
  url.searchParams.set("options", "-c default_transaction_read_only=on");
  const worker = startWorker({ DATABASE_URL: url.href });
  const health = await worker.started;
  await expect
    .poll(() => worker.lines.filter(({ event }) => event === "claim_failed").length, { timeout: 10_000 })
    .toBeGreaterThan(1);
  expect((await fetch(`${health}/healthz`)).status).toBe(200);
  const response = await fetch(`${health}/readyz`);
  expect(response.status).toBe(503);
  expect(await response.json()).toEqual({
    status: "the database has done nothing for the worker yet",
    running: 0,
  });
}, 30_000);

describe("SIGTERM", () => {
  const readinessAt = async (health: string) => {
    const response = await fetch(`${health}/readyz`);
    return [response.status, await response.json()];
  };

  test("drains, answers 503 meanwhile, and ends with 0; nothing is left running", async () => {
    await db.pool.query("INSERT INTO gate VALUES (true)");
    await insert("slow", 3);
    const worker = startWorker();
    const health = await worker.started;
    await expect.poll(() => statesOf("slow"), { timeout: 10_000 }).toEqual({ running: 3 });
    const ready = () => readinessAt(health);
    expect((await fetch(`${health}/healthz`)).status).toBe(200);
    expect(await ready()).toEqual([200, { status: "ready", running: 3 }]);
    expect((await fetch(`${health}/readyz`, { method: "POST" })).status).toBe(405);
    expect((await fetch(`${health}/jobs`)).status).toBe(404);
    worker.child.kill("SIGTERM");
    await expect.poll(ready).toEqual([503, { status: "draining", running: 3 }]);
    worker.child.kill("SIGTERM");
    await db.pool.query("DELETE FROM gate");
    expect(await worker.exited).toBe(0);
    expect(await statesOf("slow")).toEqual({ completed: 3 });
    expect(worker.errors).toEqual([]);
  }, 30_000);

  test("of npm alone, which runs it through a shell: it notices that it is left to itself, and drains", async () => {
    await insert("slow", 3);
    await db.pool.query("INSERT INTO gate VALUES (true)");
    const worker = startWorker({ npm_lifecycle_event: "worker" }, "through-a-shell");
    await worker.started;
    await expect.poll(() => statesOf("slow"), { timeout: 10_000 }).toEqual({ running: 3 });
    worker.child.kill("SIGKILL");
    await sleep(1_000);
    await db.pool.query("DELETE FROM gate");
    await worker.exited; // its output is closed: it is gone as well
    expect(await statesOf("slow")).toEqual({ completed: 3 });
    expect(worker.errors).toEqual([]);
  }, 30_000);

  test("without grace: handed back, with the attempts not spent, and ends with 0", async () => {
    await db.pool.query("INSERT INTO gate VALUES (true)");
    await insert("slow", 3);
    const worker = startWorker({ AWA_WORKER_GRACE_SECONDS: "0" });
    await worker.started;
    await expect.poll(() => statesOf("slow"), { timeout: 10_000 }).toEqual({ running: 3 });
    worker.child.kill("SIGTERM");
    expect(await worker.exited).toBe(0);
    const { rows } = await db.pool.query("SELECT DISTINCT state, attempt, run_lease FROM awa_edge.jobs");
    expect(rows).toEqual([{ state: "available", attempt: 0, run_lease: "1" }]);
  }, 30_000);

  test("without grace, while a claim is under way: what it brings is handed back as well", async () => {
    await insert("quick", 3);
    const held = await holdTransaction(db.pool);
    await held.query("LOCK TABLE awa_edge.jobs IN ACCESS EXCLUSIVE MODE");
    const worker = startWorker({ AWA_WORKER_GRACE_SECONDS: "0" });
    const health = await worker.started;
    await untilBlocked(db.pool);
    worker.child.kill("SIGTERM");
    await expect.poll(() => readinessAt(health)).toEqual([503, { status: "draining", running: 0 }]);
    await held.commit();
    expect(await worker.exited).toBe(0);
    const { rows } = await db.pool.query("SELECT DISTINCT state, attempt, run_lease FROM awa_edge.jobs");
    expect(rows).toEqual([{ state: "available", attempt: 0, run_lease: "1" }]);
  }, 30_000);
});

test.each<[string, Record<string, string>, RegExp]>([
  ["no database", { DATABASE_URL: "" }, /DATABASE_URL is not set/],
  ["no such URL", { DATABASE_URL: "postgres://hunter2" }, /DATABASE_URL is not a postgres:\/\/user/],
  [
    "nobody there",
    { DATABASE_URL: "postgres://x:hunter2@127.0.0.1:1/x" },
    /can't be used.*Is it up, and migrated/,
  ],
  [
    "no secret, and a wrong URL",
    { AWA_CALLBACK_HMAC_SECRET: "", AWA_CALLBACK_BASE_URL: "hunter2" },
    /AWA_CALLBACK_BASE_URL is not an http/,
  ],
  [
    "a pooler",
    { DATABASE_URL: "postgres://x:hunter2@ep-1-pooler.eu.neon.tech/x" },
    /use the direct connection/,
  ],
  [
    "a wrong secret",
    { AWA_CALLBACK_HMAC_SECRET: "hunter2" },
    /AWA_CALLBACK_HMAC_SECRET is not 64 hexadecimal/,
  ],
  ["a wrong number", { AWA_WORKER_CONCURRENCY: "hunter2" }, /AWA_WORKER_CONCURRENCY is not a whole number/],
  ["no schema", { DATABASE_URL: urlOf(inject("serverUrl"), "postgres") }, /can't be used.*and migrated/],
  ["no queue", { TEST_REGISTRY: "without_queues" }, /The registry runs no queue/],
  ["an address that can't be", { AWA_WORKER_HOST: "192.0.2.1" }, /AWA_WORKER_HOST and AWA_WORKER_PORT/],
])("%s: ends with 1 and says what to do", async (_, env, message) => {
  const worker = startWorker(env);
  expect(await worker.exited).toBe(1);
  expect(worker.errors.join("\n")).toMatch(message);
  expect(worker.errors.join("\n")).not.toContain("hunter2");
});

test("a port that is taken: ends with 1 and says what to do", async () => {
  const other = createServer();
  await new Promise<void>((resolve) => other.listen(0, "127.0.0.1", resolve));
  const address = other.address();
  const port = typeof address === "object" && address !== null ? address.port : expect.fail("no port");
  const worker = startWorker({ AWA_WORKER_PORT: String(port) });
  expect(await worker.exited).toBe(1);
  expect(worker.errors.join("\n")).toMatch(/AWA_WORKER_PORT to a free address/);
  await new Promise((resolve) => other.close(resolve));
});

test("a database that is newer than the build: ends with 1 and says what to do", async () => {
  await db.pool.query("INSERT INTO awa_edge.migrations (name, run_on) VALUES ('9999_newer', now())");
  try {
    const worker = startWorker();
    expect(await worker.exited).toBe(1);
    expect(worker.errors.join("\n")).toMatch(/9999_newer.*deploy the build that belongs to it/);
  } finally {
    await db.pool.query("DELETE FROM awa_edge.migrations WHERE name = '9999_newer'");
  }
});
