import { neon } from "@neondatabase/serverless";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { createClient, neonDatabase } from "../../src/client.ts";
import { Heart } from "../../src/executor/heart.ts";
import { runJobs } from "../../src/executor/run-jobs.ts";
import { DatabaseError } from "../../src/shared/db/errors.ts";
import { pgDatabase } from "../../src/shared/db/pg.ts";
import type { Database } from "../../src/shared/db/port.ts";
import { rescueIfLost } from "../../src/shared/db/statements/rescue-jobs.ts";
import type { JobRow } from "../../src/shared/job.ts";
import {
  cancel,
  complete,
  type Handler,
  type HandlerContext,
  TerminalError,
} from "../../src/shared/registry/handler.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { emptyTables } from "../support/empty-tables.ts";
import { executorDeps, run as runAll } from "../support/executor.ts";
import { holdTransaction, interrupt, untilBlocked } from "../support/races.ts";
import { testRegistry } from "../support/registry.ts";
import { tick } from "../support/tick.ts";

// Who ends an attempt: one of several, exactly once, whatever the network says.

let db: TestDatabase;
let database: Database;
beforeAll(async () => {
  db = await createTestDatabase();
  database = pgDatabase(db.workerPool);
  await db.pool.query("CREATE TABLE own_rows (job_id bigint, note text)");
  await db.pool.query("GRANT SELECT, INSERT ON own_rows TO awa_worker");
});
afterAll(() => db.drop());
beforeEach(async () => {
  await emptyTables(db.pool, "own_rows");
});

type Ctx = HandlerContext<{ n: number }>;
const client = () => createClient({ database, registry: testRegistry() });
const registryWith = (handler: Handler<{ n: number }>) =>
  testRegistry().handle("order", handler).handle("plain", handler).queue("default");
const run = (handler: Handler<{ n: number }>, on: Database = database) => runAll(on, registryWith(handler));
const enqueue = async (kind: "order" | "plain" = "order", options = {}) =>
  (await client().enqueue(kind, { n: 1 }, options)).jobId;
const jobOf = async (id: string): Promise<JobRow> =>
  (await client().getJob(id)) ?? expect.fail("the job is gone");
const outcomesOf = async (id: string) =>
  (await client().getFollowUps(id)).map(({ trigger }) => trigger?.outcome);
const isFinish = (text: string) => text.includes("WITH moved");
const goStale = (id: string) =>
  db.pool.query("UPDATE awa_edge.jobs SET heartbeat_at = now() - interval '1 hour' WHERE id = $1", [id]);

/** A database whose `times`-th finishing statements fail: before they reach Postgres, or after they committed. */
function failing(when: "before" | "after", times: number): Database {
  let left = times;
  return {
    async query(statement) {
      const fails = isFinish(statement.text) && left > 0;
      if (fails) left--;
      if (fails && when === "before") throw new DatabaseError("unavailable", null);
      const result = await database.query(statement);
      if (fails) throw new DatabaseError("unavailable", null);
      return result;
    },
    batch: (statements) => database.batch(statements),
  };
}

