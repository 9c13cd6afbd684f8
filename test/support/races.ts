import type pg from "pg";
import { onTestFinished } from "vitest";
import type { Database, Statement } from "../../src/shared/db/port.ts";

/**
 * A second connection that holds a transaction open: `run` sends a statement in it, `commit` ends it. For races that have to
 * happen in one order.
 */
export async function holdTransaction(pool: pg.Pool) {
  const client = await pool.connect();
  let isHeld = true;
  // Where the test fails, whoever waits for this transaction must not wait for ever.
  onTestFinished(() => {
    if (isHeld) client.release(true);
  });
  await client.query("BEGIN");
  return {
    async run<R>(statement: Statement<R>): Promise<R> {
      return statement.decode((await client.query(statement.text, [...statement.values])).rows);
    },
    query: (text: string, values: unknown[] = []) => client.query(text, values),
    async commit(): Promise<void> {
      await client.query("COMMIT");
      isHeld = false;
      client.release();
    },
  };
}

/** Resolves when some other connection of this database waits for a lock. */
export async function untilBlocked(pool: pg.Pool): Promise<void> {
  for (let tries = 0; tries < 500; tries++) {
    const { rowCount } = await pool.query(
      "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
    );
    if (rowCount !== null && rowCount > 0) return;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  throw new Error("nothing came to wait for a lock");
}

/** A database that runs `before` once, ahead of the first statement that `isTheOne`. */
export function interrupt(
  database: Database,
  isTheOne: (text: string) => boolean,
  before: () => Promise<unknown>,
): Database {
  let done = false;
  return {
    async query(statement) {
      if (!done && isTheOne(statement.text)) {
        done = true;
        await before();
      }
      return database.query(statement);
    },
    batch: (statements) => database.batch(statements),
  };
}
