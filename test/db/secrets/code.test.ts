import { createServer } from "node:http";
import * as v from "valibot";
import { beforeEach, describe, expect, test } from "vitest";
import { createClient } from "../../../src/client.ts";
import { httpFunction } from "../../../src/executor/http-function.ts";
import { createApp } from "../../../src/ingress/app.ts";
import { defineRegistry } from "../../../src/shared/registry/define.ts";
import { complete } from "../../../src/shared/registry/handler.ts";
import { resolve } from "../../../src/shared/registry/source.ts";
import { ok } from "../../../src/shared/result.ts";
import { signCallbackId } from "../../../src/shared/signature.ts";
import { accept, type WebhookScheme } from "../../../src/shared/webhooks/scheme.ts";
import { canary, shownIn } from "../../support/canaries.ts";
import { useTestDatabase } from "../../support/database.ts";
import { emptyTables } from "../../support/empty-tables.ts";
import { run } from "../../support/executor.ts";
import { makeWaiting } from "../../support/factory.ts";
import { ingressDeps } from "../../support/ingress.ts";
import { everythingStored, watchOutside } from "../../support/outside.ts";
import { TEST_CALLBACK_SECRET } from "../../support/secrets.ts";
import { tick } from "../../support/tick.ts";

// Whatever the application's own code throws, and wherever: nothing of what it says in the log or an answer. What it says is kept with the job
// or the delivery that it failed; nothing that is thrown keeps the others from going on.

const { db, database } = useTestDatabase();
const outside = watchOutside();
beforeEach(async () => {
  await emptyTables(db.pool);
});

const said = canary("thrown");
const argument = canary("argument");
const key = canary("key");
const CANARIES = [
  { what: "what was thrown", text: said },
  { what: "an argument", text: argument },
  { what: "an argument's key", text: key },
];

class Named extends Error {
  override readonly name = `no ${said}`;
}
/** What code may throw: errors that quote, errors whose names do, no errors at all, and what can't even be made a text. */
const THROWN: Readonly<Record<string, () => unknown>> = {
  "an error": () => new RangeError(`can't take ${said}`),
  "an error with a name of its own": () => new Named(said),
  "a text": () => said,
  "an object without a text": () => Object.create(null, { said: { value: said } }),
  "an error whose fields throw": () => {
    const fail = () => {
      throw new Error(said);
    };
    return Object.defineProperties(new Error(), { name: { get: fail }, message: { get: fail } });
  },
};

/** A registry whose code throws this, at each place that there is for it; in schemas, once `isOn` says so. */
function throwing(thrown: () => unknown, isOn: () => boolean = () => true) {
  const raise = (): never => {
    throw thrown();
  };
  const registry = defineRegistry({
    in_handler: v.unknown(),
    in_hook: v.unknown(),
    in_follow_up: v.unknown(),
    in_schema: v.pipe(
      v.unknown(),
      v.check(() => (isOn() ? raise() : true)),
    ),
    unfit: v.record(v.string(), v.number()),
    with_unfit_follow_up: v.unknown(),
    fine: v.unknown(),
    after: v.unknown(),
  });
  const { enqueue } = registry;
  registry.queue("default").handle("in_handler", raise).onEvent("in_hook", raise).onEvent("unfit", raise);
  for (const kind of [
    "in_hook",
    "in_follow_up",
    "in_schema",
    "unfit",
    "with_unfit_follow_up",
    "fine",
  ] as const)
    registry.handle(kind, () => complete());
  for (const on of ["onCompletedEnqueue", "onRescuedEnqueue"] as const) {
    registry[on]("in_follow_up", raise);
    registry[on]("in_schema", () => enqueue("after", {}));
    registry[on]("unfit", () => enqueue("after", {}));
    registry[on]("with_unfit_follow_up", () => enqueue("unfit", JSON.parse(`{"${key}":"${argument}"}`)));
    registry[on]("fine", () => enqueue("after", {}));
  }
  return registry;
}
const KINDS = ["in_handler", "in_hook", "in_follow_up", "in_schema", "unfit", "with_unfit_follow_up", "fine"];
const ARGS = { [key]: argument };
const statesOf = async () => {
  const { rows } = await db.pool.query<{ kind: string; state: string }>(
    "SELECT kind, state FROM awa_edge.jobs WHERE trigger_job_id IS NULL",
  );
  return Object.fromEntries(rows.map(({ kind, state }) => [kind, state]));
};
/** What is recorded of failures, by people to be read. */
const errorsIn = async (kind: string) => {
  const { rows } = await db.pool.query<{ error: string }>(
    `SELECT e->>'error' AS error FROM awa_edge.jobs j, jsonb_array_elements(errors) e WHERE kind = $1
     UNION ALL SELECT last_error FROM awa_edge.rescue_followups WHERE kind = $1 AND last_error IS NOT NULL`,
    [kind],
  );
  return rows.map(({ error }) => error).join("\n");
};

