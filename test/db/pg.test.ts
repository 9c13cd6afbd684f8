import { connect, createServer, type Socket } from "node:net";
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
const ASLEEP = "FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'";

test.each([
  [true, ["awa_edge_1", "awa_edge_2"]],
  [false, []],
])(
  "prepares: %s: the same results; each text is planned once a connection, or each time",
  async (prepares, expected) => {
    const db = await createTestDatabase();
    onTestFinished(() => db.drop());
    const pool = new pg.Pool({ connectionString: db.url, max: 1 });
    // Its end is told before its connections are closed, and the database is dropped with whoever is connected.
    pool.on("error", () => undefined);
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

test("prepares: two adapters on one pool → each gets its own statements' results", async () => {
  const db = await createTestDatabase();
  onTestFinished(() => db.drop());
  const pool = new pg.Pool({ connectionString: db.url, max: 1 });
  pool.on("error", () => undefined);
  onTestFinished(() => pool.end());
  const [one, other] = [pgDatabase(pool, { prepares: true }), pgDatabase(pool, { prepares: true })];
  expect(await one.query(count(1))).toBe(2);
  expect(await other.query(names)).toEqual(["awa_edge_1", "awa_edge_2"]);
  expect(await one.query(names)).toEqual(["awa_edge_1", "awa_edge_2"]);
});

test("a connection that ends under a statement, or a batch: unavailable, the process goes on, the next takes another one", async () => {
  const uncaught: unknown[] = [];
  const onUncaught = (thrown: unknown) => uncaught.push(thrown);
  process.on("uncaughtException", onUncaught);
  onTestFinished(() => void process.off("uncaughtException", onUncaught));
  const db = await createTestDatabase();
  onTestFinished(() => db.drop());
  // Closed on the way, without a word of Postgres's, as where it is killed.
  const way = createServer((near) => {
    const { hostname, port } = new URL(db.url);
    const far = connect(Number(port), hostname);
    near.on("error", () => undefined).on("close", () => far.destroy());
    far.on("error", () => undefined).on("close", () => near.destroy());
    near.pipe(far).pipe(near);
    broken.push(near);
  });
  const broken: Socket[] = [];
  await new Promise<void>((resolve) => way.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => void way.close());
  const address = way.address();
  const url = new URL(db.url);
  url.port = String(typeof address === "object" && address !== null ? address.port : expect.fail("no port"));
  const pool = new pg.Pool({ connectionString: url.href, max: 1 });
  pool.on("error", () => undefined);
  onTestFinished(() => pool.end());
  const database = pgDatabase(pool);
  const sleep = { ...count(1), text: "SELECT $1::int AS n FROM pg_sleep(60)" };
  for (const run of [() => database.query(sleep), () => database.batch([count(1), sleep])]) {
    const ran = run();
    await expect.poll(async () => (await db.pool.query(`SELECT ${ASLEEP}`)).rowCount).toBe(1);
    for (const socket of broken.splice(0)) socket.destroy();
    await expect(ran).rejects.toMatchObject({ kind: "unavailable", sqlState: null });
    expect(await database.query(count(2))).toBe(3);
    // Postgres itself notices a client that is gone when it has something to tell it.
    await db.pool.query(`SELECT pg_terminate_backend(pid) ${ASLEEP}`);
    await expect.poll(async () => (await db.pool.query(`SELECT ${ASLEEP}`)).rowCount).toBe(0);
  }
  expect(uncaught).toEqual([]);
});