describe("a stale finalization changes nothing, enqueues nothing, fires no hook", () => {
  test("rails/solid_queue#589 rescued while the handler ran: the rescue counts, the late end doesn't", async () => {
    const types: string[] = [];
    const id = await enqueue();
    const registry = registryWith(async () => {
      await goStale(id);
      await tick(database, testRegistry());
      return complete("late");
    }).onEvent("order", ({ type }) => {
      types.push(type);
    });
    const { report } = await runAll(database, registry);
    expect(report).toMatchObject({ finished: 0, lost: 1 });
    expect(await jobOf(id)).toMatchObject({ state: "retryable", result: null });
    expect(await outcomesOf(id)).toEqual(["rescued"]);
    expect(types).toEqual(["started"]);
  });

  test("the rescue has the row's lock and commits first: the end waits for it, and matches nothing", async () => {
    const id = await enqueue();
    const rescuer = await holdTransaction(db.pool);
    const running = run(async () => {
      await goStale(id);
      await rescuer.run(rescueIfLost("stale_heartbeat", [], []));
      return complete("late");
    });
    await untilBlocked(db.pool);
    await rescuer.commit();
    expect((await running).report).toMatchObject({ finished: 0, lost: 1 });
    expect(await jobOf(id)).toMatchObject({ state: "retryable" });
    expect(await outcomesOf(id)).toEqual([]);
  });

  test("the end has the lock and commits first: the sweep skips the row", async () => {
    const id = await enqueue();
    const finisher = await holdTransaction(db.pool);
    await run(() => complete(), {
      // The end of the attempt runs in a transaction that stays open.
      query: async (statement) => {
        if (!isFinish(statement.text)) return database.query(statement);
        await goStale(id);
        const result = await finisher.run(statement);
        expect(await database.query(rescueIfLost("stale_heartbeat", [], []))).toMatchObject({ picked: 0 });
        await finisher.commit();
        return result;
      },
      batch: (statements) => database.batch(statements),
    });
    expect(await jobOf(id)).toMatchObject({ state: "completed" });
  });

  test("cancelled by hand while the handler ran: `cancelled` once, with its follow-ups, and nothing of the handler's", async () => {
    const id = await enqueue();
    await run(async () => {
      await client().cancel(id);
      return complete("late");
    });
    expect(await jobOf(id)).toMatchObject({ state: "cancelled", result: null });
    expect(await outcomesOf(id)).toEqual(["cancelled"]);
  });

  test.each([
    { how: "completed", end: complete("ours"), result: "theirs" },
    { how: "cancelled", end: cancel("ours"), result: null },
  ])(
    "$how by somebody else in the very millisecond: told by what they wrote that it isn't an earlier try of its own",
    async ({ how, end, result }) => {
      const types: string[] = [];
      const id = await enqueue("plain");
      const registry = registryWith(() => end).onEvent("plain", ({ type }) => {
        types.push(type);
      });
      let isFirst = true;
      const { report } = await runAll(
        {
          query: async (statement) => {
            if (isFinish(statement.text) && isFirst) {
              isFirst = false;
              const finalizedAt = statement.values[7];
              await db.pool.query(
                `UPDATE awa_edge.jobs SET state = $2::text, finalized_at = $3::text::timestamptz, heartbeat_at = NULL,
                   result = $4::text::jsonb,
                   errors = CASE WHEN $2::text = 'cancelled' THEN jsonb_build_array(jsonb_build_object(
                     'error', 'cancelled: theirs', 'attempt', 1, 'at', $3::text)) ELSE errors END
                 WHERE id = $1`,
                [id, how, finalizedAt, result === null ? null : JSON.stringify(result)],
              );
            }
            return database.query(statement);
          },
          batch: (statements) => database.batch(statements),
        },
        registry,
      );
      expect(report).toMatchObject({ finished: 0, lost: 1 });
      expect(await jobOf(id)).toMatchObject({ state: how, result });
      expect(types).toEqual(["started"]);
    },
  );

  test("claimed again under a new lease meanwhile: the old attempt's end doesn't touch the new one", async () => {
    const id = await enqueue();
    let runs = 0;
    const slow = run(async () => {
      if (++runs > 1) return complete("second");
      await goStale(id);
      await tick(database, testRegistry());
      await db.pool.query("UPDATE awa_edge.jobs SET run_at = now()");
      await run(() => complete("second"));
      return complete("first");
    });
    expect((await slow).report.lost).toBe(1);
    expect(await jobOf(id)).toMatchObject({ state: "completed", result: "second", runLease: "2" });
  });
});

describe("the answer doesn't come", () => {
  test("the end was committed: repeated, recognized, reported as what it was; follow-ups once", async () => {
    for (const handler of [
      () => complete("done"),
      // As jsonb prints it: in another order, with numbers written otherwise.
      () => complete({ b: [1e21, -0, 1e-7, 0.1], aa: { z: null }, é: "\u{1F600} \u2028" }),
      async () => {
        throw new TerminalError("no");
      },
    ]) {
      const types: string[] = [];
      const id = await enqueue();
      const registry = registryWith(handler).onEvent("order", ({ type }) => {
        types.push(type);
      });
      const { report } = await runAll(failing("after", 1), registry);
      expect(report).toMatchObject({ lost: 0 });
      expect(types).toHaveLength(2);
      expect(new Set(await outcomesOf(id)).size).toBe(1);
      const { rows } = await db.pool.query(
        "SELECT count(*)::int AS n FROM awa_edge.jobs WHERE trigger_job_id = $1 AND kind = 'after'",
        [id],
      );
      expect(rows).toEqual([{ n: 1 }]);
    }
  });

  test("the end didn't reach the database: it is tried again until it does", async () => {
    const id = await enqueue();
    const { report } = await run(() => complete("done"), failing("before", 2));
    expect(report).toMatchObject({ finished: 2, lost: 0 });
    expect(await jobOf(id)).toMatchObject({ state: "completed" });
    expect(await outcomesOf(id)).toEqual(["completed", "completed"]);
  });

  test("a deadlock or a serialization failure is run again at once", async () => {
    const id = await enqueue("plain");
    let thrown = 0;
    await run(() => complete(), {
      query: (statement) => {
        if (isFinish(statement.text) && thrown++ === 0)
          return Promise.reject(new DatabaseError("contended", "40P01"));
        return database.query(statement);
      },
      batch: (statements) => database.batch(statements),
    });
    expect(await jobOf(id)).toMatchObject({ state: "completed" });
  });

  test("the schema doesn't fit: the job is left to the rescue, and that is logged", async () => {
    const id = await enqueue("plain");
    const { report, lines } = await run(() => complete(), {
      query: (statement) =>
        isFinish(statement.text)
          ? Promise.reject(new DatabaseError("schema_mismatch", "42703"))
          : database.query(statement),
      batch: (statements) => database.batch(statements),
    });
    expect(report).toMatchObject({ lost: 1 });
    expect(await jobOf(id)).toMatchObject({ state: "running" });
    expect(lines.find((line) => line.event === "attempt")).toMatchObject({
      level: "error",
      reason: expect.stringContaining("it will be rescued"),
    });
  });
});

