import { setTimeout as sleep } from "node:timers/promises";
import type { Fault } from "../../scripts/lib/neon-journal.ts";
import { DatabaseError } from "../../src/shared/db/errors.ts";
import type { Database, Statement } from "../../src/shared/db/port.ts";

/**
 * What goes wrong with one call of the port:
 *
 * - `before`: it never gets there; `after`: it commits, and the answer is lost
 * - `hang`: it commits, and the time-out comes instead of the answer; `late`: the time-out comes, and then it runs and commits
 * - `slow`: nothing but time is lost
 * - `server_error`: Postgres rolled it back, and says that it may be tried again
 * - `mid_batch`: Postgres ends the connection in the middle of the batch; of a single statement, before it
 */
export const FAULTS = ["before", "after", "hang", "late", "slow", "server_error", "mid_batch"] as const;
export type FaultName = (typeof FAULTS)[number];

/** Says what goes wrong with a call, known by the text of its last statement; `undefined`: nothing does. */
export type FaultPlan = (text: string) => FaultName | undefined;

/** Milliseconds after which a client gives a call up. */
export const FAULT_TIMEOUT_MS = 200;
/** Milliseconds after which nothing that was given up is still to run. */
export const LATE_MS = 2 * FAULT_TIMEOUT_MS;
const SLOW_MS = 40;

/** Numbers from 0 to 1, the same for each seed (mulberry32). */
export function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** So many calls of a statement that went wrong get through then: whoever repeats it pauses for longer each time, up to ten seconds. */
const CALM = 3;

/** A plan in which that share of the calls goes wrong, in one of those ways. Counts what it planned. */
export function faultPlan(seed: number, faults: readonly FaultName[], share: number) {
  const random = seeded(seed);
  const planned: FaultName[] = [];
  const calm = new Map<string, number>();
  const plan: FaultPlan = (text) => {
    const left = calm.get(text) ?? 0;
    const fault = left === 0 && random() < share ? faults[Math.floor(random() * faults.length)] : undefined;
    calm.set(text, fault === undefined ? Math.max(0, left - 1) : CALM);
    if (fault !== undefined) planned.push(fault);
    return fault;
  };
  return { plan, planned };
}

const END_CONNECTION: Statement<void> = {
  text: "SELECT pg_terminate_backend(pg_backend_pid())",
  values: [],
  decode: () => undefined,
};

/** A database whose calls go wrong as planned. What it throws is what the adapters make of the like. */
export function faultyDatabase(base: Database, plan: FaultPlan): Database {
  async function run<R>(
    { text = "" }: Partial<Statement<unknown>>,
    call: () => Promise<R>,
    endInMiddle: () => Promise<unknown>,
  ): Promise<R> {
    const fault = plan(text);
    switch (fault) {
      case undefined:
        return call();
      case "slow":
        await sleep(SLOW_MS);
        return call();
      case "server_error":
        throw new DatabaseError("contended", "40001");
      case "mid_batch":
        await endInMiddle();
        throw new Error("a batch went on after its connection was ended");
      case "late":
        // Nobody waits for it any more, nor hears of its errors.
        void sleep(LATE_MS - FAULT_TIMEOUT_MS / 2)
          .then(call)
          .catch(() => undefined);
        await sleep(FAULT_TIMEOUT_MS);
        break;
      case "after":
        await call();
        break;
      case "hang":
        await Promise.all([call(), sleep(FAULT_TIMEOUT_MS)]);
        break;
      case "before":
    }
    throw new DatabaseError("unavailable", null);
  }
  return {
    query: (statement) =>
      run(
        statement,
        () => base.query(statement),
        () => base.query(END_CONNECTION),
      ),
    batch: (statements) => {
      const middle = Math.ceil(statements.length / 2);
      const broken = [...statements.slice(0, middle), END_CONNECTION, ...statements.slice(middle)];
      return run(
        statements.at(-1) ?? {},
        () => base.batch(statements),
        () => base.batch(broken),
      );
    },
  };
}

/** The same faults at the development server, and those that only an answer over HTTP can have. */
export function httpFault(fault: FaultName, chance: number, statements: number): Fault {
  switch (fault) {
    case "before":
      return "cut-before";
    case "after":
      return chance < 0.5 ? "cut-after" : "truncate";
    case "hang":
      return { hangMs: LATE_MS };
    case "late":
      return { delayMs: LATE_MS - FAULT_TIMEOUT_MS / 2 };
    case "slow":
      return { hangMs: SLOW_MS };
    case "server_error":
      return chance < 0.5 ? { status: 500 } : { status: 502, text: "<html>Bad Gateway</html>" };
    case "mid_batch":
      return { endBefore: Math.floor(statements / 2) };
  }
}

/**
 * The database of a process that is killed at its n-th call (from 1 on): the statement doesn't run, or it commits and nobody hears of it.
 * From then on nothing reaches the database any more.
 */
export function mortalDatabase(base: Database, diesAt: number, how: "not run" | "committed") {
  let calls = 0;
  async function run<R>(call: () => Promise<R>): Promise<R> {
    calls++;
    if (calls < diesAt) return call();
    if (calls === diesAt && how === "committed") await call();
    // No DatabaseError: whoever could deal with one mustn't try, as a dead process doesn't.
    throw new Error("the process is dead");
  }
  const database: Database = {
    query: (statement) => run(() => base.query(statement)),
    batch: (statements) => run(() => base.batch(statements)),
  };
  return { database, died: () => calls >= diesAt };
}