describe.each(Object.entries(THROWN))("%s", (what, thrown) => {
  /** What can't be made a text is called by its type, or its name. */
  const isQuotable = !["an object without a text", "an error whose fields throw"].includes(what);

  test("in what runs jobs: each fails for itself, with it in its record", async () => {
    await db.pool.query(
      "INSERT INTO awa_edge.jobs (kind, args) SELECT kind, $2::jsonb FROM unnest($1::text[]) AS kind",
      [KINDS, JSON.stringify(ARGS)],
    );
    const { lines } = await run(database, throwing(thrown), { log: outside.log });
    expect(lines).toEqual([]);
    expect(await statesOf()).toEqual({
      in_handler: "retryable",
      in_hook: "completed",
      in_follow_up: "retryable",
      in_schema: "failed",
      unfit: "failed",
      with_unfit_follow_up: "retryable",
      fine: "completed",
    });
    for (const kind of ["in_handler", "in_follow_up"])
      expect((await errorsIn(kind)).includes(said)).toBe(isQuotable);
    expect(await errorsIn("with_unfit_follow_up")).toContain(`at ${key}`);
    expect(outside.whole()).toContain("hook_failed");
    expect(outside.leaks(CANARIES)).toEqual([]);
  });

  test("in a rescue: it stands, the others' follow-ups are there, and its own is tried again", async () => {
    for (const kind of KINDS)
      await makeWaiting(db.pool, { kind, args: ARGS, timeoutAt: "now() - interval '1 s'" });
    let isOn = false;
    const registry = throwing(thrown, () => isOn);
    registry.periodic("fails", "* * * * *", registry.enqueue("in_schema", {}));
    const age = "UPDATE awa_edge.schedules SET starts_after = now() - interval '1 hour'";
    await tick(database, registry, { runsJobs: false, log: outside.log });
    await db.pool.query(age);
    isOn = true;
    for (const kind of KINDS)
      await makeWaiting(db.pool, { kind, args: ARGS, timeoutAt: "now() - interval '1 s'" });
    const { results } = await tick(database, registry, { runsJobs: false, log: outside.log });
    expect(results.filter(({ ok }) => !ok)).toEqual([]);
    const { rows } = await db.pool.query(
      `SELECT (SELECT count(*)::int FROM awa_edge.jobs j JOIN awa_edge.jobs t ON t.id = j.trigger_job_id WHERE t.kind = 'fine') AS fine,
         (SELECT array_agg(DISTINCT kind ORDER BY kind) FROM awa_edge.rescue_followups) AS left`,
    );
    expect(rows).toEqual([{ fine: 2, left: ["in_follow_up", "in_schema", "unfit", "with_unfit_follow_up"] }]);
    expect((await errorsIn("in_follow_up")).includes(said)).toBe(isQuotable);
    expect(outside.whole()).toContain("periodic_job_failed");
    expect(outside.leaks(CANARIES)).toEqual([]);
  });

  test("in the ingress: an answer of ours, and a line of the log", async () => {
    const registry = throwing(thrown);
    const raise = (): never => {
      throw thrown();
    };
    const scheme = (changed: Partial<WebhookScheme> = {}): WebhookScheme => ({
      name: "trusting",
      secrets: "none",
      variables: [],
      deliveryId: () => "1",
      ready: () => ok({ verify: async (request) => ok(accept(request)) }),
      ...changed,
    });
    const source = { scheme: scheme(), payload: v.unknown(), meaning: () => resolve(1) };
    registry
      .webhook("verify", { ...source, scheme: scheme({ ready: () => ok({ verify: raise }) }) })
      .webhook("delivery-id", { ...source, scheme: scheme({ deliveryId: raise }) })
      .webhook("meaning", { ...source, meaning: raise })
      .webhook("callback", { ...source, callback: raise })
      .webhook("schema", { ...source, payload: v.pipe(v.unknown(), v.check(raise)) });
    const deferred: Promise<unknown>[] = [];
    const context = {
      waitUntil: (work: Promise<unknown>) => deferred.push(work),
      passThroughOnException: () => undefined,
      props: {},
    };
    const app = createApp(
      ingressDeps(
        {
          DATABASE_URL: "postgres://me:password@localhost/not_used",
          AWA_CALLBACK_HMAC_SECRET: TEST_CALLBACK_SECRET,
        },
        { registry, log: outside.log, database: () => database },
      ),
    );
    const post = async (path: string, headers: Record<string, string> = {}) => {
      const answer = await outside.answer(
        await app.request(path, { method: "POST", headers, body: "{}" }, {}, context),
      );
      return `${answer.status} ${JSON.parse(answer.text).code ?? ""}`;
    };
    const answers: Record<string, string> = {};
    for (const kind of KINDS) {
      const { callbackId } = await makeWaiting(db.pool, { kind, args: ARGS });
      answers[kind] = await post(`/api/callbacks/${callbackId}/complete`, {
        "Content-Type": "application/json",
        "X-Awa-Signature": signCallbackId(TEST_CALLBACK_SECRET, callbackId),
      });
    }
    for (const { name } of registry.sources()) answers[name] = await post(`/webhooks/${name}`);
    await Promise.all(deferred);
    expect(answers).toEqual({
      in_handler: "200 ",
      in_hook: "200 ",
      in_follow_up: "500 follow_up_failed",
      in_schema: "500 follow_up_failed",
      unfit: "500 follow_up_failed",
      with_unfit_follow_up: "500 follow_up_failed",
      fine: "200 ",
      verify: "500 internal_error",
      "delivery-id": "500 internal_error",
      meaning: "500 delivery_failed",
      callback: "500 delivery_failed",
      schema: "500 delivery_failed",
    });
    expect(outside.leaks(CANARIES)).toEqual([]);
    expect(shownIn(await everythingStored(db.pool), CANARIES.slice(0, 1)).length > 0).toBe(isQuotable);
  });
});

