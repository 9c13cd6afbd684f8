import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { WebhookRequest, WebhookScheme } from "../../../src/shared/webhooks/scheme.ts";
import { signWebhook } from "../../../src/shared/webhooks/sign.ts";
import { twilio } from "../../../src/shared/webhooks/twilio.ts";
import { nowOf, requestOf, vectors, withHeader } from "../../support/webhook-vectors.ts";

const SIGNATURE = "X-Twilio-Signature";
const FORM = { "Content-Type": "application/x-www-form-urlencoded" };
const encode = (text: string) => new Uint8Array(new TextEncoder().encode(text));

function readyFor(secrets: readonly string[], scheme: WebhookScheme = twilio()) {
  const ready = scheme.ready(secrets, {});
  if (!ready.ok) throw new Error(ready.error);
  return ready.value;
}

/** Nothing is to be fetched. */
const context = {
  now: new Date(0),
  fetch: () => Promise.reject(new Error("nothing is to be fetched")),
};

const cases = vectors.filter(({ scheme }) => scheme === "twilio");
const valid = cases.filter(({ expect }) => expect === "valid");
const [sample] = valid;
if (sample === undefined) throw new Error("there is no valid vector of Twilio");
const refused = { ok: false, error: expect.objectContaining({ status: "refused" }) };

test.each(cases)("$id: $expect, $note", async (vector) => {
  const request = requestOf(vector);
  const verdict = await readyFor([vector.secret ?? ""]).verify(request, { ...context, now: nowOf(vector) });
  expect(verdict).toEqual(vector.expect === "valid" ? { ok: true, value: request } : refused);
});

/** A header that may be missing, and why. */
const UNNEEDED: Readonly<Record<string, string>> = {
  "twilio-json-bodySHA256": "what the URL has the hash of needn't be called JSON",
  "twilio-json-only": "as above",
  "twilio-quote-signed-raw-seen-escaped": "it has no body",
  "twilio-quote-signed-escaped-seen-raw": "it has no body",
  "twilio-port443-seen-not-signed": "it has no body",
};

describe.each(valid)("$id, changed", (vector) => {
  const request = requestOf(vector);
  const ready = readyFor([vector.secret ?? ""]);
  const isRefused = async (changed: WebhookRequest) =>
    expect(await ready.verify(changed, context)).toEqual(refused);

  test("without its signature, or with it twice", async () => {
    await isRefused(withHeader(request, SIGNATURE, null));
    await isRefused(withHeader(request, SIGNATURE, ""));
    await isRefused(
      withHeader(request, SIGNATURE, `${vector.headers[SIGNATURE]}, ${vector.headers[SIGNATURE]}`),
    );
  });
  test("without its content type", async () => {
    const verdict = await ready.verify(withHeader(request, "Content-Type", null), context);
    expect(verdict.ok).toBe(vector.id in UNNEEDED);
  });
  test("in any character of its signature", async () => {
    const signature = vector.headers[SIGNATURE] ?? "";
    for (let i = 0; i < signature.length; i += 1) {
      const other = signature[i] === "A" ? "B" : "A";
      await isRefused(withHeader(request, SIGNATURE, signature.slice(0, i) + other + signature.slice(i + 1)));
    }
    for (const other of [signature.slice(0, -1), `${signature}=`, `${signature}AAAA`, signature.slice(4)]) {
      await isRefused(withHeader(request, SIGNATURE, other));
    }
  });
  test("in any byte of its body, or longer", async () => {
    for (let i = 0; i < request.body.length; i += 1) {
      await isRefused({ ...request, body: request.body.map((byte, at) => (at === i ? byte ^ 1 : byte)) });
    }
    await isRefused({ ...request, body: Uint8Array.from([...request.body, 0x78]) });
    await isRefused({ ...request, body: Uint8Array.from([0xef, 0xbb, 0xbf, ...request.body]) });
    if (request.body.length > 0) await isRefused({ ...request, body: new Uint8Array() });
  });
  test("as a form instead of what it is, or with nothing in its form", async () => {
    const form = withHeader(request, "Content-Type", "application/x-www-form-urlencoded");
    if (request.body.length > 0) await isRefused({ ...form, body: new Uint8Array() });
    await isRefused({ ...form, body: encode("a=b") });
    await isRefused({ ...withHeader(request, "Content-Type", "application/json"), body: encode("{}") });
  });
  test("at another URL", async () => {
    const url = new URL(request.url);
    url.pathname += "x";
    await isRefused({ ...request, url: url.href });
    for (const changed of [
      request.url.replace("://", "://x"),
      request.url.replace("://", "s://").replace("httpss:", "http:"),
      `${request.url}1`,
      `${request.url}&a=b`,
      request.url.replace(/\?.*$/, ""),
      "",
      "not a URL",
    ]) {
      await isRefused({ ...request, url: changed });
    }
  });
  test("by another token", async () => {
    expect(await readyFor(["another token"]).verify(request, context)).toEqual(refused);
    expect((await readyFor(["another token", vector.secret ?? ""]).verify(request, context)).ok).toBe(true);
  });
});

