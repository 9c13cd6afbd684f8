import { connect, createServer, type Socket } from "node:net";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { listen } from "../../scripts/lib/listen.ts";
import { openDatabase } from "../../scripts/lib/worker-process.ts";
import { endsWithin } from "../../src/executor/sleep.ts";
import { readSchemaVersion, SCHEMA_VERSION } from "../../src/shared/db/statements/read-schema-version.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";

// Connections that go silent without being closed, as where a machine or a route between is gone.

let db: TestDatabase;
beforeAll(async () => {
  db = await createTestDatabase();
});
afterAll(() => db.drop());

/** A way to the database that can be cut: what goes through the connections of then is lost, and nobody is told. */
async function cuttableWay() {
  const sockets: Socket[] = [];
  const server = new URL(db.url);
  let epoch = 0;
  // Half open: an end that is lost mustn't be answered by the proxy itself.
  const proxy = createServer({ allowHalfOpen: true }, (near) => {
    const far = connect({ port: Number(server.port), host: server.hostname, allowHalfOpen: true });
    const made = epoch;
    for (const [from, to] of [
      [near, far],
      [far, near],
    ] as const) {
      sockets.push(from);
      from.on("error", () => undefined);
      from.on("data", (bytes) => {
        if (made === epoch) to.write(bytes);
      });
      from.on("end", () => {
        if (made === epoch) to.end();
      });
    }
  });
  await new Promise<void>((resolve) => proxy.listen(0, "127.0.0.1", resolve));
  onTestFinished(async () => {
    for (const socket of sockets) socket.destroy();
    await new Promise((resolve) => proxy.close(resolve));
  });
  const address = proxy.address();
  const url = new URL(db.workerUrl);
  url.host = `127.0.0.1:${typeof address === "object" && address !== null ? address.port : expect.fail("no port")}`;
  return { url: url.href, cut: () => epoch++ };
}

test("a statement whose connection goes silent fails in time, and the next one takes another connection", async () => {
  const { url, cut } = await cuttableWay();
  const stops: (() => Promise<void> | void)[] = [];
  const scope = { defer: (stop: () => Promise<void> | void) => stops.push(stop) };
  const database = await openDatabase(scope, { connectionString: url }, 1_000);
  cut();
  await expect(database.query(readSchemaVersion())).rejects.toMatchObject({ kind: "unavailable" });
  expect(await database.query(readSchemaVersion())).toBe(SCHEMA_VERSION);
  cut();
  for (const stop of stops) expect(await endsWithin(Promise.resolve(stop()), 3_000)).toBe(true);
});

test("whoever listens can stop though its connection has gone silent", async () => {
  const { url, cut } = await cuttableWay();
  const heard: string[] = [];
  const stop = listen(
    { connectionString: url },
    {
      onWakeUp: (queue) => heard.push(queue),
      onEnded: () => undefined,
      onReconnect: () => undefined,
      onLost: () => undefined,
    },
  );
  await expect
    .poll(async () => {
      await db.pool.query("SELECT pg_notify('awa_edge', 'default')");
      return heard;
    })
    .toContain("default");
  cut();
  expect(await endsWithin(stop(), 3_000)).toBe(true);
});
