import pg from "pg";
import { beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { createClient } from "../../src/client.ts";
import { TASKS } from "../../src/cron/scheduled.ts";
import { pgDatabase } from "../../src/shared/db/pg.ts";
import { useTestDatabase } from "../support/database.ts";
import { emptyTables } from "../support/empty-tables.ts";
import { endState } from "../support/end-state.ts";
import {
  enqueueWork,
  faultRegistry,
  leftToDo,
  makeOverdue,
  passTime,
  WORKS,
} from "../support/fault-world.ts";
import { mortalDatabase } from "../support/faulty-database.ts";
import { tick } from "../support/tick.ts";

const { db, database } = useTestDatabase();
const registry = faultRegistry();
const SORTS = [WORKS.completes, WORKS.failsOnce, WORKS.waits, WORKS.cancels];

beforeEach(() => emptyTables(db.pool));

/** Something for every task of the tick. */
async function makeWorld(): Promise<void> {
  await emptyTables(db.pool);
  await makeOverdue(db.pool);
  await enqueueWork(db.pool, SORTS, 2);
}

/** Ticks of new processes, and the time between them, until nothing is left to do. */
async function untilQuiet(): Promise<void> {
  for (let ticks = 0; ticks < 10; ticks++) {
    await passTime(db.pool);
    await tick(database, registry);
    if ((await leftToDo(db.pool)) === 0) return;
  }
  expect.fail("a tick is never done");
}

/** What all of it comes to where nothing goes wrong. */
async function faultFree() {
  await makeWorld();
  await untilQuiet();
  return endState(db.pool);
}

/** For each rescue how many follow-ups it has; there must be exactly one each. */
async function followUpsOfRescues() {
  const { rows } = await db.pool.query<{ n: number; rescues: number; follow_ups: number; distinct: number }>(
    `SELECT (j.args->>'n')::int AS n,
       (SELECT count(*) FROM jsonb_array_elements(j.errors) e
        WHERE e->>'error' IN ('heartbeat stale: worker presumed dead', 'hard deadline exceeded', 'callback timed out'))::int AS rescues,
       count(f.id)::int AS follow_ups, count(DISTINCT f.trigger_run_lease)::int AS distinct
     FROM awa_edge.jobs j LEFT JOIN awa_edge.jobs f ON f.trigger_job_id = j.id AND f.trigger_outcome = 'rescued'
     WHERE j.kind = 'order' AND j.trigger_job_id IS NULL GROUP BY j.id ORDER BY n`,
  );
  return rows;
}

test("the world of these tests: every task of the tick has something to do", async () => {
  await makeWorld();
  const { lines } = await tick(database, registry);
  const counts = Object.fromEntries(
    lines.filter(({ event }) => event === "tick_task").map((l) => [l.task, l.counts]),
  );
  expect(counts).toMatchObject({
    rescue_stale_heartbeats: { rescued: 3 },
    rescue_overrun_deadlines: { rescued: 3 },
    rescue_expired_callbacks: { rescued: 3 },
    dispatch_rescue_follow_ups: { dispatched: 9, followUps: 9 },
    enqueue_periodic_jobs: { enqueued: 3 },
    retention: { completed: 3 },
    retry_deliveries: { resolved: 3 },
    run_due_jobs: { claimed: 8, finished: 8 },
  });
});

describe("killed at any statement", () => {
  // It commits, and nobody hears of it: to die before the next one is the same.
  test("the k-th of a tick, for every k: a later tick comes to the same end; each rescue has its follow-up once", async () => {
    const expected = await faultFree();
    let deaths = 0;
    for (let diesAt = 1; ; diesAt++) {
      await makeWorld();
      const mortal = mortalDatabase(database, diesAt, "committed");
      await tick(mortal.database, registry);
      if (!mortal.died()) break;
      deaths++;
      await untilQuiet();
      expect(await endState(db.pool), `killed at statement ${diesAt}`).toEqual(expected);
      for (const { n, rescues, follow_ups, distinct } of await followUpsOfRescues()) {
        expect([n, follow_ups, distinct], `killed at statement ${diesAt}`).toEqual([n, rescues, rescues]);
      }
    }
    // Fewer would mean that the tick doesn't do what is to be interrupted.
    expect(deaths).toBeGreaterThanOrEqual(25);
  }, 60_000);
});

test("several ticks at once, on connections of their own, and again: the end of one tick alone", async () => {
  const expected = await faultFree();
  for (let round = 0; round < 5; round++) {
    await makeWorld();
    const overlapping = Array.from({ length: 4 }, async () => {
      const pool = new pg.Pool({ ...db.workerPool.options, max: 2 });
      pool.on("error", () => undefined);
      onTestFinished(() => pool.end());
      const { results } = await tick(pgDatabase(pool), registry);
      return results.filter(({ ok }) => !ok);
    });
    expect((await Promise.all(overlapping)).flat()).toEqual([]);
    await untilQuiet();
    expect(await endState(db.pool)).toEqual(expected);
  }
});

test("run twice: the second one does nothing", async () => {
  await makeWorld();
  await tick(database, registry);
  const once = await endState(db.pool);
  const { lines } = await tick(database, registry);
  expect(await endState(db.pool)).toEqual(once);
  const done = lines.filter(({ event, task }) => event === "tick_task" && task !== "backlog");
  for (const { task, counts } of done) {
    const { schedules, exhausted, ...rest } = counts ?? {};
    expect([task, ...Object.values(rest).filter((count) => count !== 0)]).toEqual([task]);
  }
});

describe("not run for a day", () => {
  const LOST = 5_000;

  test(`${LOST} expired callbacks of a day and a schedule of every minute: ticks within their budget catch up with all of it, each once`, async () => {
    await db.pool.query(
      `WITH j AS (
         INSERT INTO awa_edge.jobs (kind, args, state, attempt, run_lease, callback_id)
         SELECT 'order', jsonb_build_object('n', n), 'waiting_external', 1, 1, gen_random_uuid() FROM generate_series(1, $1::int) n
         RETURNING id, callback_id, args)
       INSERT INTO awa_edge.callbacks (id, job_id, run_lease, timeout_at)
       SELECT callback_id, id, 1, now() - (args->>'n')::int * interval '17 seconds' FROM j`,
      [LOST],
    );
    const build = faultRegistry();
    build.periodic("minutely", "* * * * *", build.enqueue("plain", { n: 901 }), { missedFires: "catch_up" });
    await tick(database, build, { tasks: TASKS.filter(({ name }) => name === "enqueue_periodic_jobs") });
    await db.pool.query(
      "UPDATE awa_edge.schedules SET last_fire_at = date_trunc('minute', now()) - interval '1 day' WHERE name = 'minutely'",
    );
    let ticks = 0;
    for (let isBehind = true; isBehind; ticks++) {
      const { results } = await tick(database, build);
      expect(results.every(({ ok }) => ok)).toBe(true);
      isBehind = results.some((result) => result.ok && result.exhausted);
    }
    expect(ticks).toBeLessThanOrEqual(3);
    const { rows } = await db.pool.query(
      `SELECT (SELECT count(*) FROM awa_edge.jobs WHERE state = 'retryable')::int AS rescued,
         count(*) FILTER (WHERE trigger_outcome = 'rescued')::int AS follow_ups,
         count(DISTINCT trigger_job_id) FILTER (WHERE trigger_outcome = 'rescued')::int AS followed,
         (SELECT count(*) FROM awa_edge.rescue_followups)::int AS outbox
       FROM awa_edge.jobs`,
    );
    expect(rows).toEqual([{ rescued: LOST, follow_ups: LOST, followed: LOST, outbox: 0 }]);
    const { rows: fires } = await db.pool.query(
      `SELECT count(*)::int AS jobs, count(DISTINCT metadata->>'cron_fire_time')::int AS fires,
         extract(epoch FROM max((metadata->>'cron_fire_time')::timestamptz) - min((metadata->>'cron_fire_time')::timestamptz))::int / 60 + 1 AS minutes
       FROM awa_edge.jobs WHERE kind = 'plain' AND args->>'n' = '901'`,
    );
    const [fired] = fires;
    // A day has 1,440; the test may run over the end of a minute or two.
    expect(fired.jobs).toBeGreaterThanOrEqual(1440);
    expect(fired).toEqual({ jobs: fired.jobs, fires: fired.jobs, minutes: fired.jobs });
  });

  test("killed in the middle of catching up, at every statement up to its end: nothing is lost, nothing twice", async () => {
    const { park } = createClient({ database, registry });
    for (let diesAt = 1; ; diesAt++) {
      await emptyTables(db.pool);
      for (let n = 1; n <= 20; n++) await park("order", { n });
      await db.pool.query("UPDATE awa_edge.callbacks SET timeout_at = now() - interval '1 day'");
      const mortal = mortalDatabase(database, diesAt, diesAt % 2 === 0 ? "not run" : "committed");
      await Promise.all([tick(mortal.database, registry), tick(database, registry)]);
      await untilQuiet();
      const rescues = await followUpsOfRescues();
      expect(rescues).toEqual(
        Array.from({ length: 20 }, (_, i) => ({ n: i + 1, rescues: 1, follow_ups: 1, distinct: 1 })),
      );
      if (!mortal.died()) break;
    }
  });
});
