import { beforeEach, describe, expect, test } from "vitest";
import { createClient } from "../../src/client.ts";
import { DatabaseError } from "../../src/shared/db/errors.ts";
import { claimIfDue } from "../../src/shared/db/statements/claim-jobs.ts";
import type { JobState } from "../../src/shared/job.ts";
import type { EnqueueOptions } from "../../src/shared/registry/follow-up.ts";
import { complete, snooze } from "../../src/shared/registry/handler.ts";
import { useTestDatabase } from "../support/database.ts";
import { emptyTables } from "../support/empty-tables.ts";
import { run } from "../support/executor.ts";
import { holdTransaction, untilBlocked } from "../support/races.ts";
import { testRegistry } from "../support/registry.ts";

const { db, database } = useTestDatabase();
const client = createClient({ database, registry: testRegistry() });

beforeEach(async () => {
  await emptyTables(db.pool);
});

const claimOf = (maxJobs: number, queue = "default") =>
  claimIfDue([{ queue, maxJobs, deadlineSeconds: null }], {});
const claim = async (maxJobs = 100, queue = "default") =>
  (await database.query(claimOf(maxJobs, queue))).map(({ job }) => job.id);
const enqueue = async (options: EnqueueOptions = {}) =>
  (await client.enqueue("plain", { n: 1 }, options)).jobId;
/** Makes a job one that came due so many seconds ago. */
const age = (id: string, seconds: number) =>
  db.pool.query("UPDATE awa_edge.jobs SET run_at = now() - make_interval(secs => $2) WHERE id = $1", [
    id,
    seconds,
  ]);
const stateOf = async (id: string) => (await client.getJob(id))?.state;
/** What an executor does to a job that it has claimed, as far as the line of its ordering key is concerned. */
const set = (id: string, state: JobState, more = "") =>
  db.pool.query(
    `UPDATE awa_edge.jobs SET state = $2, heartbeat_at = NULL, deadline_at = NULL,
       finalized_at = CASE WHEN $2 IN ('retryable', 'completed') THEN now() END ${more} WHERE id = $1`,
    [id, state],
  );

describe("what is claimed", () => {
  test("available, due scheduled and due retryable: running, one attempt and one lease more; nothing else", async () => {
    const available = await enqueue();
    const scheduled = await enqueue({ runAt: new Date(Date.now() + 50) });
    const retryable = await enqueue();
    await set(retryable, "retryable", ", attempt = 3, run_lease = 5");
    const later = await enqueue({ runAt: new Date(Date.now() + 3_600_000) });
    const soon = await enqueue({ runAt: new Date(Date.now() + 100_000) });
    const elsewhere = await enqueue({ queue: "elsewhere" });
    await db.pool.query("UPDATE awa_edge.jobs SET run_at = now() WHERE id = $1", [scheduled]);
    expect((await claim()).toSorted()).toEqual([available, retryable, scheduled].toSorted());
    expect(await client.getJob(retryable)).toMatchObject({
      state: "running",
      attempt: 4,
      runLease: "6",
      finalizedAt: null,
      heartbeatAt: expect.any(Date),
      attemptedAt: expect.any(Date),
      deadlineAt: null,
    });
    expect(await claim()).toEqual([]);
    for (const id of [later, soon]) expect(await stateOf(id)).toBe("scheduled");
    expect(await stateOf(elsewhere)).toBe("available");
  });

  test("the limit, several queues in one statement, in a paused one nothing, though it takes jobs", async () => {
    for (const queue of ["a", "a", "b", "paused"]) await enqueue({ queue });
    await client.configureQueue("paused", { paused: true });
    await enqueue({ queue: "paused" });
    const wanted = ["a", "b", "paused"].map((queue) => ({ queue, maxJobs: 1, deadlineSeconds: null }));
    const claimed = await database.query(claimIfDue(wanted, {}));
    expect(claimed.map(({ job }) => job.queue).toSorted()).toEqual(["a", "b"]);
    await client.configureQueue("paused", { paused: false });
    expect(await claim(10, "paused")).toHaveLength(2);
  });

  test("river#1287 a deadline by job, by kind, by queue, in that order; none: none", async () => {
    const own = await enqueue({ deadlineSeconds: 10 });
    const ofKind = await enqueue();
    const ofQueue = (await client.enqueue("order", { n: 1 })).jobId;
    const wanted = [{ queue: "default", maxJobs: 10, deadlineSeconds: 30 }];
    const claimed = await database.query(claimIfDue(wanted, { plain: 20 }));
    const seconds = new Map(
      claimed.map(({ job, now }) => [
        job.id,
        Math.round(((job.deadlineAt?.getTime() ?? 0) - now.getTime()) / 1000),
      ]),
    );
    expect(seconds).toEqual(
      new Map([
        [own, 10],
        [ofKind, 20],
        [ofQueue, 30],
      ]),
    );
  });

  test("jobs too large for one answer are claimed by and by; one that alone is too large, alone", async () => {
    const big = async (megabytes: number) => {
      const id = await enqueue();
      await db.pool.query(
        "UPDATE awa_edge.jobs SET metadata = jsonb_build_object('blob', repeat('x', $2)) WHERE id = $1",
        [id, megabytes * 1_000_000],
      );
    };
    for (let i = 0; i < 4; i++) await big(1.5);
    expect(await claim()).toHaveLength(2);
    expect(await claim()).toHaveLength(2);
    await big(5);
    await enqueue();
    expect(await claim()).toHaveLength(1);
    expect(await claim()).toHaveLength(1);
  });
});

