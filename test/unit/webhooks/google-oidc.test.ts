import fc from "fast-check";
import { beforeAll, describe, expect, test } from "vitest";
import { googleOidc } from "../../../src/shared/webhooks/google-oidc.ts";
import type { WebhookRequest, WebhookScheme } from "../../../src/shared/webhooks/scheme.ts";
import {
  contextServing,
  nowOf,
  requestOf,
  type Vector,
  vectors,
  withHeader,
} from "../../support/webhook-vectors.ts";

const JWKS_URL = "https://www.googleapis.com/oauth2/v3/certs";
const EXPECTED = { audience: "https://example.com/hook", email: "push@proj.iam.gserviceaccount.com" };
/** When the vectors' tokens begin and end. */
const [ISSUED_AT, EXPIRES_AT] = [1_700_000_000, 1_700_003_600];

function readyFor(scheme: WebhookScheme = googleOidc(EXPECTED)) {
  const ready = scheme.ready([], {});
  if (!ready.ok) throw new Error(ready.error);
  return ready.value;
}

const contextOf = (jwks: unknown, now: Date) => contextServing(now, { [JWKS_URL]: JSON.stringify(jwks) });
const contextOfVector = (vector: Vector) => contextOf(vector.jwks, nowOf(vector));

const withToken = (request: WebhookRequest, authorization: string | null) =>
  withHeader(request, "Authorization", authorization);

const cases = vectors.filter(({ scheme }) => scheme === "pubsub-oidc");
const valid = cases.filter(({ expect }) => expect === "valid");
const [sample] = valid;
if (sample === undefined) throw new Error("there is no valid vector of Pub/Sub");
const refused = { ok: false, error: expect.objectContaining({ status: "refused" }) };
const unavailable = { ok: false, error: expect.objectContaining({ status: "unavailable" }) };

test.each(cases)("$id: $expect, $note", async (vector) => {
  const request = requestOf(vector);
  const verdict = await readyFor().verify(request, contextOfVector(vector));
  expect(verdict).toEqual(vector.expect === "valid" ? { ok: true, value: request } : refused);
});

describe.each(valid)("$id, changed", (vector) => {
  const request = requestOf(vector);
  const context = contextOfVector(vector);
  const ready = readyFor();
  const bearer = vector.headers.Authorization ?? "";
  const isRefused = async (changed: WebhookRequest) =>
    expect(await ready.verify(changed, context)).toEqual(refused);

  test("without its token, with it twice, or under another name", async () => {
    const [, token = ""] = bearer.split(" ");
    const others = [
      null,
      "",
      "Bearer",
      "Bearer ",
      token,
      `Basic ${token}`,
      `${bearer}, ${bearer}`,
      `Bearer  ${token}`,
    ];
    for (const other of others) await isRefused(withToken(request, other));
  });
  test("in any character of its token", async () => {
    for (let i = "Bearer ".length; i < bearer.length; i += 1) {
      const other = bearer[i] === "A" ? "B" : "A";
      await isRefused(withToken(request, bearer.slice(0, i) + other + bearer.slice(i + 1)));
    }
    for (const other of [bearer.slice(0, -1), `${bearer}=`, `${bearer}A`, `${bearer}.`, `${bearer}.AA`]) {
      await isRefused(withToken(request, other));
    }
  });
  test("in its body, which isn't signed: it passes", async () => {
    const changed = { ...request, body: new TextEncoder().encode("other") };
    expect((await ready.verify(changed, context)).ok).toBe(true);
  });
  test.each([
    [ISSUED_AT - 301, false],
    [ISSUED_AT - 300, true],
    [EXPIRES_AT, true],
    [EXPIRES_AT + 300, true],
    [EXPIRES_AT + 301, false],
    [0, false],
  ])("at %d s", async (seconds, isGood) => {
    const at = contextOf(vector.jwks, new Date(seconds * 1000));
    expect((await readyFor().verify(request, at)).ok).toBe(isGood);
    expect(at.calls).toHaveLength(isGood ? 1 : 0);
  });
  test.each([
    { ...EXPECTED, audience: "https://example.com/hook/" },
    { ...EXPECTED, email: "Push@proj.iam.gserviceaccount.com" },
    { ...EXPECTED, issuers: ["https://issuer.example"] },
    { ...EXPECTED, issuers: [] },
  ])("for %j", async (options) => {
    expect(await readyFor(googleOidc(options)).verify(request, context)).toEqual(refused);
  });
});

