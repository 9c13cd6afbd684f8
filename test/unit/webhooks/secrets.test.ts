import { describe, expect, test } from "vitest";
import { sendgrid } from "../../../src/shared/webhooks/presets/messaging.ts";
import { standardWebhooksByPublicKey } from "../../../src/shared/webhooks/presets/standard-webhooks.ts";
import type { WebhookRequest } from "../../../src/shared/webhooks/scheme.ts";
import { signWebhook } from "../../../src/shared/webhooks/sign.ts";
import { accepts, ENTRIES, entryOf, readyWith, VERIFY_TOKEN } from "../../support/webhook-schemes.ts";
import { nowOf, requestOf, vectors } from "../../support/webhook-vectors.ts";

const NOW = new Date("2026-01-02T03:04:05.678Z");
const ID = "5f6a2c1e-0000-4000-8000-000000000001";
const HEX_KEY = "0f".repeat(32);

function problem(scheme: string, ...secrets: readonly string[]): string | null {
  const ready = entryOf(scheme)
    .make()
    .ready(secrets, { [VERIFY_TOKEN]: "token" });
  return ready.ok ? null : ready.error;
}

describe("secrets are checked before any request, and never quoted", () => {
  test.each([
    ["stripe", "", "is empty"],
    ["stripe", "whsec_abc\n", "begins or ends with white space"],
    ["stripe", " whsec_abc", "begins or ends with white space"],
    ["standard-webhooks", "whsec_", "is not whsec_ and base64 with its padding"],
    ["standard-webhooks", "whsec_!!!!", "is not whsec_ and base64 with its padding"],
    ["standard-webhooks", "whsec_AAECAwQFBgcICQoLDA0ODw", "is not whsec_ and base64 with its padding"],
    ["standard-webhooks", "whsec_AAECAwQFBgcICQoLDA0O", "is too short: a key has 16 bytes or more"],
    ["standard-webhooks", "whsk_AAECAwQFBgcICQoLDA0ODw==", "is a key for Ed25519, and not whsec_ and base64"],
    ["adyen", "abc", "is not hexadecimal digits"],
    ["adyen", "0f".repeat(15), "is too short: a key has 16 bytes or more"],
    ["discord", "0f".repeat(31), "is not a public key of 32 bytes"],
    ["awa", "0f".repeat(16), "is not 64 hexadecimal digits"],
    [
      "sendgrid",
      "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE",
      "is not the SPKI of a P-256 key in base64, without a PEM's header and line breaks",
    ],
    ["assemblyai", "s\u00e9cret", "has characters that no header can have"],
  ])("%s %j: %s", (scheme, secret, reason) => {
    expect(problem(scheme, secret)).toBe(reason);
  });
  test("which of several is wrong is said", () => {
    expect(problem("stripe", "good", "bad ")).toBe("begins or ends with white space (secret 2 of 2)");
    expect(problem("stripe")).toBe("is missing");
  });
  test.each([
    "whsec_AAECAwQFBgcICQoLDA0ODw==",
    "v1,whsec_AAECAwQFBgcICQoLDA0ODw==",
    "AAECAwQFBgcICQoLDA0ODw==",
  ])("%s is good", (secret) => {
    expect(problem("standard-webhooks", secret)).toBeNull();
  });
  test("a public key that is on no curve refuses, doesn't throw, and is no hindrance to another", async () => {
    const [vector] = vectors.filter(({ scheme, expect }) => scheme === "sendgrid" && expect === "valid");
    if (vector === undefined) throw new Error("no vector");
    const offCurve = `${(vector.secret ?? "").slice(0, 40)}AAAA${(vector.secret ?? "").slice(44)}`;
    const [request, now] = [requestOf(vector), nowOf(vector)];
    expect(await accepts(readyWith(sendgrid(), offCurve), request, now)).toBe(false);
    expect(await accepts(readyWith(sendgrid(), offCurve, vector.secret ?? ""), request, now)).toBe(true);
  });
});

/** What a signed request needs beside what signing adds. */
const BODIES: Readonly<Record<string, string>> = {
  adyen:
    '{"notificationItems": [{"NotificationRequestItem": {"pspReference": "p", "merchantAccountCode": "m", "eventCode": "E", "success": "true", "amount": {"value": 10, "currency": "EUR"}}}]}',
};
/** They have public keys for secrets, and only the provider can sign. */
const PUBLIC_KEYS = ["discord", "sendgrid", "ed25519"];
/** Where the delivery's id is a header, or is signed in the body. */
const HAVE_OUR_ID = [
  "clerk",
  "github",
  "linear",
  "mailgun",
  "openai",
  "replicate",
  "resend",
  "sentry",
  "shopify",
  "standard-webhooks",
  "svix",
  "twitch",
];
const given = (scheme: string): WebhookRequest => ({
  method: "POST",
  url: "https://h.example/api/callbacks/abc/complete?x=a%2Fb",
  headers: new Headers({ "X-Other": "kept" }),
  body: new Uint8Array(new TextEncoder().encode(BODIES[scheme] ?? '{"id": "evt_1", "n": 1}')),
});
const parsed = ({ body }: WebhookRequest): unknown => JSON.parse(new TextDecoder().decode(body));