test("a function that repeats the request in its error, as error pages do: neither URL nor headers in the log or the record", async () => {
  const server = createServer(async (request, response) => {
    const { method, url, headers } = request;
    for await (const _ of request);
    response.writeHead(500).end(`${method} http://${headers.host}${url} ${JSON.stringify(headers)} it broke`);
  });
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  try {
    const address = server.address();
    const port = typeof address === "object" && address !== null ? address.port : expect.fail("no port");
    const [token, inUrl, inPath] = [canary("token"), canary("url"), canary("path")];
    const callbacks = {
      secrets: [TEST_CALLBACK_SECRET],
      pathPrefix: "/api/callbacks",
      baseUrl: "https://x.example",
    };
    const registry = defineRegistry({ served: v.unknown(), unreachable: v.unknown(), misused: v.unknown() });
    const served = (url: string) => httpFunction({ url, headers: { Authorization: `Bearer ${token}` } });
    registry
      .queue("default")
      .handle("served", served(`http://127.0.0.1:${port}/${inPath}?token=${inUrl}`))
      .handle("unreachable", served(`http://127.0.0.1:1/${inPath}?token=${inUrl}`))
      .handle(
        "misused",
        httpFunction({ url: () => `ftp://${inUrl}/`, headers: () => ({ Authorization: `${token}\n` }) }),
      );
    const client = createClient({ database, registry });
    for (const kind of ["served", "unreachable", "misused"] as const) await client.enqueue(kind, {});
    await run(database, registry, { log: outside.log, callbacks });
    expect(await errorsIn("served")).toMatch(/^function returned 500: POST .*it broke$/);
    expect(await errorsIn("unreachable")).toMatch(/^function unreachable/);
    const { rows } = await db.pool.query<{ id: string }>("SELECT id FROM awa_edge.callbacks");
    expect(rows).toHaveLength(2);
    const secrets = [
      token,
      inUrl,
      inPath,
      ...rows.map(({ id }) => signCallbackId(TEST_CALLBACK_SECRET, id)),
    ].map((text) => ({ what: "a secret", text }));
    expect(outside.leaks(secrets)).toEqual([]);
    expect(shownIn(await everythingStored(db.pool), secrets)).toEqual([]);
  } finally {
    await new Promise((closed) => server.close(closed));
  }
});
