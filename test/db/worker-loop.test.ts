import pg from "pg";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { listen } from "../../scripts/lib/listen.ts";
import { createClient, pgDatabase } from "../../src/client.ts";
import { Heart } from "../../src/executor/heart.ts";
import { Latch } from "../../src/executor/latch.ts";
import { nudge } from "../../src/executor/nudge.ts";
import { runWorker } from "../../src/executor/worker.ts";
import { DatabaseError } from "../../src/shared/db/errors.ts";
import type { Database } from "../../src/shared/db/port.ts";
import type { JobRow } from "../../src/shared/job.ts";
import { complete, type Handler } from "../../src/shared/registry/handler.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { emptyTables } from "../support/empty-tables.ts";
import { executorDeps } from "../support/executor.ts";
import { interrupt } from "../support/races.ts";
import { testRegistry } from "../support/registry.ts";

// The loop of a long-lived worker: how it is woken, and how it ends.

let db: TestDatabase;
let database: Database;
beforeAll(async () => {
  db = await createTestDatabase();
  database = pgDatabase(db.workerPool);
});
afterAll(() => db.drop());
beforeEach(async () => {
  await emptyTables(db.pool);
});
const cleanUps: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const cleanUp of cleanUps.splice(0).reverse()) await cleanUp();
});

const client = () => createClient({ database, registry: testRegistry() });
const enqueue = async (options = {}) => (await client().enqueue("plain", { n: 1 }, options)).jobId;
const jobOf = async (id: string): Promise<JobRow> =>
  (await client().getJob(id)) ?? expect.fail("the job is gone");
const sleep = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));
const NEVER_MS = 1_000_000;

interface Started {
  readonly heart: Heart;
  readonly wakeUp: Latch;
  readonly lines: ReturnType<typeof executorDeps>["lines"];
  /** Stops it, and resolves when it has ended. */
  stop(): Promise<void>;
}

/** Starts a worker with one handler. By default it is woken by nobody and doesn't poll. */
function startWorker(
  handler: Handler<{ n: number }>,
  options: { pollMs?: number; graceMs?: number; beatMs?: number; listens?: boolean; on?: Database } = {},
): Started {
  const { pollMs = NEVER_MS, graceMs = 5_000, beatMs = NEVER_MS, listens = false, on = database } = options;
  const registry = testRegistry().handle("plain", handler).queue("default", { concurrency: 5 });
  const { deps, lines } = executorDeps(on, registry);
  const heart = new Heart(deps, beatMs);
  const wakeUp = new Latch();
  const ending = new AbortController();
  if (listens) {
    const stopListening = listen(
      { connectionString: db.workerUrl },
      {
        onWakeUp: () => wakeUp.set(),
        onEnded: (jobId, lease) => heart.abortIfOurs(jobId, lease),
        onReconnect: () => wakeUp.set(),
        onLost: () => undefined,
      },
    );
    cleanUps.push(stopListening);
  }
  const run = runWorker(deps, {
    queues: registry.queues(),
    heart,
    wakeUp,
    stop: ending.signal,
    graceMs,
    pollMs,
    listeningMs: 50,
  });
  const stop = () => {
    ending.abort();
    return run;
  };
  cleanUps.push(stop);
  return { heart, wakeUp, lines, stop };
}
const untilListening = () =>
  expect
    .poll(async () => {
      const { rowCount } = await db.pool.query(
        "SELECT FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'",
      );
      return rowCount;
    })
    .toBe(1);

