import { describe, expect, test } from "vitest";
import type { HmacSigned, TokenSent, WebhookDescription } from "../../../src/shared/webhooks/description.ts";
import { hmac } from "../../../src/shared/webhooks/hmac.ts";
import { sharedHeader } from "../../../src/shared/webhooks/presets/tokens.ts";
import type { WebhookRequest } from "../../../src/shared/webhooks/scheme.ts";
import { signWebhook } from "../../../src/shared/webhooks/sign.ts";
import { token } from "../../../src/shared/webhooks/token.ts";
import { accepts, contextAt, readyWith } from "../../support/webhook-schemes.ts";

const NOW = new Date("2026-01-02T03:04:05.678Z");
const ID = "5f6a2c1e-0000-4000-8000-000000000001";
const bytes = (text: string) => new Uint8Array(new TextEncoder().encode(text));
const post = (
  body: string,
  headers: Record<string, string> = {},
  url = "https://h.example/hook/7?code=k",
): WebhookRequest => ({
  method: "POST",
  url,
  headers: new Headers(headers),
  body: bytes(body),
});

const acme: HmacSigned = {
  name: "acme",
  algorithm: "hmac-sha256",
  key: "utf8",
  signature: { from: "header:Acme-Signature", separator: ",", label: "v1=", encoding: "hex" },
  timestamp: { from: "field:t", unit: "s", toleranceSeconds: 300 },
  content: "{timestamp}.{body}",
};

describe("a provider that has no preset", () => {
  const descriptions: readonly (HmacSigned | TokenSent)[] = [
    acme,
    {
      ...acme,
      algorithm: "hmac-sha512",
      signature: { from: "header:x", separator: " ", label: "v9,", encoding: "base64" },
    },
    { ...acme, timestamp: { from: "header:x-time", unit: "rfc3339", toleranceSeconds: 1 } },
    { ...acme, timestamp: { from: "body:sent.at", unit: "ms", toleranceSeconds: 1 }, content: "{body}" },
    {
      ...acme,
      content: "{method} {url}\n{timestamp}\n{sha256}\n{query:code}{query:none?}{segment:hook}{header:x-id}",
      deliveryId: "{header:x-id}",
    },
    {
      ...acme,
      signature: { from: "body:a.1.*.b", encoding: "hex" },
      timestamp: { from: "body:t", unit: "s", toleranceSeconds: 9 },
      content: "{timestamp}{body:id}",
      deliveryId: "{body:id}",
    },
    { name: "query", algorithm: "token", signature: { from: "query:code" } },
    { name: "bearer", algorithm: "token", signature: { from: "header:Authorization", label: "Bearer " } },
  ];
  test.each(descriptions.map((description, i) => ({ i, description })))(
    "is signed and verified: $i",
    async ({ description }) => {
      const scheme = description.algorithm === "token" ? token(description) : hmac(description);
      const ready = readyWith(scheme, "secret");
      const signed = await signWebhook(ready, post('{"sent": {"by": 1}}'), { now: NOW, id: ID });
      if (signed === null) throw new Error("doesn't sign");
      expect(await accepts(ready, signed, NOW)).toBe(true);
      expect(await accepts(readyWith(scheme, "fecret"), signed, NOW)).toBe(false);
    },
  );

  test("the content is what it says, byte for byte", async () => {
    const content =
      "{method}|{url}|{decodedUrl}|{header:x-a}|{body:a.b}|{body:a.c?}|{body:list.*}|{body:list.0}|{body:n}|{body:ok}";
    const scheme = hmac({
      ...acme,
      signature: { from: "header:s", encoding: "hex" },
      content: `${content}|{sha256}|{timestamp}`,
      timestamp: { from: "header:x-t", unit: "s", toleranceSeconds: 9 },
    });
    const body = '\ufeff{"a": {"b": "é"}, "list": ["only"], "n": 1.50, "ok": true}';
    const url = "https://h.example/a%2fb%2C%20%5B";
    const signed = await signWebhook(readyWith(scheme, "secret"), post(body, { "x-a": "A" }, url), {
      now: NOW,
      id: ID,
    });
    const digest = Buffer.from(await crypto.subtle.digest("SHA-256", bytes(body))).toString("hex");
    const expected = `POST|${url}|https://h.example/a/b,%20%5B|A|é||only|only|1.5|true|${digest}|1767323045`;
    const key = await crypto.subtle.importKey(
      "raw",
      bytes("secret"),
      { name: "HMAC", hash: "SHA-256" },
      false,
      ["sign"],
    );
    const mac = Buffer.from(await crypto.subtle.sign("HMAC", key, bytes(expected))).toString("hex");
    expect(signed?.headers.get("s")).toBe(mac);
  });

  test("a request that lacks what is signed isn't signed, and is refused for that", async () => {
    const ready = readyWith(
      hmac({ ...acme, content: "{timestamp}{header:x-a}{body:__proto__.x}" }),
      "secret",
    );
    const signed = await signWebhook(ready, post("{}"), { now: NOW, id: ID });
    expect(signed?.headers.has("Acme-Signature")).toBe(false);
    const forged = post("{}", { "Acme-Signature": `t=${Math.floor(NOW.getTime() / 1000)},v1=00` });
    expect(await ready.verify(forged, contextAt(NOW))).toMatchObject({
      ok: false,
      error: { reason: expect.stringContaining("header:x-a is signed") },
    });
  });

  test("more than a hundred signatures aren't compared", async () => {
    const ready = readyWith(hmac(acme), "secret");
    const signed = await signWebhook(ready, post("{}"), { now: NOW, id: ID });
    const given = signed?.headers.get("Acme-Signature") ?? "";
    const padded = (count: number) => post("{}", { "Acme-Signature": `${given}${",v1=00".repeat(count)}` });
    expect(await accepts(ready, padded(99), NOW)).toBe(true);
    expect(await accepts(ready, padded(100), NOW)).toBe(false);
  });
});