describe("order", () => {
  test("priority, then run_at, then id", async () => {
    const [low, normal, second, first] = [
      await enqueue({ priority: 4 }),
      await enqueue(),
      await enqueue({ priority: 1 }),
      await enqueue({ priority: 1 }),
    ];
    await age(first, 5);
    expect(await claim()).toEqual([first, second, normal, low]);
    const [a, b] = [await enqueue(), await enqueue()];
    await db.pool.query("UPDATE awa_edge.jobs SET run_at = '2026-01-01Z' WHERE id = ANY ($1::bigint[])", [
      [a, b],
    ]);
    expect(await claim()).toEqual([a, b]);
  });

  test("starvation is bounded: a job of priority p isn't passed by one that came due p - 1 minutes later; nothing is written", async () => {
    const low = await enqueue({ priority: 4 });
    await age(low, 181);
    const high = await enqueue({ priority: 1 });
    const before = await db.pool.query("SELECT xmin FROM awa_edge.jobs WHERE id = $1", [low]);
    expect(await claim(1)).toEqual([low]);
    expect(before.rows).toHaveLength(1);
    const lower = await enqueue({ priority: 4 });
    await age(lower, 175);
    expect(await claim(1)).toEqual([high]);
    expect(await claim(1)).toEqual([lower]);
  });
});