describe("the public URL", () => {
  const secret = sample.secret ?? "";
  test("stands for the one that a proxy made of it", async () => {
    const vector = cases.find(({ id }) => id === "twilio-url-changed-by-proxy");
    if (vector === undefined) throw new Error("there is no such vector");
    const request = requestOf(vector);
    for (const publicUrl of [
      "https://mycompany.com",
      "https://mycompany.com/",
      "https://MyCompany.com:443",
    ]) {
      const ready = readyFor([secret], twilio({ publicUrl }));
      expect(await ready.verify(request, context)).toEqual({ ok: true, value: request });
    }
    const other = readyFor([secret], twilio({ publicUrl: "https://other.example" }));
    expect(await other.verify(request, context)).toEqual(refused);
  });
  test("replaces the request's, instead of being one more that is tried", async () => {
    const ready = readyFor([secret], twilio({ publicUrl: "https://other.example" }));
    expect(await ready.verify(requestOf(sample), context)).toEqual(refused);
  });
  test("may have a name and a password", async () => {
    const vector = cases.find(({ id }) => id === "twilio-creds-443");
    if (vector === undefined) throw new Error("there is no such vector");
    const ready = readyFor([secret], twilio({ publicUrl: "https://user:pass@mycompany.com" }));
    const request = { ...requestOf(vector), url: "https://origin.internal/myapp.php?foo=1&bar=2" };
    expect((await ready.verify(request, context)).ok).toBe(true);
  });
  test.each([
    "",
    "mycompany.com",
    "ftp://mycompany.com",
    "https://mycompany.com/path",
    "https://mycompany.com?x=1",
    "https://mycompany.com/#x",
  ])("isn't %j", (publicUrl) => {
    expect(() => twilio({ publicUrl })).toThrow("publicUrl");
  });
});

describe("signing", () => {
  const by = { now: new Date(0), id: "delivery-1" };
  const requests: readonly (readonly [string, WebhookRequest])[] = [
    [
      "a form",
      {
        method: "POST",
        url: "https://h.example/x?b='2'+&a=1",
        headers: new Headers(FORM),
        body: encode("b=2&a=1&a=0&c=%2B+"),
      },
    ],
    ["JSON", { method: "POST", url: "https://h.example/x", headers: new Headers(), body: encode('{"a":1}') }],
    [
      "nothing",
      { method: "GET", url: "https://h.example/x?a=1", headers: new Headers(), body: new Uint8Array() },
    ],
  ];
  test.each(requests)("%s", async (_, request) => {
    for (const scheme of [twilio(), twilio({ publicUrl: "https://public.example" })]) {
      const ready = readyFor(["first token", "second token"], scheme);
      const signed = await signWebhook(ready, request, by);
      if (signed === null) throw new Error("it can't sign");
      expect((await ready.verify(signed, context)).ok).toBe(true);
      expect((await readyFor(["first token"], scheme).verify(signed, context)).ok).toBe(true);
      expect(await readyFor(["second token"], scheme).verify(signed, context)).toEqual(refused);
      expect(scheme.deliveryId(signed, undefined)).toBe("delivery-1");
      expect(request.headers.has(SIGNATURE)).toBe(false);
    }
  });
  test("does nothing at a URL that is none", async () => {
    const request = { ...requestOf(sample), headers: new Headers(), url: "nowhere" };
    expect(await signWebhook(readyFor(["token"]), request, by)).toEqual(request);
  });
});

test.each([
  [{ "I-Twilio-Idempotency-Token": "t1" }, { MessageSid: "SM1", MessageStatus: "sent" }, "t1"],
  [{}, { MessageSid: "SM1", MessageStatus: "sent" }, "SM1:sent"],
  [{}, { CallSid: "CA1", CallStatus: "completed", SequenceNumber: "3" }, "CA1:completed:3"],
  [{}, { CallSid: "CA1", CallStatus: "in-progress", Digits: "1" }, undefined],
  [{}, { MessageSid: ["SM1", "SM2"], MessageStatus: "sent" }, undefined],
  [{}, null, undefined],
  [{}, undefined, undefined],
])("a delivery's id: %j, %j", (headers, payload, id) => {
  const request = { ...requestOf(sample), headers: new Headers(Object.entries(headers)) };
  expect(twilio().deliveryId(request, payload)).toBe(id);
});

test.each([[[]], [[""]], [[" token"]], [["token", "token\n"]]])(
  "tokens of %j are refused, unquoted",
  (secrets) => {
    const ready = twilio().ready(secrets, {});
    expect(ready).toEqual({ ok: false, error: expect.not.stringContaining("token") });
  },
);

test("whatever comes is refused, and nothing is thrown", async () => {
  const ready = readyFor(["a token"]);
  const proxied = readyFor(["a token"], twilio({ publicUrl: "https://public.example" }));
  const latin1 = fc.string({
    unit: fc
      .integer({ min: 0x20, max: 0xff })
      .filter((code) => code !== 0x7f)
      .map((code) => String.fromCharCode(code)),
  });
  await fc.assert(
    fc.asyncProperty(
      fc.oneof(latin1, fc.constantFrom(sample.headers[SIGNATURE] ?? "")),
      fc.oneof(
        fc.webUrl({ withQueryParameters: true, withFragments: true }),
        fc.string(),
        fc.constant("data:,["),
      ),
      fc.constantFrom("application/json", "application/x-www-form-urlencoded", ""),
      fc.uint8Array(),
      async (signature, url, type, body) => {
        const headers = new Headers({ [SIGNATURE]: signature, "Content-Type": type });
        const request = { method: "POST", url, headers, body: Uint8Array.from(body) };
        expect(await ready.verify(request, context)).toEqual(refused);
        expect(await proxied.verify(request, context)).toEqual(refused);
      },
    ),
  );
});
