import { describe, expect, test } from "vitest";
import type { WebhookRequest } from "../../../src/shared/webhooks/scheme.ts";
import { accepts, ENTRIES, entryOf, JUNK, readyWith, schemeOf } from "../../support/webhook-schemes.ts";
import { nowOf, requestOf, type Vector, vectors, withHeader } from "../../support/webhook-vectors.ts";

/** Headers that are neither signed nor the signature. */
const UNSIGNED = [
  "content-type",
  "linear-delivery",
  "linear-event",
  "linear-timestamp",
  "protocol",
  "request-id",
  "sentry-hook-resource",
  "twitch-eventsub-message-type",
  "x-hubspot-signature-version",
  "x-shopify-topic",
  "x-shopify-webhook-id",
];
/** They have several signatures, of which one fits: what becomes of the others doesn't matter. */
const SEVERAL_SIGNATURES = [
  "docusign-second-header",
  "openai-multi",
  "paddle-multi",
  "paddle-multi-first-matches",
  "stripe-dup-header-joined",
  "stripe-v0-and-v1",
  "sw-multi-second-matches",
  "sw-multi-third-matches",
];
/** A list that may have commas: one that comes twice is a longer list, of which one item has to fit. */
const LISTS = [
  "calendly-webhook-signature",
  "mux-signature",
  "stripe-signature",
  "svix-signature",
  "webhook-signature",
  "workos-signature",
];
/** Of a long body every so many bytes are changed. */
const BODY_SAMPLES = 150;

const valid = vectors.filter(
  ({ scheme, expect, request }) => scheme in ENTRIES && expect === "valid" && request?.method !== "GET",
);
const readHeaders = (vector: Vector) =>
  Object.keys(vector.headers).filter((name) => !UNSIGNED.includes(name.toLowerCase()));

/** The same request with some headers otherwise; `null`: without it. */
function changedAt(bytes: Uint8Array, at: number): Uint8Array<ArrayBuffer> {
  const changed = Uint8Array.from(bytes);
  changed[at] = (changed[at] ?? 0) ^ 1;
  return changed;
}

/** Refuses them all, and accepts the genuine one before and after. */
async function refusesAll(
  vector: Vector,
  forged: readonly (readonly [what: string, request: WebhookRequest])[],
) {
  const ready = readyWith(schemeOf(vector), vector.secret ?? "");
  const now = nowOf(vector);
  expect(await accepts(ready, requestOf(vector), now)).toBe(true);
  const verdicts = await Promise.all(
    forged.map(async ([what, request]) => ((await accepts(ready, request, now)) ? what : null)),
  );
  expect(verdicts.filter((what) => what !== null)).toEqual([]);
  expect(await accepts(ready, requestOf(vector), now)).toBe(true);
}

test("the mutations have something to change", () => {
  expect(valid.length).toBeGreaterThan(75);
  expect(valid.flatMap(readHeaders).length).toBeGreaterThan(120);
});

describe("refused where", () => {
  test.each(valid.filter((vector) => !SEVERAL_SIGNATURES.includes(vector.id)))(
    "a header of $id is missing, empty, junk, doubled or changed in any one character",
    async (vector) => {
      const request = requestOf(vector);
      const forged = readHeaders(vector).flatMap((name) => {
        const value = request.headers.get(name) ?? "";
        const doubled = LISTS.includes(name.toLowerCase()) ? [] : [`${value}, ${value}`, `${value}, x`];
        const others = [...JUNK, ...doubled, `${value}0`, `0${value}`, value.slice(1), value.slice(0, -1)];
        const changed = [...value].map(
          (char, i) => `${value.slice(0, i)}${char === "0" ? "1" : "0"}${value.slice(i + 1)}`,
        );
        return [null, ...others, ...changed].map(
          (other) => [`${name}: ${other}`, withHeader(request, name, other)] as const,
        );
      });
      await refusesAll(vector, forged);
    },
  );

  test.each(valid.filter(({ scheme }) => entryOf(scheme).bodyUnsigned === undefined))(
    "the body of $id is changed in any one byte, cut or lengthened",
    async (vector) => {
      const request = requestOf(vector);
      const { body } = request;
      const step = Math.ceil(body.length / BODY_SAMPLES);
      const places = [...body.keys()].filter((at) => at % step === 0 || at === body.length - 1);
      const bodies = [
        ...places.map((at) => changedAt(body, at)),
        new Uint8Array([...body, 32]),
        new Uint8Array([...body, 0]),
      ];
      if (body.length > 0) bodies.push(body.slice(1), body.slice(0, -1), new Uint8Array());
      await refusesAll(
        vector,
        bodies.map((other, i) => [`body ${i}`, { ...request, body: other }] as const),
      );
    },
  );

  test.each(valid)("$id is for another secret", async (vector) => {
    const ready = readyWith(schemeOf(vector), entryOf(vector.scheme).otherSecret);
    // The other key of P-256 is that of some vectors.
    const isItsOwn = entryOf(vector.scheme).otherSecret === vector.secret;
    expect(await accepts(ready, requestOf(vector), nowOf(vector))).toBe(isItsOwn);
  });

  test.each(valid.filter(({ scheme }) => entryOf(scheme).toleranceSeconds !== undefined))(
    "$id is too old or too new",
    async (vector) => {
      const { toleranceSeconds = 0 } = entryOf(vector.scheme);
      const ready = readyWith(schemeOf(vector), vector.secret ?? "");
      const at = (seconds: number) => new Date(signedAt(vector).getTime() + seconds * 1000);
      for (const seconds of [-toleranceSeconds, toleranceSeconds]) {
        expect(await accepts(ready, requestOf(vector), at(seconds))).toBe(true);
        expect(await accepts(ready, requestOf(vector), at(seconds + Math.sign(seconds) * 0.001))).toBe(false);
      }
      expect(await accepts(ready, requestOf(vector), at(1e9))).toBe(false);
      expect(await accepts(ready, requestOf(vector), new Date(Number.NaN))).toBe(false);
    },
  );

  test.each(valid.filter(({ scheme }) => ["square", "hubspot-v2", "hubspot-v3", "awa"].includes(scheme)))(
    "$id comes by another URL",
    async (vector) => {
      const request = requestOf(vector);
      // Of Awa's nothing but the id is signed.
      const { url } = request;
      const urls = ["", "no URL", "https://h.example/%ff", "https://h.example/callbacks/%ff"];
      if (vector.scheme === "awa") urls.push(url.replace("/abc/", "/abd/"), url.replace("/abc/", "/%61bd/"));
      else urls.push(url.replace("https", "http"), `${url}?`, `${url}/`, url.replace(".", ".x."));
      await refusesAll(
        vector,
        urls.map((other) => [other, { ...request, url: other }]),
      );
    },
  );
});