describe("a token of our own", () => {
  let keys: Awaited<ReturnType<typeof makeKeys>>;
  const now = new Date(ISSUED_AT * 1000);
  const claims = {
    aud: EXPECTED.audience,
    email: EXPECTED.email,
    email_verified: true,
    iss: "https://accounts.google.com",
    iat: ISSUED_AT,
    exp: EXPIRES_AT,
  };
  const request = requestOf(sample);
  const base64Url = (bytes: Uint8Array) => Buffer.from(bytes).toString("base64url");
  const part = (value: unknown) => base64Url(new TextEncoder().encode(JSON.stringify(value)));

  async function makeKeys(modulusLength = 2048) {
    const algorithm = { name: "RSASSA-PKCS1-v1_5", hash: "SHA-256", modulusLength };
    const publicExponent = Uint8Array.of(1, 0, 1);
    const pair = await crypto.subtle.generateKey({ ...algorithm, publicExponent }, true, ["sign", "verify"]);
    const jwk = await crypto.subtle.exportKey("jwk", pair.publicKey);
    return { privateKey: pair.privateKey, jwk: { ...jwk, kid: "ours", use: "sig" } };
  }
  beforeAll(async () => {
    keys = await makeKeys();
  });
  async function signed(payload: unknown, header: unknown = { alg: "RS256", kid: "ours", typ: "JWT" }) {
    const content = `${part(header)}.${part(payload)}`;
    const bytes = await crypto.subtle.sign(
      "RSASSA-PKCS1-v1_5",
      keys.privateKey,
      new TextEncoder().encode(content),
    );
    return withToken(request, `Bearer ${content}.${base64Url(new Uint8Array(bytes))}`);
  }
  const verdict = async (given: WebhookRequest, jwk: object = keys.jwk) =>
    readyFor().verify(given, contextOf({ keys: [jwk] }, now));

  test("is good, whatever the case of Bearer", async () => {
    const good = await signed(claims);
    expect((await verdict(good)).ok).toBe(true);
    const lower = withToken(good, good.headers.get("Authorization")?.replace("Bearer", "bearer") ?? "");
    expect((await verdict(lower)).ok).toBe(true);
  });
  test.each([
    ["two audiences", { ...claims, aud: [EXPECTED.audience, "https://other.example"] }],
    ["an email verified as text", { ...claims, email_verified: "true" }],
    ["no end", { ...claims, exp: undefined }],
    ["an end in text", { ...claims, exp: String(EXPIRES_AT) }],
    ["no beginning", { ...claims, iat: undefined }],
    ["no claims", null],
    ["a list", [claims]],
  ])("with %s is refused", async (_, payload) => {
    expect(await verdict(await signed(payload))).toEqual(refused);
  });
  test.each([
    ["another algorithm", { alg: "RS512", kid: "ours" }],
    ["none", { alg: "none", kid: "ours" }],
    ["an algorithm in lower case", { alg: "rs256", kid: "ours" }],
    ["no key's id", { alg: "RS256" }],
    ["another key's id", { alg: "RS256", kid: "other" }],
    ["something critical", { alg: "RS256", kid: "ours", crit: ["b64"], b64: false }],
    ["nothing", null],
  ])("whose header has %s is refused", async (_, header) => {
    expect(await verdict(await signed(claims, header))).toEqual(refused);
  });
  test.each([
    ["another algorithm", { alg: "RS512" }],
    ["another use", { use: "enc" }],
    ["another kind", { kty: "EC" }],
    ["no modulus", { n: undefined }],
    ["a modulus that is none", { n: "!" }],
  ])("whose key is for %s can't be checked", async (_, changed) => {
    expect(await verdict(await signed(claims), { ...keys.jwk, ...changed })).toEqual(unavailable);
  });
  test("by a short key can't be checked", async () => {
    const { jwk } = await makeKeys(1024);
    expect(await verdict(await signed(claims), jwk)).toEqual(unavailable);
  });
  test("by a key that came later is good, once the keys were fetched again", async () => {
    const ready = readyFor();
    const old = contextOfVector(sample);
    expect((await ready.verify(request, old)).ok).toBe(true);
    const rotated = contextOf({ keys: [keys.jwk] }, new Date(now.getTime() + 61_000));
    expect((await ready.verify(await signed(claims), rotated)).ok).toBe(true);
    expect(rotated.calls).toEqual([JWKS_URL]);
  });
});

test("keys that can't be fetched leave it open", async () => {
  const fetch = () => Promise.reject(new Error("no route"));
  expect(await readyFor().verify(requestOf(sample), { now: nowOf(sample), fetch })).toEqual(unavailable);
});

test.each([
  ["", "a@b"],
  ["https://example.com", ""],
])("an audience of %j and an email of %j are refused at once", (audience, email) => {
  expect(() => googleOidc({ audience, email })).toThrow("audience and an email");
});

test.each([
  [{}, { message: { messageId: "2070443601311540" } }, "2070443601311540"],
  [{ "X-CloudTasks-QueueName": "q", "X-CloudTasks-TaskName": "7" }, undefined, "q/7"],
  [
    { "X-CloudScheduler-JobName": "j", "X-CloudScheduler-ScheduleTime": "2026-01-01T00:00:00Z" },
    {},
    "j/2026-01-01T00:00:00Z",
  ],
  [{ "X-CloudTasks-QueueName": "q" }, { message: null }, undefined],
])("a delivery's id: %j, %j", (headers, payload, id) => {
  const request = { ...requestOf(sample), headers: new Headers(Object.entries(headers)) };
  expect(googleOidc(EXPECTED).deliveryId(request, payload)).toBe(id);
});

test("whatever comes is refused, and nothing is thrown", async () => {
  const ready = readyFor();
  const context = contextOfVector(sample);
  const part = fc.oneof(
    fc.string({ unit: "grapheme-ascii" }),
    fc.json().map((json) => Buffer.from(json).toString("base64url")),
    fc.constantFrom("eyJhbGciOiJSUzI1NiIsImtpZCI6InRlc3RraWQiLCJ0eXAiOiJKV1QifQ"),
  );
  await fc.assert(
    fc.asyncProperty(part, part, part, fc.uint8Array(), async (header, payload, signature, body) => {
      const given = { ...requestOf(sample), body: Uint8Array.from(body) };
      const request = withToken(given, `Bearer ${header}.${payload}.${signature}`);
      expect(await ready.verify(request, context)).toEqual(refused);
    }),
  );
});
