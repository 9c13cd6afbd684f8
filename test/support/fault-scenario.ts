import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import type pg from "pg";
import { createClient } from "../../src/client.ts";
import { nudge } from "../../src/executor/nudge.ts";
import { createApp } from "../../src/ingress/app.ts";
import { DatabaseError } from "../../src/shared/db/errors.ts";
import { pgDatabase } from "../../src/shared/db/pg.ts";
import type { Database } from "../../src/shared/db/port.ts";
import type { RegistryView } from "../../src/shared/registry/define.ts";
import { emptyTables } from "./empty-tables.ts";
import { WORK } from "./end-state.ts";
import { executorDeps } from "./executor.ts";
import { makeWaiting } from "./factory.ts";
import { EVER, enqueueWork, faultRegistry, leftToDo, makeOverdue, passTime, WORKS } from "./fault-world.ts";
import { ingressDeps } from "./ingress.ts";
import { registryWithSources } from "./sources.ts";
import { tick } from "./tick.ts";

/** What a run of the scenario is made of. */
export interface Scene {
  /** To the database itself, where nothing goes wrong: for what the test arranges. */
  readonly pool: pg.Pool;
  /** The database as the product gets it. */
  readonly open: () => Database;
  /** Ends the faults; resolves when nothing that was given up is still to run. */
  readonly mend: () => Promise<unknown>;
}

/** Providers go on for days; here that is so many tries. */
const MAX_TRIES = 200;
const EACH = 2;
const SORTS = Object.values(WORKS);
const count = (n: number) => Array.from({ length: n }, (_, i) => i);

/** Senders, ticks and handlers, as one process has them. */
export function peopleOf({ open }: Scene) {
  const registry = faultRegistry();
  const client = createClient({ database: open(), registry });
  const deferred: Promise<unknown>[] = [];
  const executionContext = {
    waitUntil: (work: Promise<unknown>) => deferred.push(work),
    passThroughOnException() {},
    props: {},
  };
  const appOf = (view: RegistryView) =>
    createApp(
      ingressDeps(
        { DATABASE_URL: "postgres://u@localhost/d", AWA_CALLBACK_ALLOW_UNSIGNED: "true" },
        {
          registry: view,
          database: open,
          nudge: (queues, defer) => nudge(executorDeps(open(), view, { defer }).deps, queues),
        },
      ),
    );
  const app = appOf(registry);
  const brokenApp = appOf(registryWithSources({ broken: () => true }));

  /** Sends until it is answered 2xx, as providers do, or with a 4xx, which no repetition would change. @returns the last status */
  async function post(to: typeof app, path: string, body: unknown, headers: Record<string, string> = {}) {
    for (let tries = 1; ; tries++) {
      const init = {
        method: "POST",
        headers: { "Content-Type": "application/json", ...headers },
        body: JSON.stringify(body),
      };
      const { status } = await to.request(path, init, {}, executionContext);
      if (status < 500) return status;
      if (tries >= MAX_TRIES) throw new Error(`a sender was answered ${status} ${tries} times`);
      await sleep(5);
    }
  }

  return {
    registry,
    /** The hooks and nudges that were left running. */
    settled: async () => {
      while (deferred.length > 0) await Promise.all(deferred.splice(0));
    },
    /** Calls back; several senders at once, where one isn't sure of the other. */
    call: (callbackId: string, action: string, body: unknown, times = 1) =>
      Promise.all(count(times).map(() => post(app, `/api/callbacks/${callbackId}/${action}`, body))),
    /** Delivers one event, the same each time. */
    deliver: (deliveryId: string, told: unknown, times = 1) =>
      Promise.all(count(times).map(() => post(app, "/webhooks/shop", told, { "x-delivery": deliveryId }))),
    /** Delivers it to a build whose code for the source is broken. */
    deliverToBroken: (deliveryId: string, told: unknown) =>
      post(brokenApp, "/webhooks/shop", told, { "x-delivery": deliveryId }),
    /** Parks a job from an application, until that is known to have been done. */
    async park(n: number, correlationKey: string) {
      for (let tries = 1; ; tries++) {
        try {
          return await client.park("order", { n }, { source: "shop", correlationKey, unique: EVER });
        } catch (thrown) {
          if (!(thrown instanceof DatabaseError) || tries >= MAX_TRIES) throw thrown;
          await sleep(5);
        }
      }
    },
    /** Two ticks that overlap. What fails of them is for the next. */
    tick: () => Promise.all([tick(open(), registry), tick(open(), registry)]),
  };
}

