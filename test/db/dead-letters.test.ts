import { beforeEach, describe, expect, test } from "vitest";
import { createClient } from "../../src/client.ts";
import type { Statement } from "../../src/shared/db/port.ts";
import {
  type DeadLetterFilter,
  purgeIfDeadLetter,
  readDeadLetters,
  retryIfDeadLetter,
} from "../../src/shared/db/statements/dead-letters.ts";
import type { DeadLetterReason } from "../../src/shared/outcome.ts";
import { complete } from "../../src/shared/registry/handler.ts";
import { useTestDatabase } from "../support/database.ts";
import { emptyTables } from "../support/empty-tables.ts";
import { run } from "../support/executor.ts";
import { holdTransaction, untilBlocked } from "../support/races.ts";
import { testRegistry } from "../support/registry.ts";

const { db, database } = useTestDatabase();
const client = createClient({ database, registry: testRegistry() });
const { deadLetters } = client;
const START = { after: null, upTo: null };

beforeEach(async () => {
  await emptyTables(db.pool);
});

interface Dead {
  readonly kind?: string;
  readonly queue?: string;
  readonly reason?: DeadLetterReason;
  readonly tags?: readonly string[];
  readonly key?: string;
  readonly metadataBytes?: number;
}

/** Makes dead letters such as the executor leaves them. */
async function makeDead(dead: Dead = {}, count = 1): Promise<string[]> {
  const {
    kind = "plain",
    queue = "default",
    reason = "terminal_error",
    tags = [],
    key,
    metadataBytes = 0,
  } = dead;
  const { rows } = await db.pool.query<{ id: string }>(
    `INSERT INTO awa_edge.jobs (kind, queue, args, state, attempt, run_lease, finalized_at, errors, progress, tags,
       dead_lettered_at, dead_letter_reason, unique_key, unique_states, metadata)
     SELECT $1, $2, '{"n":1}', 'failed', 3, 7, now(), '[{"error":"x","attempt":3,"at":"2026-01-01T00:00:00.000Z"}]',
       '{"percent":50}', $4, now(), $3, decode($5, 'hex'),
       CASE WHEN $5::text IS NOT NULL THEN '{scheduled,available,running,waiting_external,retryable}'::text[] END,
       jsonb_build_object('blob', repeat('x', $7))
     FROM generate_series(1, $6::int) RETURNING id`,
    [kind, queue, reason, tags, key ?? null, count, metadataBytes],
  );
  return rows.map((row) => row.id);
}
const stateOf = async (id: string) => (await client.getJob(id))?.state ?? "gone";
const listed = async (...query: Parameters<typeof deadLetters.list>) =>
  (await deadLetters.list(...query)).jobs.map((job) => job.id);

describe("list", () => {
  test("by every condition, and all of them together; jobs that failed without being kept aren't there", async () => {
    const [a = ""] = await makeDead({
      kind: "order",
      queue: "q",
      reason: "callback_failed",
      tags: ["vip", "x"],
    });
    const [b = ""] = await makeDead();
    await db.pool.query(
      "INSERT INTO awa_edge.jobs (kind, state, finalized_at) VALUES ('plain', 'failed', now()), ('plain', 'completed', now())",
    );
    expect(await listed()).toEqual([a, b]);
    expect(await listed({ kind: "order" })).toEqual([a]);
    expect(await listed({ queue: "default" })).toEqual([b]);
    expect(await listed({ reason: "callback_failed" })).toEqual([a]);
    expect(await listed({ tag: "vip" })).toEqual([a]);
    expect(await listed({ ids: [b] })).toEqual([b]);
    expect(await listed({ ids: [] })).toEqual([]);
    expect(await listed({ before: new Date(Date.now() - 60_000) })).toEqual([]);
    expect(await listed({ before: new Date(Date.now() + 60_000), kind: "order", tag: "x" })).toEqual([a]);
    expect(await listed({ kind: "order", queue: "default" })).toEqual([]);
    const { jobs } = await deadLetters.list({ kind: "order" });
    expect(jobs[0]).toMatchObject({
      state: "failed",
      deadLetter: { reason: "callback_failed", at: expect.any(Date) },
      errors: [{ error: "x", attempt: 3 }],
    });
  });

  test("by every tag that a job can have", async () => {
    for (const tag of ["", "x".repeat(201), 'y"z', "{}"]) {
      const [id] = await makeDead({ tags: ["other", tag] });
      expect(await listed({ tag })).toEqual([id]);
    }
  });

  test("page by page, by rows and by bytes", async () => {
    const ids = await makeDead({}, 5);
    const first = await deadLetters.list({ limit: 2 });
    expect(first).toMatchObject({ jobs: [{ id: ids[0] }, { id: ids[1] }], next: ids[1] });
    const rest = await deadLetters.list({ limit: 3, after: first.next ?? "" });
    expect(rest.jobs.map((job) => job.id)).toEqual(ids.slice(2));
    expect(rest.next).toBeNull();
    const large = await makeDead({ queue: "large", metadataBytes: 3_000_000 }, 2);
    const [one] = large;
    expect(await deadLetters.list({ queue: "large" })).toMatchObject({ jobs: [{ id: one }], next: one });
    const [huge] = await makeDead({ queue: "huge", metadataBytes: 5_000_000 });
    expect(await deadLetters.list({ queue: "huge" })).toMatchObject({ jobs: [{ id: huge }], next: null });
  });
});