test("B6 a unique key that a newer job has by now: the constraint has a name, and the job is cancelled as its duplicate", async () => {
  const options = { unique: { states: ["available", "retryable"] } } as const;
  const id = await enqueue("order", options);
  await run(async (ctx) => {
    if (ctx.job.id !== id) return complete();
    const newer = await client().enqueue("order", { n: 1 }, { ...options, queue: "elsewhere" });
    expect(newer.deduplicated).toBe(false);
    await expect(
      db.pool.query("UPDATE awa_edge.jobs SET state = 'available', heartbeat_at = NULL WHERE id = $1", [id]),
    ).rejects.toMatchObject({ constraint: "jobs_unique_key" });
    throw new Error("again");
  });
  expect(await jobOf(id)).toMatchObject({
    state: "cancelled",
    errors: [{ error: "cancelled: duplicate: its unique key is held by a newer job" }],
  });
  expect(await outcomesOf(id)).toEqual(["cancelled"]);
});

test("a callback that was resumed while the handler went on to complete: completed, the callback stays resumed", async () => {
  const id = await enqueue("plain");
  await run(async (ctx) => {
    const { callbackId } = await ctx.registerCallback();
    await client().completeCallback(callbackId, { payload: 1, resume: true });
    return complete("by itself");
  });
  expect(await jobOf(id)).toMatchObject({ state: "completed", result: "by itself" });
  expect(await client().getCallbacks(id)).toMatchObject([{ state: "resumed" }]);
});

test("progress that a heartbeat brings while a callback fails the job isn't overwritten with what the callback once read", async () => {
  const id = await enqueue("plain");
  await run(async (ctx) => {
    const { callbackId } = await ctx.registerCallback();
    const raced = interrupt(database, isFinish, async () => {
      ctx.setProgress({ percent: 7 });
      await ctx.flushProgress();
    });
    await createClient({ database: raced, registry: testRegistry() }).failCallback(callbackId, "no");
  });
  expect(await jobOf(id)).toMatchObject({ state: "failed", progress: { percent: 7 } });
});