describe("woken", () => {
  test("starts with what is due, and goes on with what its own jobs leave, without a wake-up", async () => {
    const registry = testRegistry();
    const ids = [await enqueue(), await enqueue()];
    let chained = 3;
    startWorker(async (ctx) => {
      if (chained-- > 0) ids.push((await ctx.enqueue(registry.enqueue("plain", { n: 2 }))).jobId);
    });
    await expect
      .poll(async () => (await Promise.all(ids.map(jobOf))).map(({ state }) => state))
      .toEqual(Array(5).fill("completed"));
  });

  test("by a notification, at once, while polling would take for ever", async () => {
    startWorker(() => complete(), { listens: true });
    await untilListening();
    const id = await enqueue();
    await expect.poll(() => jobOf(id)).toMatchObject({ state: "completed" });
  });

  test("while a claim is under way that comes too early for the job: it is looked for again", async () => {
    let late: string | undefined;
    const worker = startWorker(() => complete(), {
      on: {
        async query(statement) {
          const result = await database.query(statement);
          if (late === undefined && statement.text.includes("SKIP LOCKED")) {
            late = await enqueue();
            worker.wakeUp.set();
          }
          return result;
        },
        batch: (statements) => database.batch(statements),
      },
    });
    await expect.poll(() => jobOf(late ?? "")).toMatchObject({ state: "completed" });
  });

  test("by polling alone", async () => {
    startWorker(() => complete(), { pollMs: 20 });
    await sleep(30);
    const id = await enqueue();
    await expect.poll(() => jobOf(id)).toMatchObject({ state: "completed" });
  });

  test("the connection that listens is cut: it is made again, and what was missed is found", async () => {
    startWorker(() => complete(), { listens: true });
    await untilListening();
    await db.pool.query(
      "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'",
    );
    const missed = await enqueue();
    await expect.poll(() => jobOf(missed), { timeout: 5_000 }).toMatchObject({ state: "completed" });
    await untilListening();
    const heard = await enqueue();
    await expect.poll(() => jobOf(heard)).toMatchObject({ state: "completed" });
  });

  test("a cancel reaches the handler of a running job at once", async () => {
    const reasons: unknown[] = [];
    startWorker(
      (ctx) =>
        new Promise<undefined>((resolve) => {
          ctx.signal.addEventListener("abort", () => {
            reasons.push(ctx.signal.reason);
            resolve(undefined);
          });
        }),
      { listens: true },
    );
    await untilListening();
    const id = await enqueue();
    await expect.poll(() => jobOf(id)).toMatchObject({ state: "running" });
    await client().cancel(id);
    await expect.poll(() => reasons).toMatchObject([{ abortCause: "lease_lost" }]);
  });

  test.each<[string, Error, object]>([
    ["for the database", new DatabaseError("unavailable", "57P01"), { sqlState: "57P01" }],
    ["for a fault of ours", new RangeError("hunter2"), { reason: "unexpected RangeError" }],
  ])("a claim that fails %s is made again, and doesn't end the worker", async (_, fault, logged) => {
    let failures = 1;
    const { lines } = startWorker(() => complete(), {
      on: {
        query: (statement) =>
          statement.text.includes("SKIP LOCKED") && failures-- > 0
            ? Promise.reject(fault)
            : database.query(statement),
        batch: (statements) => database.batch(statements),
      },
    });
    const id = await enqueue();
    await expect.poll(() => jobOf(id), { timeout: 5_000 }).toMatchObject({ state: "completed" });
    expect(lines).toContainEqual(expect.objectContaining({ event: "claim_failed", ...logged }));
    expect(JSON.stringify(lines)).not.toContain("hunter2");
  });
});