describe("what claims leave behind", () => {
  // Of 2,000 jobs, to step over each takes twice as many.
  const FEW_BLOCKS = 40;
  test("nothing that the next one has to step over, without any vacuum; while a transaction may see it still, all of it", async () => {
    const claimAndComplete = async (jobs: number) => {
      await db.pool.query(
        "INSERT INTO awa_edge.jobs (kind, args) SELECT 'plain', '{\"n\":1}' FROM generate_series(1, $1)",
        [jobs],
      );
      for (let done = 0; done < jobs; ) {
        const ids = await claim();
        await db.pool.query(
          `UPDATE awa_edge.jobs SET state = 'completed', heartbeat_at = NULL, finalized_at = now() WHERE id = ANY ($1)`,
          [ids],
        );
        done += ids.length;
      }
    };
    const blocksOfNext = async () => {
      const { text, values } = claimOf(100);
      const { rows } = await db.pool.query<{
        "QUERY PLAN": [{ Plan: Readonly<Record<"Actual Rows" | "Shared Hit Blocks", number>> }];
      }>(`EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) ${text}`, [...values]);
      const plan = rows[0]?.["QUERY PLAN"][0].Plan;
      expect(plan?.["Actual Rows"]).toBe(0);
      return plan?.["Shared Hit Blocks"];
    };
    await db.pool.query("ALTER TABLE awa_edge.jobs SET (autovacuum_enabled = off)");
    await db.pool.query(
      `INSERT INTO awa_edge.jobs (kind, state, attempt, run_lease, finalized_at)
       SELECT 'plain', 'completed', 1, 1, now() FROM generate_series(1, 10000)`,
    );
    await db.pool.query("ANALYZE awa_edge.jobs");

    await claimAndComplete(2000);
    expect(await blocksOfNext()).toBeLessThan(FEW_BLOCKS);

    const reader = await holdTransaction(db.pool);
    await reader.query("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ");
    await reader.query("SELECT FROM awa_edge.jobs LIMIT 1");
    await claimAndComplete(2000);
    expect(await blocksOfNext()).toBeGreaterThan(FEW_BLOCKS);
    await reader.commit();
    await blocksOfNext();
    expect(await blocksOfNext()).toBeLessThan(FEW_BLOCKS);
  });
});

describe("two claims at once", () => {
  test("share the rows between them; nobody waits, no job is claimed twice", async () => {
    const ids: string[] = [];
    for (let i = 0; i < 6; i++) ids.push(await enqueue());
    const other = await holdTransaction(db.pool);
    const theirs = (await other.run(claimOf(3))).map(({ job }) => job.id);
    const ours = await claim();
    await other.commit();
    expect([...theirs, ...ours].toSorted()).toEqual(ids.toSorted());
  });

  test("many claimers, many jobs: each job once", async () => {
    await Promise.all(Array.from({ length: 200 }, () => enqueue()));
    const claimed = await Promise.all(Array.from({ length: 20 }, () => claim(20)));
    const rest = await claim(200);
    const all = [...claimed.flat(), ...rest];
    expect(all).toHaveLength(200);
    expect(new Set(all).size).toBe(200);
    const { rows } = await db.pool.query("SELECT DISTINCT attempt, run_lease FROM awa_edge.jobs");
    expect(rows).toEqual([{ attempt: 1, run_lease: "1" }]);
  });
});

