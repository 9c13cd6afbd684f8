import * as v from "valibot";
import { beforeEach, describe, expect, test } from "vitest";
import { createApp } from "../../src/ingress/app.ts";
import { MAX_BODY_BYTES } from "../../src/ingress/body.ts";
import { jsonLog } from "../../src/shared/log.ts";
import { defineRegistry } from "../../src/shared/registry/define.ts";
import { complete } from "../../src/shared/registry/source.ts";
import { err } from "../../src/shared/result.ts";
import { meta } from "../../src/shared/webhooks/presets/messaging.ts";
import { standardWebhooks } from "../../src/shared/webhooks/presets/standard-webhooks.ts";
import type { WebhookScheme } from "../../src/shared/webhooks/scheme.ts";
import { fakeDatabase } from "../support/fake-database.ts";
import { ingressDeps } from "../support/ingress.ts";
import { trustingScheme } from "../support/sources.ts";

const SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const NOW = 1_614_265_330;
const ID = "0a1b2c3d-4e5f-4a6b-8c7d-9e0f1a2b3c4d";
const DATABASE_URL = "postgres://user:hunter2@host/db";

/** A scheme whose keys can't be fetched. */
const unreachable: WebhookScheme = {
  ...trustingScheme(),
  ready: () => ({
    ok: true,
    value: { verify: async () => err({ status: "unavailable", reason: "no keys" }) },
  }),
};

const about = { payload: v.unknown(), meaning: () => complete() };
const registry = defineRegistry({ order: v.object({ n: v.number() }) })
  .webhook("standard", { scheme: standardWebhooks(), secret: "STANDARD_SECRET", ...about })
  .webhook("social", {
    scheme: meta({ verifyTokenVariable: "SOCIAL_TOKEN" }),
    secret: "SOCIAL_SECRET",
    ...about,
  })
  .webhook("open", { scheme: trustingScheme(), ...about })
  .webhook("distant", { scheme: unreachable, ...about })
  .webhook("unset", { scheme: standardWebhooks(), secret: "UNSET_SECRET", ...about });

/** The example of the Standard Webhooks' own libraries. */
const genuine = {
  "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
  "webhook-timestamp": String(NOW),
  "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
};
const BODY = '{"test": 2432232314}';

let lines: string[];
beforeEach(() => {
  lines = [];
});

interface Sent {
  readonly method?: string;
  readonly headers?: Record<string, string>;
  readonly body?: string | Uint8Array<ArrayBuffer> | ReadableStream;
  readonly env?: Record<string, unknown>;
}

/** Sends a request that must be answered without any statement. */
async function send(path: string, { method = "POST", headers = {}, body, env = {} }: Sent = {}) {
  const database = fakeDatabase();
  const bindings = {
    DATABASE_URL,
    AWA_CALLBACK_ALLOW_UNSIGNED: "true",
    STANDARD_SECRET: SECRET,
    SOCIAL_SECRET: "meatyhamhock",
    SOCIAL_TOKEN: "t0ken",
    ...env,
  };
  const log = jsonLog((line) => lines.push(line));
  const deps = ingressDeps(bindings, { registry, log, database: () => database, now: () => NOW * 1000 });
  const response = await createApp(deps).request(path, {
    method,
    headers,
    ...(body !== undefined && { body, duplex: "half" }),
  });
  const text = await response.text();
  expect(database.seen).toEqual([]);
  expect(text + lines.join("")).not.toMatch(/hunter2|MfKQ9r8G|g0hM9SsE|meatyhamhock|t0ken/);
  return {
    status: response.status,
    text,
    headers: response.headers,
    code: /"code":"([a-z_]+)"/.exec(text)?.[1],
  };
}

