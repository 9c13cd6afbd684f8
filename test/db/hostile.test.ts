import v8 from "node:v8";
import vm from "node:vm";
import fc from "fast-check";
import type pg from "pg";
import { afterAll, beforeAll, expect, test } from "vitest";
import { createApp } from "../../src/ingress/app.ts";
import { pgDatabase } from "../../src/shared/db/pg.ts";
import type { LogEntry } from "../../src/shared/log.ts";
import { parseSources } from "../../src/shared/source-env.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { makeWaiting } from "../support/factory.ts";
import { hostileCallback } from "../support/hostile/callbacks.ts";
import { hostileElsewhere } from "../support/hostile/elsewhere.ts";
import { DOCUMENTED, DOCUMENTED_OF_DELIVERIES, judge, kindOf, leaksIn } from "../support/hostile/judge.ts";
import { malformedDelivery } from "../support/hostile/malformed.ts";
import { type Hostile, toRequest } from "../support/hostile/request.ts";
import { hostileRegistry, makeCallbacks, makeDeliveries } from "../support/hostile/stage.ts";
import { asking, bySignature, type Callbacks, JSON_HEADER, pathOf } from "../support/hostile/valid.ts";
import { hostileWebhook, LIMITED_ADDRESS, type Sent, signedWebhook } from "../support/hostile/webhooks.ts";
import { ingressDeps } from "../support/ingress.ts";
import { TEST_CALLBACK_SECRET } from "../support/secrets.ts";
import { SOURCE_SECRETS } from "../support/signed.ts";

const BATCH = 100;
const BATCHES = 220;
const MALFORMED_BATCHES = 10;
const MAX_GROWTH_BYTES = 8_000_000;
const OTHER_SECRETS = {
  STRIPE_WEBHOOK_SECRET: "whsec_another",
  GITHUB_WEBHOOK_SECRET: "another",
  CARRIER_WEBHOOK_SECRET: "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX",
  REPLICATE_WEBHOOK_SECRET: "whsec_BBECAwQFBgcICQoLDA0ODxAREhMUFRYX",
} as const satisfies Record<keyof typeof SOURCE_SECRETS, string>;

let db: TestDatabase;
let app: ReturnType<typeof createApp>;
let callbacks: Callbacks;
let deliveries: readonly Sent[];
let secrets: readonly string[];
const registry = hostileRegistry();
const sources = {
  "its secret": parseSources(SOURCE_SECRETS, registry.sources()),
  "another secret": parseSources(OTHER_SECRETS, registry.sources()),
};
const leaks = new Set<string>();

beforeAll(async () => {
  db = await createTestDatabase();
  const { password } = new URL(db.url);
  secrets = [
    db.url,
    db.name,
    TEST_CALLBACK_SECRET,
    ...Object.values(SOURCE_SECRETS),
    ...(password ? [password] : []),
  ];
  const log = (line: LogEntry) => {
    for (const leak of leaksIn(JSON.stringify(line), secrets)) leaks.add(`${leak}: ${JSON.stringify(line)}`);
  };
  const limiter = {
    limit: async ({ key }: { readonly key: string }) => ({ success: key !== LIMITED_ADDRESS }),
  };
  const env = {
    DATABASE_URL: db.workerUrl,
    AWA_CALLBACK_HMAC_SECRET: TEST_CALLBACK_SECRET,
    AWA_WEBHOOK_ADDRESS_LIMITER: limiter,
    ...SOURCE_SECRETS,
  };
  app = createApp(ingressDeps(env, { registry, log, database: () => pgDatabase(db.workerPool) }));
  callbacks = await makeCallbacks(db.pool, pgDatabase(db.workerPool));
  deliveries = await makeDeliveries(db.pool, callbacks);
  const states = [];
  for (const delivery of deliveries) states.push((await send(signedWebhook(delivery))).kind);
  expect(states.toSorted()).toEqual([
    ...["ignored", "ignored", "ignored", "late", "late", "parked", "parked", "parked", "parked"],
    ...["resolved", "resolved"],
  ]);
});
afterAll(() => db.drop());

const waitUntil = () => undefined;
const context = { waitUntil, passThroughOnException: waitUntil, props: {} };

async function send(hostile: Hostile) {
  const response = await app.fetch(await toRequest(hostile, sources), {}, context);
  const text = await response.text();
  const kind = hostile.method === "HEAD" ? "HEAD" : kindOf(text);
  return { status: response.status, headers: response.headers, text, kind };
}

/** Generates batches of requests and sends each at once. @param seed of a run that failed, to repeat it */
function sender(documented: Readonly<Record<string, number>>, seed = Date.now() % 1e9) {
  const byRoute: Record<string, Record<string, number>> = {};
  const tally = (route: string, said: string) => {
    byRoute[route] ??= {};
    byRoute[route][said] = (byRoute[route][said] ?? 0) + 1;
  };
  return {
    byRoute,
    count: (said: string) => Object.values(byRoute).reduce((sum, counts) => sum + (counts[said] ?? 0), 0),
    /** @returns those that were answered by 500 */
    async sendSome(requests: fc.Arbitrary<Hostile>, batch: number): Promise<readonly Hostile[]> {
      const failed: Hostile[] = [];
      const wrong: unknown[] = [];
      const sendOne = async (hostile: Hostile) => {
        const answer = await send(hostile);
        tally(hostile.route, `${answer.status} ${answer.kind}`);
        if (answer.status === 500) failed.push(hostile);
        const found = judge(hostile, answer, documented, secrets);
        if (found.length > 0) wrong.push({ seed, batch, found, hostile });
      };
      await Promise.all(fc.sample(requests, { numRuns: BATCH, seed: seed + batch }).map(sendOne));
      expect(wrong).toEqual([]);
      return failed;
    },
  };
}

