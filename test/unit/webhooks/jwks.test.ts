import { describe, expect, test, vi } from "vitest";
import { fromBase64Url, jwks, published } from "../../../src/shared/webhooks/jwks.ts";
import type { VerifyContext } from "../../../src/shared/webhooks/scheme.ts";

const START = Date.parse("2026-01-01T00:00:00Z");
const URL_OF_SET = "https://keys.example/jwks.json";
const HOUR_SECONDS = 3_600;
/** As in jwks.ts. */
const MAX_AGE_SECONDS = 6 * HOUR_SECONDS;

/** A context whose fetch answers one thing after another, the last one for ever, and remembers what it was asked. */
function contextOf(...answers: readonly (() => Response | Promise<Response>)[]) {
  const requests: Request[] = [];
  const fetch = async (request: Request): Promise<Response> => {
    requests.push(request);
    const answer = answers[Math.min(requests.length, answers.length) - 1];
    if (answer === undefined) throw new Error("the test has no answer");
    return answer();
  };
  const at = (seconds: number): VerifyContext => ({ now: new Date(START + seconds * 1000), fetch });
  return { requests, at };
}

async function keyPair(kid: string) {
  const pair = await crypto.subtle.generateKey("Ed25519", true, ["sign", "verify"]);
  if (!("publicKey" in pair)) throw new Error("that is no pair of keys");
  const jwk = await crypto.subtle.exportKey("jwk", pair.publicKey);
  return { privateKey: pair.privateKey, jwk: { kid, ...jwk } };
}

const setOf = (...keys: readonly unknown[]) => Response.json({ keys });
const importKey = async ({ kty, crv, x }: Readonly<Record<string, unknown>>) =>
  kty === "OKP" && crv === "Ed25519" && typeof x === "string"
    ? crypto.subtle.importKey("jwk", { kty, crv, x }, "Ed25519", false, ["verify"])
    : null;
const REFUSED = {
  ok: false,
  error: { status: "refused", reason: "its signature fits none of the provider's keys" },
};
const FITS = { ok: true, value: null };
const isNamed =
  (name: string) =>
  async ({ id }: { readonly id: unknown }) =>
    id === name;
const unavailable = { ok: false, error: expect.objectContaining({ status: "unavailable" }) };

