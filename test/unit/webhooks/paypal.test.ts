import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { paypal } from "../../../src/shared/webhooks/paypal.ts";
import type { WebhookRequest, WebhookScheme } from "../../../src/shared/webhooks/scheme.ts";
import {
  contextServing,
  nowOf,
  requestOf,
  type Vector,
  vectors,
  withHeader,
} from "../../support/webhook-vectors.ts";

const [SIGNATURE, CERTIFICATE] = ["PAYPAL-TRANSMISSION-SIG", "PAYPAL-CERT-URL"];
const cases = vectors.filter(({ scheme }) => scheme === "paypal");
const valid = cases.filter(({ expect }) => expect === "valid");
const [sample] = valid;
if (sample === undefined) throw new Error("there is no valid vector of PayPal");
const WEBHOOK_ID = sample.secret ?? "";
const [PEM = ""] = Object.values(sample.certs ?? {});

function readyFor(webhookIds: readonly string[] = [WEBHOOK_ID], scheme: WebhookScheme = paypal()) {
  const ready = scheme.ready(webhookIds, {});
  if (!ready.ok) throw new Error(ready.error);
  return ready.value;
}

/** A vector's time and certificates. `calls` counts how often they were asked for. */
const contextOf = ({ certs = {}, ...vector }: Vector) => contextServing(nowOf(vector), certs);

const refused = { ok: false, error: expect.objectContaining({ status: "refused" }) };
const unavailable = { ok: false, error: expect.objectContaining({ status: "unavailable" }) };

test.each(cases)("$id: $expect, $note", async (vector) => {
  const request = requestOf(vector);
  const verdict = await readyFor([vector.secret ?? ""]).verify(request, contextOf(vector));
  expect(verdict).toEqual(vector.expect === "valid" ? { ok: true, value: request } : refused);
});

describe.each(valid)("$id, changed", (vector) => {
  const request = requestOf(vector);
  const context = contextOf(vector);
  const ready = readyFor();
  const isRefused = async (changed: WebhookRequest) =>
    expect(await ready.verify(changed, context)).toEqual(refused);

  test.each(Object.keys(vector.headers))("without %s, or with it twice, or empty", async (name) => {
    await isRefused(withHeader(request, name, null));
    await isRefused(withHeader(request, name, ""));
    await isRefused(withHeader(request, name, `${request.headers.get(name)}, ${request.headers.get(name)}`));
  });
  test.each([
    ["PAYPAL-TRANSMISSION-TIME", "2016-09-21T22:00:47Z"],
    ["PAYPAL-AUTH-ALGO", "SHA1withRSA"],
    ["PAYPAL-AUTH-ALGO", "sha256withrsa"],
  ])("with another %s", (name, value) => isRefused(withHeader(request, name, value)));
  test("in any character of its signature", async () => {
    const signature = vector.headers[SIGNATURE] ?? "";
    for (let i = 0; i < signature.length; i += 1) {
      const other = signature[i] === "A" ? "B" : "A";
      await isRefused(withHeader(request, SIGNATURE, signature.slice(0, i) + other + signature.slice(i + 1)));
    }
    for (const other of [signature.slice(0, -1), `${signature}=`, ` ${signature}AAAA`, signature.slice(4)]) {
      await isRefused(withHeader(request, SIGNATURE, other));
    }
  });
  test("in any byte of its body, or shorter, or longer", async () => {
    for (let i = 0; i < request.body.length; i += 1) {
      await isRefused({ ...request, body: request.body.map((byte, at) => (at === i ? byte ^ 1 : byte)) });
    }
    await isRefused({ ...request, body: request.body.slice(0, -1) });
    await isRefused({ ...request, body: Uint8Array.from([...request.body, 0]) });
    await isRefused({ ...request, body: new Uint8Array() });
  });
  test("for another webhook", async () => {
    expect(await readyFor(["0AB12345CD678901E"]).verify(request, context)).toEqual(refused);
    expect((await readyFor(["0AB12345CD678901E", WEBHOOK_ID]).verify(request, context)).ok).toBe(true);
  });
});

