import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { fal } from "../../../src/shared/webhooks/fal.ts";
import type { VerifyContext, WebhookRequest } from "../../../src/shared/webhooks/scheme.ts";
import {
  contextServing,
  nowOf,
  requestOf,
  type Vector,
  vectors,
  withHeader,
} from "../../support/webhook-vectors.ts";

const JWKS_URL = "https://rest.fal.ai/.well-known/jwks.json";
const SIGNATURE = "X-Fal-Webhook-Signature";

function readyFal(scheme = fal()) {
  const ready = scheme.ready([], {});
  if (!ready.ok) throw new Error(ready.error);
  return ready.value;
}

/** A vector's time and keys. `calls` counts how often they were asked for. */
const contextOf = (vector: Vector, now = nowOf(vector)) =>
  contextServing(now, { [JWKS_URL]: JSON.stringify(vector.jwks) });

const cases = vectors.filter(({ scheme }) => scheme === "fal");
const valid = cases.filter(({ expect }) => expect === "valid");
const [sample] = valid;
if (sample === undefined) throw new Error("there is no valid vector of fal");
const refused = { ok: false, error: expect.objectContaining({ status: "refused" }) };

test.each(cases)("$id: $expect, $note", async (vector) => {
  const request = requestOf(vector);
  const verdict = await readyFal().verify(request, contextOf(vector));
  expect(verdict).toEqual(vector.expect === "valid" ? { ok: true, value: request } : refused);
});

describe.each(valid)("$id, changed", (vector) => {
  const request = requestOf(vector);
  const context = contextOf(vector);
  const ready = readyFal();
  const isRefused = async (changed: WebhookRequest, at: VerifyContext = context) =>
    expect(await ready.verify(changed, at)).toEqual(refused);

  test.each(Object.keys(vector.headers))("without %s", (name) => isRefused(withHeader(request, name, null)));
  test.each(Object.keys(vector.headers))("with another %s, or twice", async (name) => {
    const value = request.headers.get(name) ?? "";
    await isRefused(withHeader(request, name, `${value}0`));
    await isRefused(withHeader(request, name, `${value}, ${value}`));
    await isRefused(withHeader(request, name, ""));
  });
  test("in any digit of its signature", async () => {
    const signature = vector.headers[SIGNATURE] ?? "";
    for (let i = 0; i < signature.length; i += 1) {
      const digit = signature[i] === "0" ? "1" : "0";
      await isRefused(withHeader(request, SIGNATURE, signature.slice(0, i) + digit + signature.slice(i + 1)));
    }
    await isRefused(withHeader(request, SIGNATURE, signature.slice(2)));
    await isRefused(withHeader(request, SIGNATURE, `${signature}00`));
  });
  test("in any byte of its body, or shorter, or longer", async () => {
    for (let i = 0; i < request.body.length; i += 1) {
      await isRefused({ ...request, body: request.body.map((byte, at) => (at === i ? byte ^ 1 : byte)) });
    }
    await isRefused({ ...request, body: request.body.slice(0, -1) });
    await isRefused({ ...request, body: Uint8Array.from([...request.body, 10]) });
    await isRefused({ ...request, body: new Uint8Array() });
  });
  test("at another time: 300 s either way, and no more", async () => {
    const now = nowOf(vector).getTime();
    for (const seconds of [-301, -300.001, 300.001, 301, 1e6]) {
      await isRefused(request, { ...context, now: new Date(now + seconds * 1000) });
    }
    for (const seconds of [-300, 300]) {
      const at = { ...context, now: new Date(now + seconds * 1000) };
      expect((await readyFal().verify(request, at)).ok).toBe(true);
    }
  });
});

describe("keys", () => {
  const request = requestOf(sample);
  test("are fetched once for many requests, and not at all for what can't be genuine", async () => {
    const context = contextOf(sample);
    const ready = readyFal();
    for (let i = 0; i < 5; i += 1) await ready.verify(request, context);
    expect(context.calls).toEqual([JWKS_URL]);
    const untouched = contextOf(sample, new Date(0));
    await readyFal().verify(request, untouched);
    await readyFal().verify(withHeader(request, SIGNATURE, "00"), contextOf(sample));
    expect(untouched.calls).toEqual([]);
  });
  test("are shared by all that one call of fal() makes, and by nothing else", async () => {
    const context = contextOf(sample);
    const scheme = fal();
    await readyFal(scheme).verify(request, context);
    await readyFal(scheme).verify(request, context);
    expect(context.calls).toHaveLength(1);
    await readyFal().verify(request, context);
    expect(context.calls).toHaveLength(2);
  });
  test("that can't be fetched leave it open", async () => {
    const fetch = () => Promise.reject(new Error("no route"));
    const verdict = await readyFal().verify(request, { ...contextOf(sample), fetch });
    expect(verdict).toEqual({ ok: false, error: expect.objectContaining({ status: "unavailable" }) });
  });
  test("may stand elsewhere", async () => {
    const asked: string[] = [];
    const fetch = async ({ url }: Request) => {
      asked.push(url);
      return Response.json(sample.jwks);
    };
    const scheme = fal({ jwksUrl: "https://rest.alpha.fal.ai/keys" });
    expect((await readyFal(scheme).verify(request, { ...contextOf(sample), fetch })).ok).toBe(true);
    expect(asked).toEqual(["https://rest.alpha.fal.ai/keys"]);
  });
  test.each(["http://rest.fal.ai/", "rest.fal.ai", "", "file:///etc/passwd"])(
    "may not stand at %j",
    (jwksUrl) => {
      expect(() => fal({ jwksUrl })).toThrow("https");
    },
  );
  test("of the wrong kind or length are passed over", async () => {
    const keys = [
      { kty: "EC", crv: "Ed25519", x: "AQ" },
      { kty: "OKP", crv: "X25519", x: "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo" },
      { kty: "OKP", crv: "Ed25519", x: "AQ" },
      { kty: "OKP", crv: "Ed25519", x: 7 },
    ];
    const fetch = async () => Response.json({ keys });
    expect(await readyFal().verify(request, { ...contextOf(sample), fetch })).toEqual({
      ok: false,
      error: expect.objectContaining({ status: "unavailable" }),
    });
  });
});

test("a delivery's id is that of the request, not of the attempt", () => {
  const request = requestOf(sample);
  expect(fal().deliveryId(request, { request_id: "r1", gateway_request_id: "g2" })).toBe("r1");
  expect(fal().deliveryId(request, undefined)).toBe("123e4567-e89b-12d3-a456-426614174000");
  expect(fal().deliveryId({ ...request, headers: new Headers() }, [])).toBeUndefined();
});

test("only fal signs", () => {
  expect(readyFal().signing).toBeUndefined();
});

test("whatever comes is refused, and nothing is thrown", async () => {
  const latin1 = fc.string({
    unit: fc
      .integer({ min: 0x20, max: 0xff })
      .filter((code) => code !== 0x7f)
      .map((code) => String.fromCharCode(code)),
  });
  const ready = readyFal();
  const names = Object.keys(sample.headers);
  await fc.assert(
    fc.asyncProperty(
      fc.tuple(
        ...names.map(() => fc.option(fc.oneof(latin1, fc.constantFrom("1700000000", "00".repeat(64))))),
      ),
      fc.uint8Array(),
      async (values, body) => {
        const given = requestOf(sample);
        const request = values.reduce<WebhookRequest>(
          (changed, value, i) => withHeader(changed, names[i] ?? "", value),
          { ...given, body: Uint8Array.from(body) },
        );
        expect(await ready.verify(request, contextOf(sample))).toEqual(refused);
      },
    ),
  );
});