describe("retry", () => {
  test("starts them afresh: attempt 0, due, errors and progress and lease kept; a worker is woken and runs them", async () => {
    const [id = ""] = await makeDead();
    const [other = ""] = await makeDead({ kind: "order" });
    const listener = await db.pool.connect();
    const woken: unknown[] = [];
    listener.on("notification", ({ payload }) => woken.push(payload));
    await listener.query("LISTEN awa_edge");
    expect(await deadLetters.retry({ kind: "plain" })).toEqual({ retried: 1, skipped: 0 });
    await expect.poll(() => woken).toEqual(["default"]);
    listener.release(true);
    expect(await client.getJob(id)).toMatchObject({
      state: "available",
      attempt: 0,
      runLease: "7",
      errors: [{ error: "x" }],
      progress: { percent: 50 },
      finalizedAt: null,
      deadLetter: null,
    });
    expect(await stateOf(other)).toBe("failed");
    const registry = testRegistry()
      .handle("plain", () => complete())
      .queue("default");
    expect((await run(database, registry)).report).toMatchObject({ claimed: 1, finished: 1 });
    expect(await client.getJob(id)).toMatchObject({ state: "completed", attempt: 1, runLease: "8" });
  });

  test("in another queue, with another priority, later: in bulk and one by one", async () => {
    const [a = "", b = ""] = await makeDead({}, 2);
    const options = { queue: "slow", priority: 4, runAt: new Date(Date.now() + 3_600_000) } as const;
    expect(await deadLetters.retry({ ids: [a] }, options)).toEqual({ retried: 1, skipped: 0 });
    expect(await client.retry(b, options)).toEqual({ status: "retried" });
    for (const id of [a, b]) {
      expect(await client.getJob(id)).toMatchObject({ ...options, state: "scheduled", attempt: 0 });
    }
  });

  test("a wait that timed out under its handler is superseded, in bulk and one by one; other ended callbacks stay", async () => {
    const [a = "", b = ""] = await makeDead({}, 2);
    await db.pool.query(
      `INSERT INTO awa_edge.callbacks (id, job_id, run_lease, state, timeout_at, resolved_at, awaited_in_attempt)
       SELECT gen_random_uuid(), job_id, 7, 'expired', now(), now(), attempt
       FROM unnest($1::bigint[]) job_id, unnest('{1,NULL}'::smallint[]) attempt`,
      [[a, b]],
    );
    await deadLetters.retry({ ids: [a] });
    await client.retry(b);
    const { rows } = await db.pool.query(
      "SELECT job_id, awaited_in_attempt AS attempt, state FROM awa_edge.callbacks ORDER BY 1, 2",
    );
    expect(rows).toEqual(
      [a, b].flatMap((id) => [
        { job_id: id, attempt: 1, state: "superseded" },
        { job_id: id, attempt: null, state: "expired" },
      ]),
    );
  });

  test("one whose unique key a live job holds is skipped; of several with one key the first is taken", async () => {
    const key = "ab".repeat(16);
    const [first = "", second = ""] = await makeDead({ key }, 2);
    expect(await deadLetters.retry({ all: true })).toEqual({ retried: 1, skipped: 1 });
    expect([await stateOf(first), await stateOf(second)]).toEqual(["available", "failed"]);
    expect(await deadLetters.retry({ all: true })).toEqual({ retried: 0, skipped: 1 });
    await client.cancel(first);
    expect(await deadLetters.retry({ all: true })).toEqual({ retried: 1, skipped: 0 });
  });

  test("a key that is being taken right now: the page is run again and sees its holder", async () => {
    const key = "cd".repeat(16);
    const [id = ""] = await makeDead({ key });
    const other = await holdTransaction(db.pool);
    await other.query(
      "INSERT INTO awa_edge.jobs (kind, unique_key, unique_states) VALUES ('plain', decode($1, 'hex'), '{available}')",
      [key],
    );
    const retrying = deadLetters.retry({ ids: [id] });
    await untilBlocked(db.pool);
    await other.commit();
    expect(await retrying).toEqual({ retried: 0, skipped: 1 });
    expect(await stateOf(id)).toBe("failed");
  });

  test("many pages; what it can't take doesn't keep it from ending", async () => {
    const key = "ef".repeat(16);
    await makeDead({ key }, 1500);
    await makeDead({}, 1000);
    expect(await deadLetters.retry({ all: true })).toEqual({ retried: 1001, skipped: 1499 });
  });

  test("two at once: each dead letter is started once", async () => {
    const ids = await makeDead({}, 4);
    const other = await holdTransaction(db.pool);
    expect(await other.run(retryIfDeadLetter({ ids: ids.slice(0, 2) }, START, {}))).toMatchObject({
      done: 2,
    });
    expect(await deadLetters.retry({ all: true })).toEqual({ retried: 2, skipped: 0 });
    await other.commit();
    expect(await deadLetters.retry({ all: true })).toEqual({ retried: 0, skipped: 0 });
  });

  test("one by one, racing a bulk retry: waits for the row, and finds it started", async () => {
    const [id = ""] = await makeDead();
    const bulk = await holdTransaction(db.pool);
    await bulk.run(retryIfDeadLetter({ ids: [id] }, START, { queue: "slow" }));
    const single = client.retry(id, { queue: "fast" });
    await untilBlocked(db.pool);
    await bulk.commit();
    expect(await single).toEqual({ status: "not_retriable", state: "available" });
    expect(await client.getJob(id)).toMatchObject({ state: "available", queue: "slow" });
  });
});