describe("ordering key", () => {
  const keyed = (more: EnqueueOptions = {}) => enqueue({ orderingKey: "customer-1", ...more });

  test("first in first out, one at a time, whatever the priorities; other keys and queues go on beside it", async () => {
    const [first, second] = [await keyed({ priority: 4 }), await keyed({ priority: 1 })];
    const [other, otherQueue] = [await enqueue({ orderingKey: "customer-2" }), await keyed({ queue: "q" })];
    expect((await claim()).toSorted()).toEqual([first, other].toSorted());
    expect(await claim(10, "q")).toEqual([otherQueue]);
    expect(await claim()).toEqual([]);
    await set(first, "completed");
    expect(await claim()).toEqual([second]);
  });

  test("through retries, waits and snoozes: whoever has begun keeps its place", async () => {
    const [first, second] = [await keyed(), await keyed()];
    expect(await claim()).toEqual([first]);
    const later = ", run_at = now() + interval '1 hour'";
    for (const [state, more] of [
      ["retryable", later],
      ["scheduled", later],
      ["waiting_external", ", callback_id = gen_random_uuid()"],
    ] as const) {
      await set(first, state, more);
      expect(await claim()).toEqual([]);
    }
    await set(first, "available", ", callback_id = NULL, run_at = now()");
    expect(await claim()).toEqual([first]);
    await set(first, "completed");
    expect(await claim()).toEqual([second]);
  });

  test("one that is scheduled for later and never began holds nobody up, and takes its place when it is due", async () => {
    const first = await keyed({ runAt: new Date(Date.now() + 3_600_000) });
    const [second, third] = [await keyed(), await keyed()];
    expect(await claim()).toEqual([second]);
    await db.pool.query("UPDATE awa_edge.jobs SET run_at = now() WHERE id = $1", [first]);
    expect(await claim()).toEqual([]);
    await set(second, "completed");
    expect(await claim()).toEqual([first]);
    await set(first, "completed");
    expect(await claim()).toEqual([third]);
  });

  test("a job whose id is lower but came later doesn't run beside the one under way", async () => {
    const [first, second] = [await keyed(), await keyed()];
    const late = await holdTransaction(db.pool);
    await late.query("UPDATE awa_edge.jobs SET ordering_key = 'x' WHERE id = $1", [first]);
    await late.commit();
    expect(await claim(1)).toEqual([first]);
    await set(first, "completed");
    expect(await claim()).toEqual([second]);
    await db.pool.query(
      "UPDATE awa_edge.jobs SET ordering_key = 'customer-1', state = 'available', finalized_at = NULL WHERE id = $1",
      [first],
    );
    expect(await claim()).toEqual([]);
    await set(second, "completed");
    expect(await claim()).toEqual([first]);
  });

  test("two claims that can't see each other: the index lets one through, the other is made again", async () => {
    const [first, second] = [await keyed(), await keyed()];
    await set(first, "completed");
    const other = await holdTransaction(db.pool);
    expect((await other.run(claimOf(10))).map(({ job }) => job.id)).toEqual([second]);
    // The lower one becomes due after the other's snapshot, and is the first in ours.
    await set(first, "available", ", run_at = now()");
    const ours = expect(claim()).rejects.toMatchObject({
      kind: "unique_violation",
      constraint: "jobs_one_under_way_per_ordering_key",
    });
    await untilBlocked(db.pool);
    await other.commit();
    await ours;
    expect(await claim()).toEqual([]);
    expect(await stateOf(first)).toBe("available");
  });

  test("the executor makes a claim again that met another, or was rolled back", async () => {
    for (const kind of ["unique_violation", "contended"] as const) {
      await enqueue();
      let claims = 0;
      const { report } = await run(
        {
          query: (statement) =>
            statement.text.includes("SKIP LOCKED") && claims++ === 0
              ? Promise.reject(new DatabaseError(kind, null))
              : database.query(statement),
          batch: (statements) => database.batch(statements),
        },
        testRegistry()
          .handle("plain", () => complete())
          .queue("default"),
      );
      expect(report).toMatchObject({ claimed: 1, finished: 1 });
    }
  });

  test("through the executor: 3 keys × 20 jobs, in order, never two of a key at a time, though some snooze", async () => {
    const under = new Set<string>();
    const done: Record<string, string[]> = {};
    let snoozed = 0;
    const registry = testRegistry()
      .handle("plain", async ({ job }) => {
        const key = job.orderingKey ?? "";
        expect(under.has(key)).toBe(false);
        under.add(key);
        await new Promise((resolve) => setTimeout(resolve, 1));
        under.delete(key);
        if (job.runLease === "1" && Number(job.id) % 7 === 0) {
          snoozed++;
          return snooze(0);
        }
        done[key] = [...(done[key] ?? []), job.id];
        return complete();
      })
      .queue("default", { concurrency: 5 });
    const expected: Record<string, string[]> = {};
    for (let i = 0; i < 60; i++) {
      const key = `key-${i % 3}`;
      expected[key] = [...(expected[key] ?? []), await enqueue({ orderingKey: key })];
    }
    const reports = await Promise.all([run(database, registry), run(database, registry)]);
    expect(reports.map(({ report }) => report.lost)).toEqual([0, 0]);
    expect(done).toEqual(expected);
    expect(snoozed).toBeGreaterThan(0);
  });

  test("parking a job whose key is under way is refused, with a clear error", async () => {
    await keyed();
    expect(await claim()).toHaveLength(1);
    await expect(client.park("plain", { n: 1 }, { orderingKey: "customer-1" })).rejects.toThrow(
      /another job with this orderingKey is under way/,
    );
  });
});