describe("refused before the first statement", () => {
  test("an unknown source: 404, whatever the method", async () => {
    for (const method of ["POST", "GET", "OPTIONS", "DELETE"]) {
      expect(
        await send("/webhooks/nobody", { method, ...(method === "POST" && { body: "{}" }) }),
      ).toMatchObject({ status: 404, code: "source_not_found" });
    }
    expect(await send("/webhooks/__proto__")).toMatchObject({ status: 404, code: "source_not_found" });
    expect(await send("/webhooks")).toMatchObject({ status: 404, code: "not_found" });
    expect(await send(`/webhooks/open/${ID}/more`)).toMatchObject({ status: 404, code: "not_found" });
  });

  test.each([
    ["no signature at all", {}, BODY],
    [
      "a wrong one",
      { ...genuine, "webhook-signature": "v1,AAAA9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" },
      BODY,
    ],
    ["another body", genuine, '{"test": 2432232315}'],
    ["the same body, serialized again", genuine, '{"test":2432232314}'],
    ["a byte order mark before the body", genuine, `\u{feff}${BODY}`],
    ["too old", { ...genuine, "webhook-timestamp": String(NOW - 301) }, BODY],
  ])("%s: 401", async (_, headers, body) => {
    const answer = await send("/webhooks/standard", { headers, body });
    expect(answer).toMatchObject({ status: 401, code: "unauthorized" });
  });

  test("a callback id that is none: 400, before the signature", async () => {
    expect(await send("/webhooks/standard/abc", { headers: genuine, body: BODY })).toMatchObject({
      status: 400,
      code: "validation_error",
    });
  });

  test("a body that isn't text: 400", async () => {
    const body = new Uint8Array([0x7b, 0xff, 0x7d]);
    expect(await send("/webhooks/open", { body })).toMatchObject({ status: 400, code: "validation_error" });
    expect(await send("/webhooks/open", { body: '{"a":"\0"}' })).toMatchObject({
      status: 400,
      code: "validation_error",
    });
  });

  test("QuackbackIO/quackback#302 a body that is too large: 413, by its length or while it streams in", async () => {
    const large = { status: 413, code: "payload_too_large" };
    expect(
      await send("/webhooks/standard", { headers: genuine, body: "x".repeat(MAX_BODY_BYTES + 1) }),
    ).toMatchObject(large);
    let sent = 0;
    const endless = new ReadableStream({
      pull(controller) {
        sent += 65_536;
        controller.enqueue(new Uint8Array(65_536));
      },
    });
    expect(await send("/webhooks/standard", { headers: genuine, body: endless })).toMatchObject(large);
    expect(sent).toBeLessThan(2 * MAX_BODY_BYTES);
  });

  test("a body that breaks off: 400, and no fault of ours", async () => {
    const body = new ReadableStream({ pull: (controller) => controller.error(new TypeError("hunter2")) });
    expect(await send("/webhooks/standard", { headers: genuine, body })).toMatchObject({
      status: 400,
      code: "validation_error",
    });
  });

  test("another method: 405 with Allow", async () => {
    for (const method of ["GET", "PUT", "DELETE", "OPTIONS"]) {
      const answer = await send("/webhooks/open", { method });
      expect(answer).toMatchObject({ status: 405, code: "method_not_allowed" });
      expect(answer.headers.get("Allow")).toBe("POST");
    }
  });

  test("the callbacks' own secret isn't set: webhooks go on", async () => {
    const unset = { AWA_CALLBACK_ALLOW_UNSIGNED: "" };
    const forged = { env: unset, body: `${BODY} `, headers: genuine };
    expect(await send("/webhooks/standard", forged)).toMatchObject({ status: 401 });
    expect(await send(`/api/callbacks/${ID}/complete`, { env: unset })).toMatchObject({
      status: 503,
      code: "misconfigured",
    });
  });

  test("a secret that isn't set, or is wrong: 503 that names the variable, and the other sources go on", async () => {
    expect(await send("/webhooks/unset", { body: "{}" })).toMatchObject({
      status: 503,
      code: "misconfigured",
      text: expect.stringContaining("UNSET_SECRET is not set"),
    });
    const wrong = { env: { STANDARD_SECRET: "whsec_hunter2!" }, body: BODY, headers: genuine };
    expect(await send("/webhooks/standard", wrong)).toMatchObject({
      status: 503,
      text: expect.stringContaining("STANDARD_SECRET"),
    });
    const blank = { env: { STANDARD_SECRET: `${SECRET} ` }, body: BODY, headers: genuine };
    expect(await send("/webhooks/standard", blank)).toMatchObject({
      status: 503,
      text: expect.stringContaining("white space"),
    });
    expect(await send("/webhooks/open", { method: "GET", env: { STANDARD_SECRET: "" } })).toMatchObject({
      status: 405,
    });
  });

  test("keys that can't be fetched: 503 with Retry-After, never a refusal", async () => {
    const answer = await send("/webhooks/distant", { body: "{}" });
    expect(answer).toMatchObject({ status: 503, code: "verification_unavailable" });
    expect(answer.headers.get("Retry-After")).toBe("5");
  });

  test("the log names source and reason, and nothing that was sent", async () => {
    await send("/webhooks/standard", {
      headers: { "webhook-signature": "v1,secret-signature" },
      body: "secret-body",
    });
    const [line = ""] = lines;
    expect(JSON.parse(line)).toMatchObject({
      event: "request",
      source: "standard",
      status: 401,
      code: "unauthorized",
      reason: expect.any(String),
    });
    expect(line).not.toMatch(/secret-/);
  });
});

