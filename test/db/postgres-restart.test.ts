import { chmodSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { clearLockedPorts } from "get-port";
import pg from "pg";
import { afterAll, beforeAll, expect, test } from "vitest";
import { migrate } from "../../scripts/lib/migrate.ts";
import { type NeonServer, startNeonServer } from "../../scripts/lib/neon-server.ts";
import { type RunningPostgres, startPostgres } from "../../scripts/lib/postgres.ts";
import { waitForExit } from "../../scripts/lib/processes.ts";
import { renewWorkerRole } from "../../scripts/lib/worker-role.ts";
import { Heart } from "../../src/executor/heart.ts";
import { Latch } from "../../src/executor/latch.ts";
import { runWorker } from "../../src/executor/worker.ts";
import { neonDatabase } from "../../src/shared/db/neon.ts";
import { pgDatabase } from "../../src/shared/db/pg.ts";
import { emptyTables } from "../support/empty-tables.ts";
import { endState } from "../support/end-state.ts";
import { executorDeps } from "../support/executor.ts";
import { makeWaiting } from "../support/factory.ts";
import { peopleOf } from "../support/fault-scenario.ts";
import {
  enqueueWork,
  faultRegistry,
  leftToDo,
  makeOverdue,
  passTime,
  WORKS,
} from "../support/fault-world.ts";

// A Postgres of this file's own, which flushes what it commits as one in production does, killed while everybody works with it.

let folder: string;
let postgres: RunningPostgres;
let pool: pg.Pool;
let workerUrl: string;
let workerPool: pg.Pool;
let neon: NeonServer;

const start = (port?: number) =>
  startPostgres({ dataDir: path.join(folder, "postgres"), ...(port !== undefined && { port }) });

beforeAll(async () => {
  folder = mkdtempSync(path.join(tmpdir(), "awa-edge-restart-"));
  chmodSync(folder, 0o755);
  postgres = await start();
  workerUrl = await renewWorkerRole(postgres.url());
  await migrate({ databaseUrl: postgres.url() });
  const open = (connectionString: string) => {
    const opened = new pg.Pool({
      connectionString,
      max: 20,
      connectionTimeoutMillis: 5_000,
      statement_timeout: 5_000,
    });
    opened.on("error", () => undefined);
    return opened;
  };
  pool = open(postgres.url());
  workerPool = open(workerUrl);
  neon = await startNeonServer({ upstream: postgres.url() });
});
afterAll(async () => {
  await neon.close();
  await Promise.all([pool.end(), workerPool.end()]);
  await postgres.stop();
  for (const each of [folder, path.dirname(postgres.dataDir)]) rmSync(each, { recursive: true, force: true });
});

/** Kills it without a word to anybody, and starts it on the same data and port: it recovers what was committed. */
async function restart(): Promise<void> {
  const { pid, port } = postgres;
  process.kill(pid, "SIGQUIT");
  expect(await waitForExit(pid, 10_000)).toBe(true);
  await postgres.stop();
  // The helper that finds free ports gives none out twice in a while.
  clearLockedPorts();
  postgres = await start(port);
  expect(postgres.port).toBe(port);
}

const CALLS = 60;
const WORK_EACH = 10;
const LOAD_MS = 2_500;

/** Senders, ticks and a worker for some seconds; then what is left is brought to its end. */
async function work(during: () => Promise<void>) {
  await emptyTables(pool);
  await makeOverdue(pool);
  await enqueueWork(pool, [WORKS.completes, WORKS.failsOnce, WORKS.cancels], WORK_EACH);
  const callbacks: string[] = [];
  for (let n = 0; n < CALLS; n++)
    callbacks.push((await makeWaiting(pool, { args: { n: 1000 + n } })).callbackId);

  const failures = { claims: 0, ticks: 0, lost: 0 };
  const open = () => neonDatabase({ connectionString: workerUrl, fetchEndpoint: neon.endpoint });
  const people = peopleOf({ pool, open, mend: async () => undefined });
  const registry = faultRegistry();
  const database = pgDatabase(workerPool, { prepares: true });
  const { deps } = executorDeps(database, registry, {
    log: ({ event, level }) => {
      if (event === "claim_failed") failures.claims++;
      if (event === "attempt" && level === "error") failures.lost++;
    },
  });
  const stop = new AbortController();
  const worker = runWorker(deps, {
    queues: registry.queues(),
    heart: new Heart(deps),
    wakeUp: new Latch(),
    stop: stop.signal,
    graceMs: 20_000,
    pollMs: 50,
  });
  let isOver = false;
  const ticking = (async () => {
    while (!isOver) {
      const ticks = await people.tick();
      failures.ticks += ticks.flatMap(({ results }) => results).filter(({ ok }) => !ok).length;
    }
  })();
  const senders = callbacks.map(async (id, i) => {
    await sleep((i * LOAD_MS) / CALLS);
    return i % 3 === 0
      ? people.call(id, "fail", { error: "declined" }, 2)
      : people.deliver(`d-${i}`, { callback: id, does: "complete", payload: { i } }, 2);
  });
  const [answers] = await Promise.all([Promise.all(senders), during()]);
  isOver = true;
  await ticking;
  stop.abort();
  await worker;
  await people.settled();
  // Once at the least: a kill may have been in the way of retention and of fires in every tick so far, and nothing left to do tells of them.
  for (let ticks = 0; ticks === 0 || ((await leftToDo(pool)) > 0 && ticks < 10); ticks++) {
    await passTime(pool);
    await people.tick();
  }
  return { state: await endState(pool), answers, failures };
}

test("Postgres killed and started again, three times under load: everything ends as without it", async () => {
  const expected = await work(async () => undefined);
  expect(expected.failures).toEqual({ claims: 0, ticks: 0, lost: 0 });
  const { state, answers, failures } = await work(async () => {
    for (let times = 0; times < 3; times++) {
      await sleep(300);
      await restart();
    }
  });
  expect(state).toEqual(expected.state);
  expect(answers).toEqual(expected.answers);
  // It was in the middle of their work.
  expect(failures.ticks).toBeGreaterThan(0);
  expect(failures.claims).toBeGreaterThan(0);
}, 90_000);
