import * as v from "valibot";
import { beforeEach, describe, expect, test } from "vitest";
import { createApp } from "../../src/ingress/app.ts";
import { MAX_BODY_BYTES } from "../../src/ingress/body.ts";
import { DatabaseError, type DatabaseErrorKind } from "../../src/shared/db/errors.ts";
import { jsonLog } from "../../src/shared/log.ts";
import { defineRegistry } from "../../src/shared/registry/define.ts";
import { signCallbackId } from "../../src/shared/signature.ts";
import { type FakeDatabase, fakeDatabase } from "../support/fake-database.ts";
import { ingressDeps } from "../support/ingress.ts";

const [SECRET, NEXT] = ["5a".repeat(32), "6b".repeat(32)];
const DATABASE_URL = "postgres://user:hunter2@host/db";
const ID = "0a1b2c3d-4e5f-4a6b-8c7d-9e0f1a2b3c4d";
const PATH = `/api/callbacks/${ID}/complete`;
const registry = defineRegistry({ order: v.object({ n: v.number() }) });

let lines: string[];
beforeEach(() => {
  lines = [];
});

function appWith(database: FakeDatabase, env: Record<string, string> = {}) {
  const log = jsonLog((line) => lines.push(line));
  return createApp(
    ingressDeps(
      { DATABASE_URL, AWA_CALLBACK_HMAC_SECRET: SECRET, ...env },
      { registry, log, database: () => database },
    ),
  );
}

type Body = string | Uint8Array<ArrayBuffer> | ReadableStream;
interface Request {
  readonly path?: string;
  readonly method?: string;
  readonly body?: Body;
  readonly headers?: Record<string, string | undefined>;
  readonly env?: Record<string, string>;
}

/** Sends a request that must be refused before any statement, in our form, and without saying anything internal. */
async function refused({ path = PATH, method = "POST", body, headers, env = {} }: Request) {
  const database = fakeDatabase();
  const id = path.split("/").at(-2) ?? "";
  const given = {
    "Content-Type": "application/json",
    "X-Awa-Signature": signCallbackId(SECRET, id.split("?")[0] ?? ""),
    ...headers,
  };
  const kept = Object.entries(given).filter((entry): entry is [string, string] => entry[1] !== undefined);
  const response = await appWith(database, env).request(path, {
    method,
    headers: Object.fromEntries(kept),
    ...(body !== undefined && { body, duplex: "half" }),
  });
  const text = await response.text();
  const answer: { error?: string; code?: string } = method === "HEAD" ? {} : JSON.parse(text);
  expect(database.seen).toEqual([]);
  expect(lines).toHaveLength(1);
  for (const said of [text, ...lines]) {
    for (const secret of [
      SECRET,
      "hunter2",
      DATABASE_URL,
      given["X-Awa-Signature"] ?? "no signature",
      "SELECT",
      "at file:",
    ]) {
      expect(said).not.toContain(secret);
    }
  }
  expect([...response.headers.keys()].filter((name) => name.startsWith("access-control"))).toEqual([]);
  return { status: response.status, code: answer.code, error: answer.error, headers: response.headers };
}
const json = (value: unknown) => JSON.stringify(value);
const action = (name: string) => PATH.replace("complete", name);

describe("routes and methods", () => {
  test.each([
    "/",
    "/admin",
    "/api/jobs",
    "/api/callbacks",
    `/api/callbacks/${ID}`,
    `/api/callbacks/${ID}/cancel`,
    "/index.html",
  ])("%s isn't there: 404", async (path) => {
    expect(await refused({ path })).toMatchObject({ status: 404, code: "not_found" });
    lines = [];
    expect(await refused({ path, method: "GET" })).toMatchObject({ status: 404 });
  });
  test.each(["complete", "fail", "retry", "heartbeat"])(
    "GET, PUT, OPTIONS on %s: 405 with Allow, before authentication",
    async (name) => {
      for (const method of ["GET", "PUT", "DELETE", "OPTIONS"]) {
        lines = [];
        const answer = await refused({
          path: action(name),
          method,
          headers: { "X-Awa-Signature": undefined },
        });
        expect(answer).toMatchObject({ status: 405, code: "method_not_allowed" });
        expect(answer.headers.get("Allow")).toBe("POST");
      }
    },
  );
  test("POST on the health checks: 405; healthz answers without a database", async () => {
    expect((await refused({ path: "/healthz" })).headers.get("Allow")).toBe("GET, HEAD");
    const database = fakeDatabase();
    for (const method of ["GET", "HEAD"]) {
      expect((await appWith(database).request("/healthz", { method })).status).toBe(200);
    }
    expect(database.seen).toEqual([]);
  });
  test("a prefix of one's own: there it is, and the default isn't", async () => {
    const env = { AWA_CALLBACK_PATH_PREFIX: "hooks/in/" };
    expect(await refused({ env })).toMatchObject({ status: 404 });
    lines = [];
    expect(await refused({ env, path: `/hooks/in/${ID}/fail`, body: json({}) })).toMatchObject({
      status: 422,
    });
  });
});

