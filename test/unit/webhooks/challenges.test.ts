import { describe, expect, test } from "vitest";
import { answering } from "../../../src/shared/webhooks/challenge.ts";
import { discord, zoom } from "../../../src/shared/webhooks/presets/messaging.ts";
import type { WebhookRequest } from "../../../src/shared/webhooks/scheme.ts";
import { signWebhook } from "../../../src/shared/webhooks/sign.ts";
import { token } from "../../../src/shared/webhooks/token.ts";
import { contextAt, readyWith } from "../../support/webhook-schemes.ts";

const NOW = new Date("2026-01-02T03:04:05.678Z");
const ID = "5f6a2c1e-0000-4000-8000-000000000001";
const bytes = (text: string) => new Uint8Array(new TextEncoder().encode(text));
const post = (body: string, headers: Record<string, string> = {}): WebhookRequest => ({
  method: "POST",
  url: "https://h.example/hook",
  headers: new Headers(headers),
  body: bytes(body),
});

describe("challenges", () => {
  test("Discord: an event of type 1 is no ping", async () => {
    const pair = await crypto.subtle.generateKey("Ed25519", true, ["sign", "verify"]);
    if (!("privateKey" in pair)) throw new Error("no pair");
    const secret = Buffer.from(await crypto.subtle.exportKey("raw", pair.publicKey)).toString("hex");
    const answerTo = async (body: string) => {
      const timestamp = String(Math.floor(NOW.getTime() / 1000));
      const signature = await crypto.subtle.sign("Ed25519", pair.privateKey, bytes(timestamp + body));
      const request = post(body, {
        "X-Signature-Timestamp": timestamp,
        "X-Signature-Ed25519": Buffer.from(signature).toString("hex"),
      });
      const ready = readyWith(discord(), secret);
      const verdict = await ready.verify(request, contextAt(NOW));
      return verdict.ok ? ready.answer?.(verdict.value, contextAt(NOW)) : "refused";
    };
    expect(await answerTo('{"type": 1}')).toMatchObject({ status: 200, body: '{"type":1}' });
    expect(await answerTo('{"type": 0}')).toMatchObject({ status: 204, body: null });
    expect(await answerTo('{"type": 1, "event": {"type": "ENTITLEMENT_CREATE"}}')).toBeNull();
    expect(await answerTo('{"type": 2}')).toBeNull();
    expect(await answerTo("no JSON")).toBeNull();
  });
  test("Zoom is answered by the secret that it signs by, while secrets rotate", async () => {
    const body = '{"event": "endpoint.url_validation", "payload": {"plainToken": "p"}}';
    const answerOf = async (...secrets: string[]) => {
      const signed = await signWebhook(readyWith(zoom(), "old"), post(body), { now: NOW, id: ID });
      const ready = readyWith(zoom(), ...secrets);
      const verdict = signed && (await ready.verify(signed, contextAt(NOW)));
      return verdict?.ok ? ready.answer?.(verdict.value, contextAt(NOW)) : "refused";
    };
    const alone = await answerOf("old");
    expect(alone).toMatchObject({ status: 200 });
    expect(await answerOf("new", "old")).toEqual(alone);
    expect(await answerOf("new")).toBe("refused");
  });
  test("a challenge without what is to be answered is an event", async () => {
    const ready = readyWith(zoom(), "secret");
    const signed = await signWebhook(ready, post('{"event": "endpoint.url_validation"}'), {
      now: NOW,
      id: ID,
    });
    const verdict = signed && (await ready.verify(signed, contextAt(NOW)));
    expect(verdict?.ok && (await ready.answer?.(verdict.value, contextAt(NOW)))).toBeNull();
  });
  test("a challenge that says by nothing what it is known", () => {
    const handshakes = { challenges: [{ when: {}, respond: "nothing" }] } as const;
    expect(() => answering(zoom(), handshakes)).toThrow("by what it is known");
  });
  test("a MAC wants an HMAC: of a token it would be the token", () => {
    const bare = token({ name: "x", algorithm: "token", signature: { from: "header:x" } });
    const scheme = answering(bare, {
      challenges: [{ when: { "body:a": "b" }, respond: { json: { a: "mac:b" } } }],
    });
    expect(scheme.ready(["secret"], {})).toMatchObject({
      ok: false,
      error: expect.stringContaining("no key of an HMAC"),
    });
  });
});
