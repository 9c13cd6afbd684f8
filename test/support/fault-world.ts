import type pg from "pg";
import { pgDatabase } from "../../src/shared/db/pg.ts";
import { defineIfChanged } from "../../src/shared/db/statements/schedules.ts";
import { JOB_STATES } from "../../src/shared/job.ts";
import { cancel, complete, waitForCallback } from "../../src/shared/registry/handler.ts";
import { deliver } from "./deliver.ts";
import { WORK } from "./end-state.ts";
import { type Made, type MadeJob, makeRunning, makeWaiting } from "./factory.ts";
import { registryWithSources } from "./sources.ts";

/** What a handler of `order` does, by its number. */
export const WORKS = { completes: 100, failsOnce: 110, waits: 120, awaits: 130, cancels: 140 } as const;
const NOT_YET = "not yet";

/** The registry of the faults: that of the sources, with a handler for `order` on the queue {@link WORK}, and a periodic job. */
export function faultRegistry() {
  const registry = registryWithSources();
  registry
    .queue(WORK, { concurrency: 4 })
    .periodic("yearly", "0 0 1 1 *", registry.enqueue("plain", { n: 900 }), { missedFires: "catch_up" })
    .handle("order", async (ctx) => {
      const { n } = ctx.args;
      const wait = { source: "shop", correlationKey: `work-${n}` };
      switch (n - (n % 10)) {
        case WORKS.failsOnce:
          if (!ctx.job.errors.some(({ error }) => error === NOT_YET)) throw new Error(NOT_YET);
          return complete({ n });
        case WORKS.waits:
          await ctx.registerCallback(wait);
          return waitForCallback();
        case WORKS.awaits:
          return complete(await ctx.waitForCallback("payment", wait));
        case WORKS.cancels:
          return cancel("not wanted any more");
        default:
          return complete({ n });
      }
    });
  return registry;
}

/** Jobs to be run, so many of each of these sorts. */
export async function enqueueWork(pool: pg.Pool, sorts: readonly number[], each: number): Promise<void> {
  await pool.query(
    `INSERT INTO awa_edge.jobs (kind, queue, args, state)
     SELECT 'order', $1, jsonb_build_object('n', sort + i), 'available'
     FROM unnest($2::int[]) sort, generate_series(0, $3::int - 1) i`,
    [WORK, sorts, each],
  );
}

/** What a tick has to do, a little of everything: lost jobs of each reason, fires, deliveries, and what is to be deleted. */
export async function makeOverdue(pool: pg.Pool): Promise<void> {
  const registry = faultRegistry();
  const lost: readonly [number, (made: Made) => Promise<MadeJob>][] = [
    [200, (made) => makeRunning(pool, { ...made, heartbeatAt: "now() - interval '1 hour'" })],
    [210, (made) => makeRunning(pool, { ...made, deadlineAt: "now() - interval '1 second'" })],
    [220, (made) => makeWaiting(pool, { ...made, timeoutAt: "now() - interval '1 second'" })],
  ];
  for (const [n, make] of lost) {
    await make({ args: { n } });
    await make({ args: { n: n + 1 } });
    await make({ args: { n: n + 2 }, maxAttempts: 1 });
  }
  const database = pgDatabase(pool);
  await database.query(defineIfChanged(registry.schedules()));
  // Three fires are overdue, in whatever year this runs.
  await pool.query(
    "UPDATE awa_edge.schedules SET last_fire_at = date_trunc('year', now()) - interval '30 months'",
  );

  // Deliveries whose source's code was broken when they came, and one that a callback was registered for without looking.
  const broken = registryWithSources({ broken: () => true });
  for (const n of [230, 231]) {
    const { callbackId } = await makeWaiting(pool, { args: { n } });
    await deliver(database, broken, {
      deliveryId: `failed-${n}`,
      told: { callback: callbackId, does: "complete", payload: { n } },
    });
  }
  await deliver(database, registry, {
    deliveryId: "parked-232",
    told: { key: "k-232", does: "fail", payload: "x" },
  });
  const { callbackId } = await makeWaiting(pool, { args: { n: 232 } });
  await pool.query("UPDATE awa_edge.callbacks SET source = 'shop', correlation_key = 'k-232' WHERE id = $1", [
    callbackId,
  ]);
  await pool.query("UPDATE awa_edge.deliveries SET next_attempt_at = now()");
  await pool.query(
    `INSERT INTO awa_edge.jobs (kind, args, state, attempt, run_lease, finalized_at)
     SELECT 'plain', '{"n": 240}', 'completed', 1, 1, now() - interval '2 days' FROM generate_series(1, 3)`,
  );
}

/** Every state: a job that has ended keeps its key, so that enqueueing it again after a lost answer is always recognized. */
export const EVER = { states: JOB_STATES } as const;

/**
 * As much time passes as everything that waits for it needs: running jobs of handlers lose their workers, retries and what the tick
 * puts off come due. Nothing may run meanwhile.
 */
export async function passTime(pool: pg.Pool): Promise<void> {
  await pool.query(
    `UPDATE awa_edge.jobs SET run_at = CASE WHEN state = 'retryable' THEN now() ELSE run_at END,
       heartbeat_at = heartbeat_at - interval '1 hour'
     WHERE queue = $1 AND state IN ('retryable', 'running')`,
    [WORK],
  );
  await pool.query("UPDATE awa_edge.rescue_followups SET next_attempt_at = now()");
  await pool.query(
    "UPDATE awa_edge.deliveries SET next_attempt_at = now() WHERE next_attempt_at IS NOT NULL",
  );
}

/** What a tick still has to do. */
export async function leftToDo(pool: pg.Pool): Promise<number> {
  const { rows } = await pool.query<{ left: number }>(
    `SELECT ((SELECT count(*) FROM awa_edge.jobs j LEFT JOIN awa_edge.callbacks c ON c.id = j.callback_id
        WHERE j.state = 'running' OR (j.queue = $1 AND j.state IN ('available', 'retryable'))
          OR (j.state = 'waiting_external' AND c.timeout_at < now()))
      + (SELECT count(*) FROM awa_edge.rescue_followups)
      + (SELECT count(*) FROM awa_edge.deliveries WHERE next_attempt_at IS NOT NULL))::int AS left`,
    [WORK],
  );
  return rows[0]?.left ?? 0;
}