describe("authentication, before the body is looked at", () => {
  const body = "not even json";
  test.each<[string, Record<string, string | undefined>, string]>([
    ["missing", { "X-Awa-Signature": undefined }, "missing X-Awa-Signature header"],
    ["too short", { "X-Awa-Signature": "ab" }, "invalid X-Awa-Signature header"],
    ["no hex", { "X-Awa-Signature": "z".repeat(64) }, "invalid X-Awa-Signature header"],
    [
      "upper case",
      { "X-Awa-Signature": signCallbackId(SECRET, ID).toUpperCase() },
      "invalid X-Awa-Signature header",
    ],
    ["wrong", { "X-Awa-Signature": "0".repeat(64) }, "invalid callback signature"],
    ["of another secret", { "X-Awa-Signature": signCallbackId(NEXT, ID) }, "invalid callback signature"],
    ["of another id", { "X-Awa-Signature": signCallbackId(SECRET, "other") }, "invalid callback signature"],
  ])("%s: 401", async (_, headers, error) => {
    expect(await refused({ headers, body })).toMatchObject({ status: 401, code: "unauthorized", error });
  });
  test("a path with a slash at its end: the id is signed, whatever follows it", async () => {
    const headers = { "X-Awa-Signature": signCallbackId(SECRET, ID) };
    expect(await refused({ path: `${PATH}/`, headers, body })).toMatchObject({ code: "invalid_json" });
    lines = [];
    const other = { "X-Awa-Signature": signCallbackId(SECRET, "complete") };
    expect(await refused({ path: `${PATH}/`, headers: other, body })).toMatchObject({ status: 401 });
  });
  test("in the URL: as good as the header, and the header wins", async () => {
    const path = (signature: string) => `${PATH}?signature=${signature}`;
    const good = signCallbackId(SECRET, ID);
    expect(
      await refused({ path: path(good), headers: { "X-Awa-Signature": undefined }, body }),
    ).toMatchObject({ status: 400 });
    lines = [];
    expect(
      await refused({ path: path(good), headers: { "X-Awa-Signature": "0".repeat(64) }, body }),
    ).toMatchObject({ status: 401 });
    lines = [];
    expect(
      await refused({ path: path("0".repeat(64)), headers: { "X-Awa-Signature": undefined }, body }),
    ).toMatchObject({
      status: 401,
      error: "invalid callback signature",
    });
  });
  test("octokit/webhooks.js#770 during a rotation both secrets are good", async () => {
    const env = { AWA_CALLBACK_HMAC_SECRET: `${SECRET},${NEXT}` };
    for (const secret of [SECRET, NEXT]) {
      lines = [];
      expect(
        await refused({ env, body, headers: { "X-Awa-Signature": signCallbackId(secret, ID) } }),
      ).toMatchObject({ status: 400 });
    }
  });
  test("over the id exactly as it stands in the path", async () => {
    const upper = PATH.replace(ID, ID.toUpperCase());
    expect(
      await refused({ path: upper, body, headers: { "X-Awa-Signature": signCallbackId(SECRET, ID) } }),
    ).toMatchObject({ status: 401 });
    lines = [];
    expect(
      await refused({
        path: upper,
        body,
        headers: { "X-Awa-Signature": signCallbackId(SECRET, ID.toUpperCase()) },
      }),
    ).toMatchObject({ status: 400 });
  });
  test("signed, but no UUID: 400", async () => {
    expect(await refused({ path: "/api/callbacks/abc/complete", body })).toMatchObject({
      status: 400,
      code: "validation_error",
    });
  });
  test("unsigned mode, switched on by name: nothing is asked for", async () => {
    const env = { AWA_CALLBACK_HMAC_SECRET: "", AWA_CALLBACK_ALLOW_UNSIGNED: "true" };
    expect(await refused({ env, body, headers: { "X-Awa-Signature": undefined } })).toMatchObject({
      status: 400,
      code: "invalid_json",
    });
  });
});

