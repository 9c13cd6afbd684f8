import pg from "pg";
import { expect, onTestFinished, test } from "vitest";
import { pgDatabase } from "../../src/client.ts";
import type { Statement } from "../../src/shared/db/port.ts";
import { createTestDatabase } from "../support/database.ts";

const count = (a: number): Statement<number> => ({
  text: "SELECT $1::int + 1 AS n",
  values: [a],
  decode: ([row]) => Number(row?.n),
});
const names: Statement<readonly unknown[]> = {
  text: "SELECT name FROM pg_prepared_statements ORDER BY name",
  values: [],
  decode: (rows) => rows.map((row) => row.name),
};

test.each([
  [true, ["awa_edge_1", "awa_edge_2"]],
  [false, []],
])(
  "prepares: %s: the same results; each text is planned once a connection, or each time",
  async (prepares, expected) => {
    const db = await createTestDatabase();
    onTestFinished(() => db.drop());
    const pool = new pg.Pool({ connectionString: db.url, max: 1 });
    onTestFinished(() => pool.end());
    const database = pgDatabase(pool, { prepares });
    expect([await database.query(count(1)), await database.query(count(2))]).toEqual([2, 3]);
    expect(await database.batch([count(3), names])).toEqual([4, expected]);
    await expect(database.query({ ...count(1), text: "SELECT $1::int / 0" })).rejects.toMatchObject({
      sqlState: "22012",
    });
    expect(await database.query(count(4))).toBe(5);
  },
);
