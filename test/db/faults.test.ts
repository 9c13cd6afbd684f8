import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, type TestContext, test } from "vitest";
import { type NeonServer, startNeonServer } from "../../scripts/lib/neon-server.ts";
import { neonDatabase } from "../../src/shared/db/neon.ts";
import { pgDatabase } from "../../src/shared/db/pg.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { endState } from "../support/end-state.ts";
import { peopleOf, play, playFaultFree } from "../support/fault-scenario.ts";
import {
  FAULT_TIMEOUT_MS,
  FAULTS,
  type FaultName,
  faultPlan,
  faultyDatabase,
  httpFault,
  LATE_MS,
  seeded,
} from "../support/faulty-database.ts";

// The whole product, in this process, on a database that fails: what comes of it must be what comes of it on one that doesn't.

let neon: NeonServer;
let expected: Awaited<ReturnType<typeof endState>>;
let expectedAnswers: unknown;

beforeAll(async () => {
  const db = await createTestDatabase();
  neon = await startNeonServer({ upstream: db.url });
  expectedAnswers = await playFaultFree(db.pool, db.workerPool);
  expected = await endState(db.pool);
  await db.drop();
});
afterAll(() => neon.close());

async function freshDatabase({ onTestFinished }: Pick<TestContext, "onTestFinished">): Promise<TestDatabase> {
  const db = await createTestDatabase();
  onTestFinished(() => db.drop());
  return db;
}

/** A call that its client has given up may still run. */
function untilNothingIsLate(faults: readonly FaultName[]): Promise<unknown> {
  return sleep(faults.includes("late") || faults.includes("hang") ? LATE_MS : 0);
}

test("the scenario has a bit of everything, and all of it comes to an end", () => {
  const { jobs, deliveries, outbox, schedules } = expected;
  const sorts = (values: readonly unknown[]) => [...new Set(values)].sort();
  expect(sorts(jobs.map(({ state }) => state))).toEqual([
    "available",
    "cancelled",
    "completed",
    "failed",
    "retryable",
    "waiting_external",
  ]);
  expect(sorts(deliveries.map(({ state }) => state))).toEqual(["ignored", "late", "resolved"]);
  expect(sorts(jobs.flatMap(({ followUps }) => Object.keys(followUps)))).toEqual([
    "cancelled after available",
    "completed after available",
    "completed once available",
    "exhausted after available",
    "rescued after deadline_exceeded available",
    "rescued after expired_callback available",
    "rescued after stale_heartbeat available",
    "retried after available",
    "waiting_for_callback after available",
  ]);
  expect([jobs.length, deliveries.length, outbox, schedules.length]).toEqual([43, 19, [], 1]);
});

const RUNS: readonly [string, readonly FaultName[], number][] = [
  ["requests and answers that are lost", ["before", "after"], 1],
  ["answers that are late, slow or never come", ["hang", "late", "slow"], 2],
  ["errors of the server, and in the middle of a batch", ["server_error", "mid_batch"], 3],
  ["all of them", FAULTS, 4],
];
const SHARE = 0.25;
/** On a busy machine; a quiet one needs two or three seconds for each. */
const TIMEOUT_MS = 60_000;

describe("the Neon driver against a development server with faults", () => {
  test.for(RUNS)(
    "%s: the end is that without faults",
    { timeout: TIMEOUT_MS },
    async ([, faults, seed], context) => {
      const db = await freshDatabase(context);
      const { plan, planned } = faultPlan(seed, faults, SHARE);
      const chance = seeded(seed);
      neon.fault(db.name, ({ statements }) => {
        const fault = plan(statements.at(-1)?.text ?? "");
        return fault === undefined ? undefined : httpFault(fault, chance(), statements.length);
      });
      const open = () =>
        neonDatabase({
          connectionString: db.workerUrl,
          fetchEndpoint: neon.endpoint,
          timeoutMs: FAULT_TIMEOUT_MS,
        });
      const mend = () => {
        neon.fault(db.name);
        return untilNothingIsLate(faults);
      };
      const answers = await play({ pool: db.pool, open, mend });
      expect(await endState(db.pool)).toEqual(expected);
      expect(answers).toEqual(expectedAnswers);
      expect(planned.length).toBeGreaterThan(20);
    },
  );
});

describe("the pg adapter behind a port with faults", () => {
  test.for(RUNS.slice(-1))(
    "%s: the end is that without faults",
    { timeout: TIMEOUT_MS },
    async ([, faults, seed], context) => {
      const db = await freshDatabase(context);
      const { plan, planned } = faultPlan(seed, faults, SHARE);
      let isMended = false;
      const database = faultyDatabase(pgDatabase(db.workerPool), (text) =>
        isMended ? undefined : plan(text),
      );
      const mend = () => {
        isMended = true;
        return untilNothingIsLate(faults);
      };
      const answers = await play({ pool: db.pool, open: () => database, mend });
      expect(await endState(db.pool)).toEqual(expected);
      expect(answers).toEqual(expectedAnswers);
      expect(planned.length).toBeGreaterThan(20);
    },
  );
});

test("a batch that ends in its middle behind the port: nothing of it stays, and the next one goes through", async (context) => {
  const db = await freshDatabase(context);
  let isBroken = true;
  const database = faultyDatabase(pgDatabase(db.workerPool), () => (isBroken ? "mid_batch" : undefined));
  const insert = (queue: string) => ({
    text: "INSERT INTO awa_edge.queues (queue) VALUES ($1)",
    values: [queue],
    decode: () => undefined,
  });
  const batch = () => database.batch([insert("a"), insert("b"), insert("c")]);
  const queues = async () => (await db.pool.query("SELECT queue FROM awa_edge.queues ORDER BY 1")).rows;
  await expect(batch()).rejects.toMatchObject({ kind: "unavailable", sqlState: "57P01" });
  expect(await queues()).toEqual([]);
  isBroken = false;
  await batch();
  expect(await queues()).toEqual([{ queue: "a" }, { queue: "b" }, { queue: "c" }]);
});

test("Postgres goes away before each statement of a wait that an event came early for: parked and completed in the end, once", async (context) => {
  const db = await freshDatabase(context);
  const open = () =>
    neonDatabase({ connectionString: db.workerUrl, fetchEndpoint: neon.endpoint, timeoutMs: TIMEOUT_MS });
  const { deliver, park } = peopleOf({ pool: db.pool, open, mend: async () => undefined });
  // The lock, the registration, the move, and what is settled beside it.
  const STATEMENTS = 4;
  for (let n = 0; n < STATEMENTS; n++) {
    await deliver(`early-${n}`, { key: `early-${n}`, does: "complete", payload: n });
    let ended = 0;
    neon.fault(db.name, ({ statements }) =>
      statements.length === STATEMENTS && ended++ === 0 ? { endBefore: n } : undefined,
    );
    await park(n, `early-${n}`);
    neon.fault(db.name);
    expect(ended).toBe(2);
  }
  const { jobs, deliveries } = await endState(db.pool);
  const followUps = {
    "waiting_for_callback after available": 1,
    "completed after available": 1,
    "completed once available": 1,
  };
  expect(jobs).toMatchObject([0, 1, 2, 3].map((n) => ({ n, state: "completed", result: n, followUps })));
  expect(deliveries).toMatchObject([0, 1, 2, 3].map((n) => ({ n, state: "resolved" })));
});