describe("bodies", () => {
  test.each<[string, string, Body, number, string, RegExp?]>([
    ["no JSON", "complete", "{", 400, "invalid_json"],
    ["not UTF-8", "complete", new Uint8Array([0x7b, 0xff, 0x7d]), 400, "invalid_json", /UTF-8/],
    ["NUL", "complete", '{"payload":"a\\u0000b"}', 400, "validation_error", /NUL/],
    ["NUL in a key", "complete", '{"payload":{"\\u0000":1}}', 400, "validation_error", /NUL/],
    ["half a surrogate pair", "fail", '{"error":"\\ud800"}', 400, "validation_error", /surrogate/],
    ["1e400", "complete", '{"payload":1e400}', 400, "validation_error", /finite/],
    [
      "deep",
      "complete",
      `{"payload":${"[".repeat(5000)}${"]".repeat(5000)}}`,
      400,
      "validation_error",
      /deeper/,
    ],
    [
      "very deep",
      "complete",
      `{"payload":${"[".repeat(900_000)}${"]".repeat(900_000)}}`,
      400,
      "validation_error",
    ],
    ["an array", "complete", "[]", 422, "invalid_body", /JSON object/],
    ["null", "retry", "null", 422, "invalid_body", /JSON object/],
    [
      "triggerdotdev/trigger.dev#2292 a misspelt field",
      "complete",
      '{"paylaod":1}',
      422,
      "invalid_body",
      /unknown field "paylaod"/,
    ],
    ["a field where there is none", "retry", '{"error":"x"}', 422, "invalid_body", /unknown field "error"/],
    ["a missing field", "fail", "{}", 422, "invalid_body", /missing field "error"/],
    [
      "a field of the wrong type",
      "fail",
      '{"error":5}',
      422,
      "invalid_body",
      /field "error" must be a string/,
    ],
    [
      "resume that is no boolean",
      "complete",
      '{"resume":"yes"}',
      422,
      "invalid_body",
      /field "resume" must be a boolean/,
    ],
    ["__proto__", "complete", '{"__proto__":{"payload":1}}', 422, "invalid_body"],
    [
      "a time-out that is no number",
      "heartbeat",
      '{"timeout_seconds":"60"}',
      422,
      "invalid_body",
      /timeout_seconds/,
    ],
    [
      "a negative time-out",
      "heartbeat",
      '{"timeout_seconds":-1}',
      400,
      "validation_error",
      /^validation error: timeout_seconds must be a finite, non-negative number$/,
    ],
    ["-0", "heartbeat", '{"timeout_seconds":-0}', 400, "validation_error", /non-negative/],
    ["an endless time-out", "heartbeat", '{"timeout_seconds":1e400}', 400, "validation_error", /finite/],
    [
      "more than a year",
      "heartbeat",
      '{"timeout_seconds":31536001}',
      400,
      "validation_error",
      /at most 31536000/,
    ],
  ])("%s", async (_, name, body, status, code, error = /./) => {
    expect(await refused({ path: action(name), body })).toMatchObject({
      status,
      code,
      error: expect.stringMatching(error),
    });
  });
  test.each([
    "text/plain",
    "application/x-www-form-urlencoded",
    "application/json; charset=latin1",
    "multipart/form-data",
    undefined,
  ])("content type %s: 415", async (type) => {
    const body = new TextEncoder().encode("{}");
    expect(await refused({ body, headers: { "Content-Type": type } })).toMatchObject({
      status: 415,
      code: "unsupported_media_type",
    });
  });
  test("too large, with Content-Length and without: 413", async () => {
    const body = " ".repeat(MAX_BODY_BYTES + 1);
    expect(await refused({ body, headers: { "Content-Length": String(body.length) } })).toMatchObject({
      status: 413,
      code: "payload_too_large",
    });
    lines = [];
    let pulled = 0;
    const endless = new ReadableStream({
      pull(controller) {
        pulled++;
        controller.enqueue(new Uint8Array(65_536));
      },
    });
    expect(await refused({ body: endless })).toMatchObject({ status: 413 });
    expect(pulled * 65_536).toBeLessThan(2 * MAX_BODY_BYTES);
  });
  test.each(["2", "many", "-1", "1e1"])(
    "too large, whatever Content-Length says (%s): 413",
    async (length) => {
      const body = " ".repeat(MAX_BODY_BYTES + 1);
      expect(await refused({ body, headers: { "Content-Length": length } })).toMatchObject({ status: 413 });
    },
  );
  test("a body that breaks off: 400, and no fault of ours", async () => {
    const broken = new ReadableStream({
      start(controller) {
        controller.enqueue(new TextEncoder().encode('{"payload":'));
      },
      pull(controller) {
        controller.error(new TypeError("Network connection lost: hunter2"));
      },
    });
    expect(await refused({ body: broken })).toMatchObject({ status: 400, code: "validation_error" });
  });
  test("no body and no content type count as {}; so do the JSON types with parameters", async () => {
    const asked = async (request: RequestInit) => {
      const database = fakeDatabase(() => []);
      const headers = { "X-Awa-Signature": signCallbackId(SECRET, ID), ...request.headers };
      const response = await appWith(database).request(PATH, { method: "POST", ...request, headers });
      expect(database.seen).toHaveLength(1);
      return response.status;
    };
    expect(await asked({})).toBe(404);
    for (const type of [
      "application/json",
      "Application/JSON; charset=UTF-8",
      "application/cloudevents+json",
    ]) {
      expect(await asked({ body: "{}", headers: { "Content-Type": type } })).toBe(404);
    }
  });
});