describe("stopped", () => {
  test("B3 waits for a handler of 500 ms, and claims nothing more", async () => {
    const id = await enqueue();
    const { stop } = startWorker(() => sleep(500), { pollMs: 10 });
    await expect.poll(() => jobOf(id)).toMatchObject({ state: "running" });
    const stopping = stop();
    const late = await enqueue();
    await stopping;
    expect(await jobOf(id)).toMatchObject({ state: "completed", attempt: 1 });
    expect(await jobOf(late)).toMatchObject({ state: "available" });
  });

  test.each([
    ["within the grace", 5_000],
    ["when the grace is over", 0],
  ])(
    "told to stop while a claim is under way, and %s what it brings is handed back, not begun",
    async (_, graceMs) => {
      const id = await enqueue();
      let ran = false;
      let stopping: Promise<void> | undefined;
      const worker = startWorker(
        () => {
          ran = true;
        },
        {
          graceMs,
          on: interrupt(
            database,
            (text) => text.includes("SKIP LOCKED"),
            async () => {
              await enqueue(); // by then the worker has been returned to us
              stopping = worker.stop();
              await sleep(50); // longer than no grace
            },
          ),
        },
      );
      // Polled as a flag: a promise would be waited for.
      await expect.poll(() => stopping !== undefined).toBe(true);
      await stopping;
      expect(ran).toBe(false);
      expect(await jobOf(id)).toMatchObject({ state: "available", attempt: 0, runLease: "1" });
    },
  );

  test("idle: ends at once, whatever the grace", async () => {
    const id = await enqueue();
    const { stop } = startWorker(() => complete(), { graceMs: NEVER_MS });
    await expect.poll(() => jobOf(id)).toMatchObject({ state: "completed" });
    await sleep(20);
    await stop();
  });

  test("B4 heartbeats go on during the drain", async () => {
    const id = await enqueue();
    let release: () => void = () => undefined;
    const { stop } = startWorker(
      () =>
        new Promise<void>((resolve) => {
          release = resolve;
        }),
      { beatMs: 20 },
    );
    await expect.poll(() => jobOf(id)).toMatchObject({ state: "running" });
    const stopping = stop();
    await db.pool.query("UPDATE awa_edge.jobs SET heartbeat_at = now() - interval '1 hour'");
    await expect
      .poll(async () => {
        const { rows } = await db.pool.query(
          "SELECT heartbeat_at > now() - interval '1 minute' AS fresh FROM awa_edge.jobs",
        );
        return rows;
      })
      .toEqual([{ fresh: true }]);
    release();
    await stopping;
    expect(await jobOf(id)).toMatchObject({ state: "completed" });
  });

  test("the grace is over: what listens to its signal and what doesn't are both handed back, no attempt spent", async () => {
    const [listening, deaf] = [await enqueue(), await enqueue()];
    const { stop, heart, lines } = startWorker(
      (ctx) =>
        new Promise<undefined>((_, reject) => {
          if (ctx.job.id === listening) ctx.signal.addEventListener("abort", () => reject(ctx.signal.reason));
        }),
      { graceMs: 10 },
    );
    await expect.poll(() => heart.attempts.size).toBe(2);
    await stop();
    for (const id of [listening, deaf]) {
      expect(await jobOf(id)).toMatchObject({ state: "available", attempt: 0, runLease: "1", errors: [] });
    }
    expect(heart.attempts.size).toBe(0);
    expect(lines.filter((line) => line.reason?.startsWith("handed back"))).toMatchObject([{ jobId: deaf }]);
    startWorker(() => complete("second worker"));
    await expect.poll(() => jobOf(deaf)).toMatchObject({ state: "completed", attempt: 1, runLease: "2" });
  });
});

describe("nudge", () => {
  test("a handler that outlasts the platform's patience is handed back in time", async () => {
    const id = await enqueue();
    const registry = testRegistry()
      .handle("plain", () => new Promise<undefined>(() => undefined))
      .queue("default");
    const { deps } = executorDeps(database, registry);
    await nudge(deps, ["default", "not-run"], { claimingMs: 10, runningMs: 50, listeningMs: 10 });
    expect(await jobOf(id)).toMatchObject({ state: "available", attempt: 0 });
  });

  test("runs what is due in queues of this build only, and never rejects", async () => {
    const id = await enqueue({ queue: "other" });
    const registry = testRegistry()
      .handle("plain", () => complete())
      .queue("default")
      .queue("other");
    const { deps, lines } = executorDeps(database, registry);
    await nudge(deps, ["default", "unknown"]);
    expect(await jobOf(id)).toMatchObject({ state: "available" });
    await nudge(deps, ["other"]);
    expect(await jobOf(id)).toMatchObject({ state: "completed" });
    const broken = pgDatabase(new pg.Pool({ connectionString: "postgres://x@127.0.0.1:1/x" }));
    await nudge({ ...deps, database: broken }, ["other"]);
    expect(lines.at(-1)).toMatchObject({ event: "nudge_failed", reason: "DatabaseError" });
  });
});