describe("a delivery's id", () => {
  const idOf = (
    deliveryId: string | readonly string[],
    payload: unknown,
    headers: Record<string, string> = {},
  ) => hmac({ ...acme, deliveryId }).deliveryId(post("no JSON", headers), payload);
  test("comes from a header or from the parsed body; the first that is there counts", () => {
    expect(idOf("{header:X-Id}", null, { "x-id": "7" })).toBe("7");
    expect(idOf("{body:a.id}", { a: { id: 7 } })).toBe("7");
    expect(idOf(["{header:x-id}", "{body:id}"], { id: "b" })).toBe("b");
    expect(idOf("{body:id}:{body:type?}", { id: "b" })).toBe("b:");
  });
  test("is undefined where it is missing, doubled, or no text", () => {
    expect(idOf("{header:x-id}", null, { "x-id": "7, 8" })).toBeUndefined();
    expect(idOf("{header:x-id}", null)).toBeUndefined();
    for (const payload of [
      undefined,
      null,
      7,
      "id",
      [],
      {},
      { id: null },
      { id: {} },
      { id: ["7"] },
      { id: "" },
    ]) {
      expect(idOf("{body:id}", payload)).toBeUndefined();
    }
    expect(hmac(acme).deliveryId(post("{}"), { id: 7 })).toBeUndefined();
    expect(idOf("{body:constructor}", {})).toBeUndefined();
    expect(idOf("{body:length}", "text")).toBeUndefined();
  });
});

describe("a description that can't be meant throws", () => {
  const place = acme.signature;
  test.each<[string, HmacSigned]>([
    ["a webhook scheme wants a name", { ...acme, name: "" }],
    ["nowhere where the signature stands", { ...acme, signature: { ...place, from: [] } }],
    ["a label can't have what separates", { ...acme, signature: { ...place, label: "v1," } }],
    ["can't be the name of a header", { ...acme, signature: { ...place, from: "header:Acme Signature" } }],
    ["is no place in a request", { ...acme, content: "{timestamp}{cookie:a}" }],
    ["is no place in a request", { ...acme, content: "{timestamp}{bodyy}" }],
    ["is no place in a request", { ...acme, content: "{timestamp}{toString}" }],
    ["is no place in a request", { ...acme, content: "{timestamp}{header:}" }],
    ["is no place in a request", { ...acme, content: "{timestamp}{body" }],
    ["isn't the path of a field", { ...acme, content: "{timestamp}{body:a..b}" }],
    ["says nothing of a request", { ...acme, content: "hello" }],
    ["says nothing of a request", { ...acme, content: "" }],
    ["is no place in a request", { ...acme, deliveryId: "{timestamp}" }],
    ["is no place in a request", { ...acme, deliveryId: "{body}" }],
    ["in the body can't sign all of it", { ...acme, signature: { from: "body:sig", encoding: "hex" } }],
    [
      "a timestamp in a field wants a separator",
      { ...acme, signature: { from: "header:s", encoding: "hex" } },
    ],
    [
      "can't be told from the signature",
      { ...acme, timestamp: { from: "field:v1", unit: "s", toleranceSeconds: 1 } },
    ],
    ["isn't part of what is signed", { ...acme, content: "{body}" }],
    [
      "isn't part of what is signed",
      { ...acme, timestamp: { from: "header:t", unit: "s", toleranceSeconds: 1 }, content: "{body}" },
    ],
    [
      "a number of seconds above zero",
      { ...acme, timestamp: { from: "field:t", unit: "s", toleranceSeconds: Number.NaN } },
    ],
    [
      "a number of seconds above zero",
      { ...acme, timestamp: { from: "field:t", unit: "s", toleranceSeconds: -1 } },
    ],
  ])("%s", (sentence, description) => {
    expect(() => hmac(description)).toThrow(sentence);
  });
  test("a timestamp that is signed and not described", () => {
    const { timestamp: _, ...timeless } = acme;
    expect(() => hmac(timeless)).toThrow("it says nowhere where that stands");
  });
  test("a header's name that can't be", () => {
    expect(() => sharedHeader({ header: "X Token" })).toThrow("can't be the name of a header");
  });
  test("nonsense doesn't compile", () => {
    const nonsense = [
      // @ts-expect-error A place has a sort.
      { ...acme, signature: { from: "Acme-Signature", encoding: "hex" } } satisfies WebhookDescription,
      // @ts-expect-error Only headers may be several.
      { ...acme, signature: { from: ["body:a", "header:b"], encoding: "hex" } } satisfies WebhookDescription,
      // @ts-expect-error A label ends in what parts it from the signature.
      { ...acme, signature: { ...acme.signature, label: "v1" } } satisfies WebhookDescription,
      {
        name: "x",
        algorithm: "token",
        signature: { from: "header:x" },
        // @ts-expect-error A token signs nothing.
        content: "{body}",
      } satisfies WebhookDescription,
      // @ts-expect-error Ed25519 has no whsec_.
      { ...acme, algorithm: "ed25519", key: "whsec" } satisfies WebhookDescription,
      // @ts-expect-error MD5 isn't offered.
      { ...acme, algorithm: "hmac-md5" } satisfies WebhookDescription,
      // @ts-expect-error A time has a unit.
      { ...acme, timestamp: { from: "field:t", toleranceSeconds: 300 } } satisfies WebhookDescription,
    ];
    expect(nonsense).toHaveLength(7);
  });
});