/** Every row of every table, as a checksum. @param without tables, and the job, that are left out */
async function checksums(
  pool: pg.Pool,
  without: readonly string[] = [],
  job = "0",
): Promise<Record<string, string>> {
  const { rows: tables } = await pool.query<{ name: string }>(
    "SELECT tablename AS name FROM pg_tables WHERE schemaname = 'awa_edge'",
  );
  const sums = tables
    .filter(({ name }) => !without.includes(name))
    .map(
      ({ name }) => `(
        SELECT count(*) || ' ' || md5(coalesce(string_agg(t::text, chr(10) ORDER BY t::text), '')) FROM awa_edge."${name}" t
        WHERE coalesce(to_jsonb(t) ->> 'job_id', to_jsonb(t) ->> 'id') IS DISTINCT FROM $1
      ) AS "${name}"`,
    );
  const { rows } = await pool.query<Record<string, string>>(`SELECT ${sums.join(",")}`, [job]);
  return rows[0] ?? expect.fail("no sums");
}

v8.setFlagsFromString("--expose-gc");
const collectGarbage: unknown = vm.runInNewContext("gc");
function heapUsed(): number {
  if (typeof collectGarbage !== "function") throw new Error("the garbage can't be collected");
  collectGarbage();
  return process.memoryUsage().heapUsed;
}

test("22,000 hostile requests to every route: refused as documented, not a row changed, nothing told, memory steady", async () => {
  const { byRoute, count, sendSome } = sender(DOCUMENTED);
  const before = await checksums(db.pool);
  expect(Object.keys(before)).toContain("deliveries");
  const hostile = fc.oneof(
    { weight: 11, arbitrary: hostileCallback(callbacks) },
    { weight: 7, arbitrary: hostileWebhook(deliveries) },
    { weight: 2, arbitrary: hostileElsewhere() },
  );
  let early = 0;
  for (let batch = 0; batch < BATCHES; batch++) {
    if (batch === Math.floor(BATCHES / 3)) early = heapUsed();
    await sendSome(hostile, batch);
  }
  const grown = heapUsed() - early;
  expect(grown).toBeLessThan(MAX_GROWTH_BYTES);
  expect(await checksums(db.pool)).toEqual(before);
  expect([...leaks]).toEqual([]);
  for (const [code, status] of Object.entries(DOCUMENTED)) {
    expect(count(`${status} ${code}`), code).toBeGreaterThan(5);
  }
  console.log(`the heap grew by ${grown} bytes`);
  console.table(byRoute);
}, 180_000);

test("values that nobody means and that can be kept: the callback's own job is moved, nothing else, and it holds what was sent", async () => {
  const value = fc
    .jsonValue({ maxDepth: 4, stringUnit: "binary" })
    .filter((json) => !JSON.stringify(json).includes("\\u0000"));
  await fc.assert(
    fc.asyncProperty(
      fc.constantFrom("complete", "resume", "fail", "heartbeat"),
      value,
      async (action, payload) => {
        const { id, callbackId } = await makeWaiting(db.pool, { kind: "plain" });
        const others = await checksums(db.pool, [], id);
        const bodies = {
          complete: { payload },
          resume: { resume: true, payload },
          fail: { error: JSON.stringify(payload) },
          heartbeat: { timeout_seconds: Math.abs(JSON.stringify(payload).length ** 3.7) % 31_536_000 },
        };
        const route = action === "resume" ? "complete" : action;
        const content = JSON.stringify(bodies[action]);
        const request = { ...asking(route), path: pathOf(callbackId, route), content, answers: ["moved"] };
        const hostile = { ...request, headers: [...JSON_HEADER, ...bySignature(callbackId)] };
        const answer = await send(hostile);
        expect(answer).toMatchObject({ status: 200, kind: "moved" });
        const { rows } = await db.pool.query(
          "SELECT payload, error, timeout_at > now() - interval '1 minute' AS is_ahead FROM awa_edge.callbacks WHERE id = $1",
          [callbackId],
        );
        const kept = {
          complete: { payload },
          resume: { payload },
          fail: bodies.fail,
          heartbeat: { is_ahead: true },
        };
        // As JSON has it: without the sign of a zero.
        expect(rows[0]).toMatchObject(JSON.parse(JSON.stringify(kept[action])));
        expect(await checksums(db.pool, [], id)).toEqual(others);
      },
    ),
    { numRuns: 200 },
  );
  expect([...leaks]).toEqual([]);
}, 60_000);

test("1,000 deliveries that are genuine and malformed: recorded, each answered by 500 once at the most, and no job is touched", async () => {
  const { byRoute, count, sendSome } = sender(DOCUMENTED_OF_DELIVERIES);
  const before = await checksums(db.pool, ["deliveries"]);
  for (let batch = 0; batch < MALFORMED_BATCHES; batch++) {
    const again = await Promise.all((await sendSome(malformedDelivery(), batch)).map(send));
    // Another one of the same id may have come meanwhile, and been good enough.
    expect(again.filter(({ kind }) => kind !== "failed" && kind !== "duplicate")).toEqual([]);
  }
  expect(await checksums(db.pool, ["deliveries"])).toEqual(before);
  for (const said of ["500 delivery_failed", "200 failed", "200 ignored", "200 parked", "200 duplicate"]) {
    expect(count(said), said).toBeGreaterThan(5);
  }
  expect([...leaks]).toEqual([]);
  console.table(byRoute);
}, 60_000);