describe("handshakes", () => {
  const asked = (token: string) =>
    `/webhooks/social?hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token=${token}`;
  test("Meta asks by GET, and gets its challenge back for the right token", async () => {
    expect(await send(asked("t0ken"), { method: "GET" })).toMatchObject({ status: 200, text: "1158201444" });
    expect(await send(asked("wrong"), { method: "GET" })).toMatchObject({ status: 403 });
    expect(await send("/webhooks/social", { method: "GET" })).toMatchObject({ status: 405 });
  });
});

describe("rate limits", () => {
  function limiter(...answers: boolean[]) {
    const keys: string[] = [];
    return {
      keys,
      limit: async ({ key }: { key: string }) => {
        keys.push(key);
        return { success: answers.shift() ?? false };
      },
    };
  }

  test("over the limit of its source: 429 with Retry-After, before the body is read", async () => {
    const source = limiter(true, false);
    const env = { AWA_WEBHOOK_SOURCE_LIMITER: source };
    let read = false;
    const body = () =>
      new ReadableStream(
        {
          pull(controller) {
            read = true;
            controller.close();
          },
        },
        { highWaterMark: 0 },
      );
    expect(await send("/webhooks/standard", { env, body: "x" })).toMatchObject({ status: 401 });
    const refused = await send("/webhooks/standard", { env, body: body() });
    expect(refused).toMatchObject({ status: 429, code: "rate_limited" });
    expect(refused.headers.get("Retry-After")).toBe("60");
    expect(read).toBe(false);
    expect(source.keys).toEqual(["standard", "standard"]);
  });

  test("by address, where the platform tells it; an unknown source costs nothing", async () => {
    const address = limiter();
    const env = { AWA_WEBHOOK_ADDRESS_LIMITER: address };
    expect(
      await send("/webhooks/standard", { env, body: "x", headers: { "CF-Connecting-IP": "192.0.2.1" } }),
    ).toMatchObject({ status: 429 });
    expect(await send("/webhooks/standard", { env, body: "x" })).toMatchObject({ status: 401 });
    expect(
      await send("/webhooks/nobody", { env, body: "x", headers: { "CF-Connecting-IP": "192.0.2.1" } }),
    ).toMatchObject({ status: 404 });
    expect(address.keys).toEqual(["192.0.2.1"]);
  });

  test("a limiter that fails lets the request pass; one that is none is named", async () => {
    const broken = { limit: () => Promise.reject(new Error("down")) };
    const throwing = {
      limit: () => {
        throw new Error("down");
      },
    };
    for (const limiter of [broken, throwing]) {
      const env = { AWA_WEBHOOK_SOURCE_LIMITER: limiter };
      expect(await send("/webhooks/standard", { env, body: "x" })).toMatchObject({ status: 401 });
    }
    expect(
      await send("/webhooks/standard", { env: { AWA_WEBHOOK_SOURCE_LIMITER: "yes" }, body: "x" }),
    ).toMatchObject({
      status: 503,
      text: expect.stringContaining("AWA_WEBHOOK_SOURCE_LIMITER"),
    });
  });
});

describe("a source that can't be", () => {
  const base = { payload: v.unknown(), meaning: () => complete() };
  const add = (name: string, options: object) => () =>
    defineRegistry({}).webhook(name, { scheme: trustingScheme(), ...base, ...options });
  test.each([
    ["a name with a slash", add("a/b", {}), /stands in a URL/],
    ["no name", add("", {}), /1 to 200/],
    ["no secret", add("x", { scheme: standardWebhooks() }), /needs a secret/],
    [
      "a secret in place of its variable",
      add("x", { scheme: standardWebhooks(), secret: `${SECRET}+/` }),
      /variable's name/,
    ],
    ["a header that is secret", add("x", { headers: ["Authorization"] }), /may hold a secret/],
    ["a signature to be kept", add("x", { headers: ["X-Hub-Signature-256"] }), /may hold a secret/],
  ])("%s", (_, adding, error) => {
    expect(adding).toThrow(error);
  });
  test("the same name twice", () => {
    const registry = defineRegistry({}).webhook("x", { scheme: trustingScheme(), ...base });
    expect(() => registry.webhook("x", { scheme: trustingScheme(), ...base })).toThrow("registered already");
  });
});