/** Ticks, and the time between them, while the database says that there is something to do. */
export async function tickUntil(
  scene: Scene,
  people: ReturnType<typeof peopleOf>,
  isDone: () => Promise<boolean>,
) {
  for (let ticks = 0; ticks < MAX_TRIES; ticks++) {
    await people.tick();
    await people.settled();
    if (await isDone()) return;
    await passTime(scene.pool);
  }
  throw new Error("a tick is never done");
}

/**
 * Plays the scenario on an empty database.
 *
 * @returns what its senders were answered in the end
 */
export async function play(scene: Scene): Promise<unknown> {
  const { pool, mend } = scene;
  await emptyTables(pool);
  await makeOverdue(pool);
  await enqueueWork(pool, SORTS, EACH);
  const people = peopleOf(scene);
  const { call, deliver, deliverToBroken, park } = people;
  const waiting = async (n: number, maxAttempts = 25) =>
    (await makeWaiting(pool, { args: { n }, maxAttempts })).callbackId;
  const [completes, resumes, fails, retries, exhausts, beats] = [
    await waiting(1),
    await waiting(2),
    await waiting(3),
    await waiting(4),
    await waiting(5, 1),
    await waiting(6),
  ];
  const told = await Promise.all(count(10).map((i) => waiting(10 + i)));
  const tell = (i: number, does: string, payload?: unknown) => ({ callback: told[i], does, payload });
  const unsettled = async () => {
    const { rows } = await pool.query(
      `SELECT FROM awa_edge.jobs WHERE queue = $1 AND (state IN ('running', 'available', 'retryable')) LIMIT 1`,
      [WORK],
    );
    return rows.length > 0;
  };

  // Each action, by senders that aren't sure and by several at once; deliveries, some of them twice at once; and the tick.
  const first = await Promise.all([
    call(completes, "complete", { payload: { paid: true } }, 3),
    call(resumes, "complete", { payload: "go on", resume: true }, 2),
    call(fails, "fail", { error: "declined" }, 3),
    call(retries, "retry", {}, 2),
    call(exhausts, "retry", {}, 2),
    call(beats, "heartbeat", { timeout_seconds: 60 }, 2),
    call(randomUUID(), "complete", {}),
    deliver("d-complete", tell(0, "complete", { n: 0 }), 3),
    deliver("d-fail", tell(1, "fail", "declined"), 2),
    deliver("d-retry", tell(2, "retry"), 2),
    deliver("d-resume", tell(3, "resume", 3), 2),
    deliver("d-resolve", tell(4, "resolve", { n: 4 }), 2),
    deliver("d-heartbeat", tell(5, "heartbeat", 60), 2),
    deliver("d-ignore", tell(6, "ignore"), 2),
    deliver("d-nobody", { does: "complete" }, 2),
    deliverToBroken("d-broken", tell(7, "complete", { n: 7 })),
    ...count(EACH).map((i) =>
      deliver(`early-${i}`, { key: `early-${i}`, does: "complete", payload: { n: i } }, 2),
    ),
    tickUntil(scene, people, async () => !(await unsettled())),
  ]);
  // What has to come after: for the callbacks that handlers wait for, too late for what is over, and waits that an event came early for.
  const then = await Promise.all([
    ...count(EACH).map((i) =>
      deliver(`waits-${i}`, { key: `work-${WORKS.waits + i}`, does: "complete", payload: { n: i } }, 2),
    ),
    ...count(EACH).map((i) =>
      deliver(`awaits-${i}`, { key: `work-${WORKS.awaits + i}`, does: "resume", payload: { n: i } }, 2),
    ),
    // What it is answered differs: a repetition is told of the job alone, whose callback is over by then.
    ...count(EACH).map((i) => park(300 + i, `early-${i}`).then(() => "parked")),
    deliver("late", tell(0, "fail", "too late"), 2),
    call(completes, "complete", { payload: { paid: true } }),
    call(fails, "complete", {}),
    tickUntil(scene, people, async () => !(await unsettled())),
  ]);
  await people.settled();
  await mend();
  await passTime(pool);
  await tickUntil(scene, people, async () => (await leftToDo(pool)) === 0);
  return [first, then];
}

/** The scenario without any fault, through `pg`. */
export function playFaultFree(pool: pg.Pool, workerPool: pg.Pool): Promise<unknown> {
  return play({ pool, open: () => pgDatabase(workerPool), mend: async () => undefined });
}