describe("signing and rotation", () => {
  const SECRETS: Readonly<Record<string, string>> = {
    whsec: "whsec_DAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwM",
    hex: HEX_KEY,
    utf8: "first secret",
  };
  const firstSecret = (scheme: string) => {
    const { otherSecret } = entryOf(scheme);
    if (otherSecret.startsWith("whsec_")) return SECRETS.whsec ?? "";
    return (/^[0-9a-f]{64}$/.test(otherSecret) ? SECRETS.hex : SECRETS.utf8) ?? "";
  };

  test.each(Object.keys(ENTRIES).filter((name) => !PUBLIC_KEYS.includes(name)))(
    "%s: what it signs it accepts, by the first secret and beside others",
    async (name) => {
      const { make, otherSecret } = entryOf(name);
      const [scheme, secret] = [make(), firstSecret(name)];
      const ready = readyWith(scheme, secret, otherSecret);
      const signed = await signWebhook(ready, given(name), { now: NOW, id: ID });
      if (signed === null) throw new Error("doesn't sign");
      expect(signed.headers.get("X-Other")).toBe("kept");
      expect(await accepts(ready, signed, NOW)).toBe(true);
      expect(await accepts(readyWith(scheme, secret), signed, NOW)).toBe(true);
      expect(await accepts(readyWith(scheme, otherSecret, secret), signed, NOW)).toBe(true);
      expect(await accepts(readyWith(scheme, otherSecret), signed, NOW)).toBe(false);
      if (HAVE_OUR_ID.includes(name)) expect(scheme.deliveryId(signed, parsed(signed))).toBe(ID);
    },
  );
  test.each(PUBLIC_KEYS)("%s: nobody but the provider signs", (name) => {
    expect(readyWith(entryOf(name).make(), entryOf(name).otherSecret)).not.toHaveProperty("signing");
  });
  test("every valid vector is accepted beside another secret, whichever comes first", async () => {
    const valid = vectors.filter(
      ({ scheme, expect, request }) => scheme in ENTRIES && expect === "valid" && request?.method !== "GET",
    );
    for (const vector of valid) {
      const { make, otherSecret } = entryOf(vector.scheme);
      for (const secrets of [
        [otherSecret, vector.secret ?? ""],
        [vector.secret ?? "", otherSecret],
      ]) {
        expect(await accepts(readyWith(make(), ...secrets), requestOf(vector), nowOf(vector))).toBe(true);
      }
    }
  });
});

describe("Standard Webhooks by Ed25519", () => {
  test("v1a by the public key, and not v1; nothing signs", async () => {
    const pair = await crypto.subtle.generateKey("Ed25519", true, ["sign", "verify"]);
    if (!("privateKey" in pair)) throw new Error("no pair");
    const whpk = `whpk_${Buffer.from(await crypto.subtle.exportKey("raw", pair.publicKey)).toString("base64")}`;
    const timestamp = String(Math.floor(NOW.getTime() / 1000));
    const content = new TextEncoder().encode(`msg_1.${timestamp}.{}`);
    const signature = Buffer.from(await crypto.subtle.sign("Ed25519", pair.privateKey, content)).toString(
      "base64",
    );
    const request = (sent: string): WebhookRequest => ({
      method: "POST",
      url: "https://h.example/",
      headers: new Headers({
        "webhook-id": "msg_1",
        "webhook-timestamp": timestamp,
        "webhook-signature": sent,
      }),
      body: new Uint8Array(new TextEncoder().encode("{}")),
    });
    const ready = readyWith(standardWebhooksByPublicKey(), whpk);
    expect(await accepts(ready, request(`v1,AAAA v1a,${signature}`), NOW)).toBe(true);
    const labelled = readyWith(standardWebhooksByPublicKey(), `v1a,${whpk}`);
    expect(await accepts(labelled, request(`v1a,${signature}`), NOW)).toBe(true);
    expect(await accepts(ready, request(`v1,${signature}`), NOW)).toBe(false);
    expect(await accepts(ready, request(`v1a,${signature.slice(0, 84)}`), NOW)).toBe(false);
    expect(ready.signing).toBeUndefined();
    expect(standardWebhooksByPublicKey().ready(["whsec_AAECAwQFBgcICQoLDA0ODw=="], {})).toMatchObject({
      error: "is a secret key, and not whpk_ and base64",
    });
  });
});