describe("purge", () => {
  test("deletes them with their callbacks, and nothing else", async () => {
    const [id = ""] = await makeDead({ kind: "order" });
    const [other = ""] = await makeDead();
    await db.pool.query(
      `INSERT INTO awa_edge.callbacks (id, job_id, run_lease, state, timeout_at, resolved_at)
       VALUES (gen_random_uuid(), $1, 7, 'expired', now(), now())`,
      [id],
    );
    expect(await deadLetters.purge({ kind: "order" })).toEqual({ purged: 1 });
    expect([await stateOf(id), await stateOf(other)]).toEqual(["gone", "failed"]);
    expect(await client.getCallbacks(id)).toEqual([]);
    await makeDead({}, 1200);
    expect(await deadLetters.purge({ all: true })).toEqual({ purged: 1201 });
  });

  test("racing a retry: whoever has the row first; a job that was started afresh isn't deleted", async () => {
    const [id = ""] = await makeDead();
    const retrying = await holdTransaction(db.pool);
    await retrying.run(retryIfDeadLetter({ ids: [id] }, START, {}));
    expect(await deadLetters.purge({ all: true })).toEqual({ purged: 0 });
    await retrying.commit();
    expect(await deadLetters.purge({ all: true })).toEqual({ purged: 0 });
    expect(await stateOf(id)).toBe("available");

    const [gone = ""] = await makeDead();
    const purging = await holdTransaction(db.pool);
    await purging.run(purgeIfDeadLetter({ ids: [gone] }, START));
    const single = client.retry(gone);
    await untilBlocked(db.pool);
    await purging.commit();
    // The statement saw the job that was deleted while it waited, and moved nothing.
    expect(await single).toEqual({ status: "not_found" });
  });
});