describe("what is published", () => {
  const text = async (given: string) => given;

  test("is fetched once, without following redirects and not for ever, and again when it is too old", async () => {
    const { requests, at } = contextOf(
      () => new Response("first"),
      () => new Response("second"),
    );
    const texts = published(text);
    expect(await texts.get(URL_OF_SET, 60, at(0))).toEqual({ ok: true, value: "first" });
    expect(await texts.get(URL_OF_SET, 60, at(60))).toEqual({ ok: true, value: "first" });
    expect(requests).toHaveLength(1);
    expect(requests[0]).toMatchObject({ method: "GET", url: URL_OF_SET, redirect: "manual" });
    expect(requests[0]?.signal).toBeInstanceOf(AbortSignal);
    expect(await texts.get(URL_OF_SET, 60, at(60.001))).toEqual({ ok: true, value: "second" });
  });
  test("from the future is too old as well: a clock was set back", async () => {
    const { requests, at } = contextOf(() => new Response("text"));
    const texts = published(text);
    await texts.get(URL_OF_SET, 60, at(0));
    await texts.get(URL_OF_SET, 60, at(-61));
    expect(requests).toHaveLength(2);
  });
  const stalled = () =>
    new Response(
      new ReadableStream({
        pull(controller) {
          controller.error(new Error("cut off"));
        },
      }),
    );
  test.each<[string, () => Response | Promise<Response>]>([
    ["a network that fails", () => Promise.reject(new Error("no route"))],
    ["a fetch that throws something odd", () => Promise.reject("odd")],
    ["no response at all", () => JSON.parse("null")],
    ["404", () => new Response("not here", { status: 404 })],
    ["a server's error", () => new Response(null, { status: 500 })],
    ["a redirect", () => Response.redirect("https://elsewhere.example/", 302)],
    ["no body", () => new Response(null)],
    ["a body that is cut off", stalled],
    ["too long a body", () => new Response("x".repeat(65_537))],
  ])("isn't available: %s", async (_, answer) => {
    const { at, requests } = contextOf(answer);
    expect(await published(text).get(URL_OF_SET, 60, at(0))).toEqual(unavailable);
    expect(requests).toHaveLength(1);
  });
  test("isn't available where it takes longer than 5 s", async () => {
    const timeout = vi.spyOn(AbortSignal, "timeout").mockReturnValue(AbortSignal.abort());
    const requests: Request[] = [];
    const fetch = async (request: Request) => {
      requests.push(request);
      request.signal.throwIfAborted();
      return new Response("text");
    };
    expect(await published(text).get(URL_OF_SET, 60, { now: new Date(START), fetch })).toEqual(unavailable);
    expect(timeout).toHaveBeenCalledExactlyOnceWith(5_000);
    expect(requests).toHaveLength(1);
    timeout.mockRestore();
  });
  test("isn't available where it isn't what it should be, and isn't kept then", async () => {
    const { requests, at } = contextOf(() => new Response("text"));
    const nulls = published(async () => null);
    const throws = published(() => Promise.reject(new Error("unreadable")));
    for (const unreadable of [nulls, throws]) {
      expect(await unreadable.get(URL_OF_SET, 60, at(0))).toEqual(unavailable);
      expect(await unreadable.get(URL_OF_SET, 60, at(0))).toEqual(unavailable);
    }
    expect(requests).toHaveLength(4);
  });
  test("is as long as 64 KiB at most", async () => {
    const { at } = contextOf(() => new Response("x".repeat(65_536)));
    expect((await published(text).get(URL_OF_SET, 60, at(0))).ok).toBe(true);
  });
  test("is asked for 20 times a minute at most, whatever the URLs, and what is kept stays", async () => {
    const { requests, at } = contextOf(() => new Response("text"));
    const texts = published(text);
    for (let i = 0; i < 50; i += 1) await texts.get(`https://keys.example/${i}`, HOUR_SECONDS, at(0));
    expect(requests).toHaveLength(20);
    expect(await texts.get("https://keys.example/19", HOUR_SECONDS, at(1))).toEqual({
      ok: true,
      value: "text",
    });
    expect(await texts.get("https://keys.example/20", HOUR_SECONDS, at(59))).toEqual(unavailable);
    expect(await texts.get("https://keys.example/20", HOUR_SECONDS, at(60))).toEqual({
      ok: true,
      value: "text",
    });
    expect(requests).toHaveLength(21);
  });
  test("is kept for 16 URLs, the longest kept goes first", async () => {
    const { requests, at } = contextOf(() => new Response("text"));
    const texts = published(text);
    for (let i = 0; i < 17; i += 1) await texts.get(`https://keys.example/${i}`, HOUR_SECONDS, at(0));
    await texts.get("https://keys.example/1", HOUR_SECONDS, at(0));
    expect(requests).toHaveLength(17);
    await texts.get("https://keys.example/0", HOUR_SECONDS, at(0));
    expect(requests).toHaveLength(18);
  });
});