/** When a vector was signed, which is about when it arrives. */
function signedAt(vector: Vector): Date {
  const { headers, body } = requestOf(vector);
  const exact: Readonly<Record<string, string | null | undefined>> = {
    workos: "2023-11-14T22:13:20.123Z",
    twitch: headers.get("Twitch-Eventsub-Message-Timestamp")?.replace(/\d{6}Z/, "Z"),
  };
  const given = exact[vector.scheme];
  if (given) return new Date(given);
  const digits = /(?:^|\bts?=|"timestamp": ")(1\d{9})(?:\D|000$|$)/;
  const texts = [...[...headers].map(([, value]) => value), new TextDecoder().decode(body)];
  const seconds = texts.map((text) => digits.exec(text)?.[1]).find((found) => found !== undefined);
  return new Date(Number(seconds) * 1000);
}

describe("signatures in the body", () => {
  const withText = (request: WebhookRequest, change: (text: string) => string): WebhookRequest => ({
    ...request,
    body: new Uint8Array(new TextEncoder().encode(change(new TextDecoder().decode(request.body)))),
  });
  const named = (id: string): Vector => {
    const found = vectors.find((vector) => vector.id === id);
    if (found === undefined) throw new Error(id);
    return found;
  };

  test("Adyen: each signed field, the signature, and an item beside the signed one", async () => {
    const vector = named("adyen-event");
    const change = (from: string | RegExp, to: string) =>
      [String(from), withText(requestOf(vector), (text) => text.replace(from, to))] as const;
    await refusesAll(vector, [
      change('"pspReference": "', "$&x"),
      change('"originalReference": "originalReference", ', ""),
      change('"merchantAccountCode": "', "$&x"),
      change('"merchantReference": "', "$&x"),
      change('"EUR"', '"USD"'),
      change("1000", "10000"),
      change('"eventCode": "EVENT"', '"eventCode": "OTHER"'),
      change('"success": "true"', '"success": "false"'),
      change('"success": "true", ', ""),
      change('"success": "true"', '"success": ["true"]'),
      change("ipnx", "Ipnx"),
      change(/"hmacSignature": "[^"]+"/, '"hmacSignature": null'),
      change(/"additionalData": \{[^}]+\}/, '"additionalData": {}'),
      change(/\]\}$/, ', {"NotificationRequestItem": {"pspReference": "another"}}]}'),
      change(/"notificationItems".*$/, '"notificationItems": []}'),
      change(/^.*$/, "[]"),
      change(/^.*$/, "null"),
      change(/^.*$/, "no JSON"),
    ]);
  });
  test("Mailgun: time, token and signature", async () => {
    const vector = named("mailgun-valid");
    const change = (from: string, to: string) =>
      [from, withText(requestOf(vector), (text) => text.replace(from, to))] as const;
    await refusesAll(vector, [
      change("1700000000", "1700000001"),
      change('"1700000000"', "null"),
      change("50chars", "51chars"),
      change("ff59", "fe59"),
      change("ff59", ""),
      change('"signature": {', '"signature": null, "x": {'),
    ]);
  });
  test("a body of more than a megabyte isn't parsed", async () => {
    const vector = named("mailgun-valid");
    await refusesAll(vector, [
      ["padded", withText(requestOf(vector), (text) => text + " ".repeat(1_048_577))],
    ]);
  });
});
