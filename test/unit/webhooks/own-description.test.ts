import { createHmac } from "node:crypto";
import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import type { WebhookRequest } from "../../../src/shared/webhooks/scheme.ts";
import { answering, hmac } from "../../../src/webhooks.ts";
import { accepts, contextAt, readyWith } from "../../support/webhook-schemes.ts";

// The worked example of docs/webhooks.md, word for word: the last test compares them.
const signed = hmac({
  name: "parcelbox",
  algorithm: "hmac-sha512",
  key: "base64",
  signature: { from: "header:Parcelbox-Signature", separator: ",", label: "v2=", encoding: "base64" },
  timestamp: { from: "header:Parcelbox-Time", unit: "ms", toleranceSeconds: 300 },
  content: "{header:Parcelbox-Event}.{timestamp}.{body}",
  deliveryId: "{header:Parcelbox-Event}",
});
const parcelbox = answering(signed, {
  challenges: [{ when: { "body:type": "ping" }, respond: { json: { token: "body:token" } } }],
});

const SECRET = "cGFyY2VsYm94LXRlc3Qtc2VjcmV0LTAwMQ==";
const OLD_SECRET = "cGFyY2VsYm94LXRlc3Qtc2VjcmV0LTAwMA==";
const NOW = new Date("2026-01-02T03:04:05.678Z");
const BODY = '{"type":"parcel.delivered","parcel":"p-1"}';

/** What the provider sends, by Node's own HMAC: `by` are the secrets that it signs by. */
function sent(body = BODY, { by = [SECRET], time = NOW.getTime(), label = "v2=" } = {}): WebhookRequest {
  const signatures = by.map((secret) => {
    const mac = createHmac("sha512", Buffer.from(secret, "base64")).update(`evt-7.${time}.${body}`);
    return `${label}${mac.digest("base64")}`;
  });
  return {
    method: "POST",
    url: "https://h.example/webhooks/parcelbox",
    headers: new Headers({
      "Parcelbox-Event": "evt-7",
      "Parcelbox-Time": String(time),
      "Parcelbox-Signature": signatures.join(", "),
    }),
    body: new TextEncoder().encode(body),
  };
}

describe("a provider that was described by hand", () => {
  const ready = readyWith(parcelbox, SECRET);

  test("what it signed is accepted, under its own id", async () => {
    expect(await accepts(ready, sent(), NOW)).toBe(true);
    expect(parcelbox.deliveryId(sent(), JSON.parse(BODY))).toBe("evt-7");
  });
  test("while secrets rotate, either of them will do on either side", async () => {
    expect(await accepts(ready, sent(BODY, { by: [OLD_SECRET, SECRET] }), NOW)).toBe(true);
    expect(
      await accepts(readyWith(parcelbox, SECRET, OLD_SECRET), sent(BODY, { by: [OLD_SECRET] }), NOW),
    ).toBe(true);
    expect(await accepts(ready, sent(BODY, { by: [OLD_SECRET] }), NOW)).toBe(false);
  });
  test("another body, another event, another label: refused", async () => {
    const genuine = sent();
    const headers = new Headers(genuine.headers);
    headers.set("Parcelbox-Event", "evt-8");
    expect(await accepts(ready, { ...genuine, body: new TextEncoder().encode(`${BODY} `) }, NOW)).toBe(false);
    expect(await accepts(ready, { ...genuine, headers }, NOW)).toBe(false);
    expect(await accepts(ready, sent(BODY, { label: "v1=" }), NOW)).toBe(false);
  });
  test.each([
    [300_000, true],
    [-300_000, true],
    [300_001, false],
    [-300_001, false],
  ])("a time that is %i ms away: %s", async (away, isAccepted) => {
    expect(await accepts(ready, sent(BODY, { time: NOW.getTime() + away }), NOW)).toBe(isAccepted);
  });
  test("its ping is answered, an event isn't", async () => {
    const answerTo = async (body: string) => {
      const verified = await ready.verify(sent(body), contextAt(NOW));
      if (!verified.ok) throw new Error(verified.error.reason);
      return ready.answer?.(verified.value, contextAt(NOW));
    };
    expect(await answerTo('{"type":"ping","token":"t-1"}')).toEqual({
      status: 200,
      headers: { "Content-Type": "application/json" },
      body: '{"token":"t-1"}',
    });
    expect(await answerTo(BODY)).toBeNull();
  });
});

test("docs/webhooks.md quotes this description as it is", () => {
  const quoted = /const signed = hmac\(\{.*?\nconst parcelbox.*?\n\}\);/s;
  const read = (path: string) => readFileSync(new URL(path, import.meta.url), "utf8");
  const [here] = quoted.exec(read("./own-description.test.ts")) ?? [];
  const [there] = quoted.exec(read("../../../docs/webhooks.md")) ?? [];
  expect(here).toContain("Parcelbox-Signature");
  expect(there).toBe(here);
});