describe("wrong configuration: 503 that names the variable", () => {
  test.each<[Record<string, string>, string]>([
    [{ AWA_CALLBACK_HMAC_SECRET: "" }, "AWA_CALLBACK_HMAC_SECRET is not set"],
    [{ AWA_CALLBACK_HMAC_SECRET: "hunter2" }, "AWA_CALLBACK_HMAC_SECRET is not 64"],
    [{ AWA_CALLBACK_ALLOW_UNSIGNED: "hunter2" }, "AWA_CALLBACK_ALLOW_UNSIGNED is neither"],
    [{ AWA_CALLBACK_ALLOW_UNSIGNED: "true" }, "contradict"],
    [{ DATABASE_URL: "hunter2" }, "DATABASE_URL is not"],
    [{ NEON_FETCH_ENDPOINT: "hunter2" }, "NEON_FETCH_ENDPOINT is not"],
  ])("%j", async (env, error) => {
    const answer = await refused({ env, body: json({}) });
    expect(answer).toMatchObject({
      status: 503,
      code: "misconfigured",
      error: expect.stringContaining(error),
    });
    expect(answer.headers.get("Retry-After")).toBe("5");
    lines = [];
    expect(await refused({ env, path: "/readyz", method: "GET" })).toMatchObject({
      status: 503,
      code: "misconfigured",
    });
  });
});

describe("what the database threw", () => {
  test.each<[DatabaseErrorKind, number, string]>([
    ["unavailable", 503, "database_unavailable"],
    ["contended", 503, "database_unavailable"],
    ["schema_mismatch", 503, "schema_mismatch"],
    ["unique_violation", 409, "unique_conflict"],
    ["rejected", 500, "follow_up_failed"],
    ["unexpected", 500, "internal_error"],
  ])("%s: %i %s", async (kind, status, code) => {
    const database = fakeDatabase(() => {
      throw new DatabaseError(kind, "99999");
    });
    const response = await appWith(database).request(action("heartbeat"), {
      method: "POST",
      headers: { "X-Awa-Signature": signCallbackId(SECRET, ID) },
    });
    expect(response.status).toBe(status);
    expect(await response.json()).toMatchObject({ code });
    expect(response.headers.get("Retry-After")).toBe(status === 503 ? "5" : null);
    expect(JSON.parse(lines[0] ?? "")).toMatchObject({ event: "request", sqlState: "99999", status, code });
  });
  test("a bug of ours: 500, its message stays inside", async () => {
    const database = fakeDatabase(() => {
      throw new RangeError("hunter2");
    });
    const response = await appWith(database).request(PATH, {
      method: "POST",
      headers: { "X-Awa-Signature": signCallbackId(SECRET, ID) },
    });
    expect(await response.json()).toEqual({ error: "internal server error", code: "internal_error" });
    expect(lines.join()).not.toContain("hunter2");
    expect(lines.join()).toContain("RangeError");
  });
});