describe("a key set", () => {
  test("fits by any of its keys, and keys of other kinds are passed over", async () => {
    const [first, second] = [await keyPair("first"), await keyPair("second")];
    const { at } = contextOf(() => setOf({ kty: "RSA", kid: "first" }, null, 7, first.jwk, second.jwk));
    const keys = jwks(URL_OF_SET, importKey);
    const content = new TextEncoder().encode("content");
    const signature = await crypto.subtle.sign("Ed25519", second.privateKey, content);
    const tried: unknown[] = [];
    const fits = await keys.fits(({ id, key }) => {
      tried.push(id);
      return crypto.subtle.verify("Ed25519", key, signature, content);
    }, at(0));
    expect(fits).toEqual(FITS);
    expect(tried).toEqual(["first", "second"]);
  });
  test("that was changed is fetched again, once", async () => {
    const [before, after] = [await keyPair("before"), await keyPair("after")];
    const { requests, at } = contextOf(
      () => setOf(before.jwk),
      () => setOf(after.jwk),
    );
    const keys = jwks(URL_OF_SET, importKey);
    expect(await keys.fits(isNamed("before"), at(0))).toEqual(FITS);
    expect(await keys.fits(isNamed("after"), at(61))).toEqual(FITS);
    expect(await keys.fits(isNamed("before"), at(62))).toEqual(REFUSED);
    expect(requests).toHaveLength(2);
  });
  test("isn't fetched again within a minute, however many bad signatures come", async () => {
    const { jwk } = await keyPair("only");
    const { requests, at } = contextOf(() => setOf(jwk));
    const keys = jwks(URL_OF_SET, importKey);
    for (let second = 0; second <= 60; second += 0.5) {
      expect(await keys.fits(isNamed("other"), at(second))).toEqual(REFUSED);
    }
    expect(requests).toHaveLength(1);
    expect(await keys.fits(isNamed("other"), at(60.5))).toEqual(REFUSED);
    expect(requests).toHaveLength(2);
  });
  test("is fetched a few times at most by bad signatures that come at once", async () => {
    const { jwk } = await keyPair("only");
    const { requests, at } = contextOf(() => setOf(jwk));
    const keys = jwks(URL_OF_SET, importKey);
    await keys.fits(isNamed("only"), at(0));
    await Promise.all(Array.from({ length: 200 }, () => keys.fits(isNamed("other"), at(61))));
    expect(requests.length).toBeLessThanOrEqual(21);
  });
  test("of more than six hours ago is fetched anew, whether a key fits or not", async () => {
    const { jwk } = await keyPair("only");
    const { requests, at } = contextOf(() => setOf(jwk));
    const keys = jwks(URL_OF_SET, importKey);
    await keys.fits(isNamed("only"), at(0));
    await keys.fits(isNamed("only"), at(MAX_AGE_SECONDS));
    expect(requests).toHaveLength(1);
    await keys.fits(isNamed("only"), at(MAX_AGE_SECONDS + 1));
    expect(requests).toHaveLength(2);
  });
  test("that can't be fetched again leaves open what its new keys would say", async () => {
    const { jwk } = await keyPair("only");
    const { at } = contextOf(
      () => setOf(jwk),
      () => new Response(null, { status: 502 }),
    );
    const keys = jwks(URL_OF_SET, importKey);
    await keys.fits(isNamed("only"), at(0));
    expect(await keys.fits(isNamed("other"), at(61))).toEqual(unavailable);
    expect(await keys.fits(isNamed("only"), at(61))).toEqual(FITS);
  });
  test("whose comparison throws doesn't fit", async () => {
    const { jwk } = await keyPair("only");
    const { at } = contextOf(() => setOf(jwk));
    expect(await jwks(URL_OF_SET, importKey).fits(() => Promise.reject(new Error("odd")), at(0))).toEqual(
      REFUSED,
    );
  });
  test("is cut at 32 keys", async () => {
    const { jwk } = await keyPair("many");
    const { at } = contextOf(() => setOf(...Array.from({ length: 40 }, () => jwk)));
    let tried = 0;
    await jwks(URL_OF_SET, importKey).fits(async () => {
      tried += 1;
      return false;
    }, at(0));
    expect(tried).toBe(32);
  });
  test.each([
    "",
    "null",
    "[]",
    "{}",
    '{"keys":{}}',
    '{"keys":[]}',
    '{"keys":[{"kty":"RSA"}]}',
    "<html>",
    "\u0000",
  ])("of %j is none", async (body) => {
    const { at } = contextOf(() => new Response(body));
    expect(await jwks(URL_OF_SET, importKey).fits(isNamed("any"), at(0))).toEqual(unavailable);
  });
});

test.each([
  ["AQID", [1, 2, 3]],
  ["AQI", [1, 2]],
  ["AQ", [1]],
  ["-_8", [251, 255]],
  ["+/8", null],
  ["AQ==", null],
  ["AR", null],
  ["A", null],
  ["", null],
  ["A Q", null],
])("base64url: %j", (text, bytes) => {
  expect(fromBase64Url(text)).toEqual(bytes === null ? null : Uint8Array.from(bytes));
});