describe("a certificate", () => {
  const request = requestOf(sample);
  const url = sample.headers[CERTIFICATE] ?? "";

  test.each([
    "http://api.paypal.com/v1/notifications/certs/CERT-1",
    "https://evil.example/v1/notifications/certs/CERT-1",
    "https://api.paypal.com.evil.example/v1/notifications/certs/CERT-1",
    "https://evil.example/https://api.paypal.com/v1/notifications/certs/CERT-1",
    "https://api.paypal.com@evil.example/v1/notifications/certs/CERT-1",
    "https://user:pass@api.paypal.com/v1/notifications/certs/CERT-1",
    "https://api.paypal.com:444/v1/notifications/certs/CERT-1",
    "https://api.paypal.com\\@evil.example/v1/notifications/certs/CERT-1",
    "https://apixpaypal.com/v1/notifications/certs/CERT-1",
    "https://www.paypal.com/v1/notifications/certs/CERT-1",
    "https://api.paypal.com/v1/notifications/certs/../../redirect",
    "https://api.paypal.com/v1/notifications/certs/CERT-1?to=https://evil.example",
    "https://api.paypal.com/v1/notifications/certs/CERT-1#",
    "HTTPS://API.PAYPAL.COM/v1/notifications/certs/CERT-1",
    "https://api.sandbox.paypal.com/v1/notifications/certs/CERT-1",
  ])("at %s is refused, and not fetched", async (other) => {
    const context = contextOf({ ...sample, certs: { [other]: PEM } });
    expect(await readyFor().verify(withHeader(request, CERTIFICATE, other), context)).toEqual(refused);
    expect(context.calls).toEqual([]);
  });
  test("of the sandbox is for the sandbox, and the other way round", async () => {
    const sandboxUrl = url.replace("api.", "api.sandbox.");
    const context = contextOf({ ...sample, certs: { [url]: PEM, [sandboxUrl]: PEM } });
    const ready = readyFor([WEBHOOK_ID], paypal({ sandbox: true }));
    expect((await ready.verify(withHeader(request, CERTIFICATE, sandboxUrl), context)).ok).toBe(true);
    expect(await ready.verify(request, context)).toEqual(refused);
  });
  test("is fetched once a day", async () => {
    const context = contextOf(sample);
    const ready = readyFor();
    const later = (hours: number) => ({
      ...context,
      now: new Date(context.now.getTime() + hours * 3_600_000),
    });
    for (const hours of [0, 1, 24]) expect((await ready.verify(request, later(hours))).ok).toBe(true);
    expect(context.calls).toEqual([url]);
    await ready.verify(request, later(24.1));
    expect(context.calls).toEqual([url, url]);
  });
  test("may have others behind it", async () => {
    const context = contextOf({ ...sample, certs: { [url]: `${PEM}\n${PEM}` } });
    expect((await readyFor().verify(request, context)).ok).toBe(true);
  });
  test.each(["", "<html>", `${PEM}more`, PEM.replace("M", "*"), PEM.slice(0, 400)])(
    "that is none leaves it open: %#",
    async (text) => {
      const context = contextOf({ ...sample, certs: { [url]: text } });
      expect(await readyFor().verify(request, context)).toEqual(unavailable);
    },
  );
  test("that can't be fetched leaves it open", async () => {
    expect(await readyFor().verify(request, contextOf({ ...sample, certs: {} }))).toEqual(unavailable);
    const fetch = () => Promise.reject(new Error("no route"));
    expect(await readyFor().verify(request, { ...contextOf(sample), fetch })).toEqual(unavailable);
  });
});

test.each(["", " 9XL90610J3647323C", "9XL9|0610", "9XL90610J3647323C\n", "https://x"])(
  "a webhook's id of %j is refused, unquoted",
  (id) => {
    const ready = paypal().ready([WEBHOOK_ID, id], {});
    expect(ready).toEqual({ ok: false, error: expect.stringContaining("is not a webhook's id") });
    if (!ready.ok && id !== "") expect(ready.error).not.toContain(id);
  },
);

test("no webhook's id is refused", () => {
  expect(paypal().ready([], {})).toEqual({ ok: false, error: "is missing" });
});

test("a delivery's id is the event's", () => {
  const request = requestOf(sample);
  expect(paypal().deliveryId(request, { id: "WH-1" })).toBe("WH-1");
  for (const payload of [undefined, null, [], "text", { id: {} }]) {
    expect(paypal().deliveryId(request, payload)).toBeUndefined();
  }
});

test("whatever comes is refused, and nothing is thrown", async () => {
  const latin1 = fc.string({
    unit: fc
      .integer({ min: 0x20, max: 0xff })
      .filter((code) => code !== 0x7f)
      .map((code) => String.fromCharCode(code)),
  });
  const ready = readyFor();
  const context = contextOf(sample);
  await fc.assert(
    fc.asyncProperty(
      fc.constantFrom(...Object.keys(sample.headers)),
      latin1,
      fc.uint8Array(),
      async (name, value, body) => {
        const given = { ...requestOf(sample), body: Uint8Array.from(body) };
        expect(await ready.verify(withHeader(given, name, value), context)).toEqual(refused);
      },
    ),
  );
});