test("what becomes a dead letter while a bulk move runs is left for the next one", async () => {
  const [first = ""] = await makeDead();
  const page = await database.query(retryIfDeadLetter({}, START, {}));
  expect(page).toMatchObject({ picked: 1, done: 1, last: first });
  await makeDead();
  expect(await database.query(retryIfDeadLetter({}, { after: null, upTo: page.upTo }, {}))).toMatchObject({
    picked: 0,
  });
});

test("where a bulk move began is kept whatever the session's date style and zone", async () => {
  const session = await holdTransaction(db.pool);
  // As text it would end in IST, which versions before 18 read as Israel's time.
  await session.query("SET LOCAL DateStyle = 'SQL, DMY'; SET LOCAL TimeZone = 'Asia/Kolkata'");
  const { upTo } = await session.run(purgeIfDeadLetter({}, START));
  expect(upTo).toMatch(/^\d{4}-\d\d-\d\dT[\d:.]+\+05:30$/);
  const { rows } = await session.query("SELECT $1::timestamptz = now() AS is_kept", [upTo]);
  expect(rows).toEqual([{ is_kept: true }]);
});

test.each<[string, () => Promise<unknown>, RegExp]>([
  ["no condition", () => deadLetters.retry({}), /give a condition, or \{ all: true \}/],
  [
    "a condition that is undefined",
    () => deadLetters.purge({ queue: undefined as never }),
    /give a condition/,
  ],
  ["all and a condition", () => deadLetters.purge({ all: true, kind: "plain" } as never), /contradict/],
  ["all that isn't true", () => deadLetters.purge({ all: false } as never), /can only be true/],
  [
    "a misspelt condition",
    () => deadLetters.purge({ kind: "x", qeue: "y" } as never),
    /no such condition: qeue/,
  ],
  ["a reason that isn't one", () => deadLetters.retry({ reason: "bored" as never }), /reason must be one of/],
  ["ids that are no list", () => deadLetters.purge({ ids: null as never }), /ids must be a list/],
  ["a tag that is no text", () => deadLetters.purge({ tag: 1 as never }), /must be strings/],
  ["an id that isn't one", () => deadLetters.retry({ ids: ["x"] }), /ids: a job id is a whole number/],
  [
    "a time that isn't one",
    () => deadLetters.retry({ before: new Date(Number.NaN) }),
    /before isn't a valid Date/,
  ],
  [
    "a limit out of range",
    () => deadLetters.list({ limit: 0 }),
    /limit must be a whole number from 1 to 1000/,
  ],
  ["a page that isn't one", () => deadLetters.list({ after: "x" }), /after: a job id/],
  ["a priority out of range", () => deadLetters.retry({ all: true }, { priority: 5 as never }), /priority/],
  [
    "a queue without a name",
    () => deadLetters.retry({ all: true }, { queue: "" }),
    /queue must have 1 to 200/,
  ],
])("%s: a clear error, nothing changed", async (_, act, message) => {
  const [id = ""] = await makeDead();
  await expect(act()).rejects.toThrow(message);
  expect(await stateOf(id)).toBe("failed");
});

test("all of them or those of a queue: no statement reads the jobs that are none", async () => {
  await db.pool.query(`INSERT INTO awa_edge.jobs (kind, state, finalized_at)
    SELECT 'plain', 'completed', now() FROM generate_series(1, 30000)`);
  await makeDead({}, 2000);
  await makeDead({ queue: "small" }, 20);
  await db.pool.query("ANALYZE awa_edge.jobs");
  const of = (filter: DeadLetterFilter): Statement<unknown>[] => [
    readDeadLetters(filter, null, 100),
    retryIfDeadLetter(filter, START, {}),
    purgeIfDeadLetter(filter, START),
  ];
  for (const { text, values } of [{}, { queue: "default" }, { queue: "small" }].flatMap(of)) {
    const { rows } = await db.pool.query<{ "QUERY PLAN": string }>(`EXPLAIN ${text}`, [...values]);
    const plan = rows.map((row) => row["QUERY PLAN"]).join("\n");
    expect(plan).toMatch(/jobs_dead_letter/);
    expect(plan).not.toMatch(/Seq Scan on jobs/);
  }
});