describe("caller-owned completion", () => {
  /** Runs own rows and the completion in one transaction of `pg`. */
  async function inOwnTransaction(ctx: Ctx, result: string): Promise<void> {
    const own = await db.workerPool.connect();
    try {
      await own.query("BEGIN");
      await own.query("INSERT INTO public.own_rows VALUES ($1, $2)", [ctx.job.id, result]);
      const { text, values } = ctx.completion(result);
      await own.query(text, [...values]);
      await own.query("COMMIT");
    } catch (thrown) {
      await own.query("ROLLBACK");
      throw thrown;
    } finally {
      own.release();
    }
  }
  const ownRows = async () => (await db.pool.query("SELECT note FROM own_rows")).rows.map(({ note }) => note);

  test("own rows, job and follow-ups commit together; the executor finds the completion, and the hooks hear of it", async () => {
    const types: string[] = [];
    const id = await enqueue();
    const registry = registryWith((ctx) => inOwnTransaction(ctx, "mine")).onEvent("order", ({ type }) => {
      types.push(type);
    });
    const { report } = await runAll(database, registry);
    expect(report).toMatchObject({ lost: 0 });
    expect(await ownRows()).toEqual(["mine"]);
    expect(await jobOf(id)).toMatchObject({ state: "completed", result: "mine" });
    expect(await outcomesOf(id)).toEqual(["completed", "completed"]);
    expect(types).toEqual(["started", "completed"]);
  });

  test("in a batch of the Neon driver", async () => {
    const id = await enqueue();
    const sql = neon(db.workerUrl);
    neonDatabase({ connectionString: db.workerUrl, fetchEndpoint: db.neonEndpoint });
    await run(async (ctx) => {
      const completion = ctx.completion("batch");
      await sql.transaction([
        sql.query("INSERT INTO public.own_rows VALUES ($1, $2)", [ctx.job.id, "batch"]),
        sql.query(completion.text, [...completion.values]),
      ]);
    });
    expect(await ownRows()).toEqual(["batch"]);
    expect(await jobOf(id)).toMatchObject({ state: "completed", result: "batch" });
    expect(await outcomesOf(id)).toEqual(["completed", "completed"]);
  });

  test("a stale attempt raises, and nothing of the transaction happened", async () => {
    const id = await enqueue();
    let fault: unknown;
    await run(async (ctx) => {
      await client().cancel(id);
      fault = await inOwnTransaction(ctx, "late").catch((thrown: unknown) => thrown);
    });
    expect(fault).toMatchObject({ code: "AE001", message: expect.stringContaining("is stale") });
    expect(await ownRows()).toEqual([]);
    expect(await jobOf(id)).toMatchObject({ state: "cancelled", result: null });
    expect(await outcomesOf(id)).toEqual(["cancelled"]);
  });

  test("through our own port: a DatabaseError that says so", async () => {
    const id = await enqueue("plain");
    let fault: unknown;
    await run(async (ctx) => {
      await client().cancel(id);
      const statement = { ...ctx.completion(), decode: () => null };
      fault = await database.batch([statement]).catch((thrown: unknown) => thrown);
    });
    expect(fault).toMatchObject({ kind: "stale_attempt", sqlState: "AE001" });
  });

  test("the commit's answer was lost and the handler threw: completed all the same, no second set of follow-ups", async () => {
    const id = await enqueue();
    const { report } = await run(async (ctx) => {
      await inOwnTransaction(ctx, "committed");
      throw new Error("connection reset");
    });
    expect(report).toMatchObject({ lost: 0 });
    expect(await jobOf(id)).toMatchObject({ state: "completed", result: "committed", errors: [] });
    expect(await outcomesOf(id)).toEqual(["completed", "completed"]);
  });

  test("still open when the executor comes to fail the attempt: the row's lock decides, the completion counts", async () => {
    const id = await enqueue("plain");
    const own = await holdTransaction(db.pool);
    const running = run(async (ctx) => {
      const { text, values } = ctx.completion("slow");
      await own.query(text, [...values]);
      throw new Error("connection reset");
    });
    await untilBlocked(db.pool);
    await own.commit();
    expect((await running).report).toMatchObject({ finished: 1, lost: 0 });
    expect(await jobOf(id)).toMatchObject({ state: "completed", result: "slow" });
  });

  test("prepared and never run: the handler's own end counts", async () => {
    const id = await enqueue("plain");
    await run((ctx) => {
      ctx.completion("unused");
      return complete("used");
    });
    expect(await jobOf(id)).toMatchObject({ state: "completed", result: "used" });
  });

  test("a follow-up that can't be planned, a result that can't be stored: refused before anything is written", async () => {
    const faults: string[] = [];
    const registry = registryWith((ctx) => {
      for (const result of ["fine", "\0"]) {
        try {
          ctx.completion(result);
        } catch (thrown) {
          faults.push(String(thrown));
        }
      }
    }).onCompletedEnqueue("plain", () => {
      throw new Error("x");
    });
    await enqueue("plain", { maxAttempts: 1 });
    await runAll(database, registry);
    expect(faults).toEqual([
      "Error: follow-up 1 of plain, completed: threw Error",
      expect.stringContaining("NUL character"),
    ]);
  });
});

describe("the signal", () => {
  const hearts: Heart[] = [];
  afterEach(() => {
    for (const heart of hearts.splice(0)) for (const attempt of heart.attempts) heart.delete(attempt);
  });
  /** Runs with a heart that beats every so often, until idle. */
  async function runWithHeart(handler: Handler<{ n: number }>, intervalMs: number, on = database) {
    const registry = registryWith(handler);
    const { deps, lines } = executorDeps(on, registry);
    const heart = new Heart(deps, intervalMs);
    hearts.push(heart);
    const report = await runJobs(deps, { queues: registry.queues(), goesOn: () => true, heart });
    return { report, lines, heart };
  }
  const untilAborted = (ctx: Ctx) =>
    new Promise<never>((_, reject) => ctx.signal.addEventListener("abort", () => reject(ctx.signal.reason)));

  test("B5 at the deadline: the attempt fails with the reference's words, before or by the rescue", async () => {
    const id = await enqueue("plain", { deadlineSeconds: 0.05 });
    await runWithHeart(untilAborted, 1_000);
    expect(await jobOf(id)).toMatchObject({
      state: "retryable",
      errors: [{ error: "hard deadline exceeded", attempt: 1 }],
    });
    const deaf = await enqueue("plain", { deadlineSeconds: 0.02 });
    const { report } = await runWithHeart(async (ctx) => {
      if (ctx.job.id !== deaf) return complete();
      await new Promise((resolve) => setTimeout(resolve, 60));
      expect(ctx.signal.aborted).toBe(true);
      await tick(database, testRegistry());
      return complete("deaf");
    }, 1_000);
    expect(report.lost).toBe(1);
    expect(await jobOf(deaf)).toMatchObject({
      state: "retryable",
      errors: [{ error: "hard deadline exceeded" }],
    });
  });

  test("on a cancel and on a lost lease: the next heartbeat finds out", async () => {
    for (const lose of [
      (id: string) => client().cancel(id),
      (id: string) => db.pool.query("UPDATE awa_edge.jobs SET run_lease = run_lease + 1 WHERE id = $1", [id]),
    ]) {
      const id = await enqueue("plain");
      let reason: unknown;
      await runWithHeart(async (ctx) => {
        const aborted = untilAborted(ctx).catch((thrown: unknown) => thrown);
        await lose(id);
        reason = await aborted;
      }, 10);
      expect(reason).toMatchObject({ name: "AbortError", abortCause: "lease_lost" });
    }
  });

  test("a heartbeat keeps the job from being rescued, and brings the progress", async () => {
    const id = await enqueue("plain");
    const { heart } = await runWithHeart(async (ctx) => {
      await goStale(id);
      ctx.setProgress({ percent: 50 });
      await expect.poll(async () => (await jobOf(id)).progress, { interval: 5 }).toEqual({ percent: 50 });
      await tick(database, testRegistry());
      expect(await jobOf(id)).toMatchObject({ state: "running" });
      return complete();
    }, 10);
    expect(await jobOf(id)).toMatchObject({ state: "completed" });
    expect(heart.attempts.size).toBe(0);
  });

  test("heartbeats that fail for as long as a lease is good: the job may be somebody else's by now", async () => {
    await enqueue("plain");
    let now = 0;
    const registry = registryWith(untilAborted);
    const silent: Database = {
      query: (statement) =>
        statement.text.includes("has_progress")
          ? Promise.reject(new DatabaseError("unavailable", null))
          : database.query(statement),
      batch: (statements) => database.batch(statements),
    };
    const { deps, lines } = executorDeps(silent, registry, { clock: () => now });
    const heart = new Heart(deps, 1_000_000);
    const running = runJobs(deps, { queues: registry.queues(), goesOn: () => true, heart });
    await expect.poll(() => heart.attempts.size, { interval: 5 }).toBe(1);
    const [attempt] = heart.attempts;
    now = 89_000;
    await heart.beat();
    expect(attempt?.signal.aborted).toBe(false);
    now = 90_000;
    await heart.beat();
    expect(attempt?.abortCause).toBe("lease_lost");
    await running;
    expect(lines.filter((line) => line.event === "heartbeat_failed")).toHaveLength(2);
  });

  test("is aborted when the attempt has ended, for what the handler left running", async () => {
    let signal: AbortSignal | undefined;
    await enqueue("plain");
    await run((ctx) => {
      signal = ctx.signal;
    });
    expect(signal?.aborted).toBe(true);
  });
});

test("a handler is interrupted between its end and the write by another writer: found stale, once", async () => {
  const id = await enqueue();
  await run(
    () => complete("mine"),
    interrupt(database, isFinish, () => client().cancel(id, { reason: "first" })),
  );
  expect(await jobOf(id)).toMatchObject({ state: "cancelled" });
  expect(await outcomesOf(id)).toEqual(["cancelled"]);
});
