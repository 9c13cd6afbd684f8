import { blake3 } from "@noble/hashes/blake3.js";
import { bytesToHex, utf8ToBytes } from "@noble/hashes/utils.js";
import { expect, test } from "vitest";
import { fal } from "../../src/shared/webhooks/fal.ts";
import { googleOidc } from "../../src/shared/webhooks/google-oidc.ts";
import { cloudEventsOptions, eventGridValidation } from "../../src/shared/webhooks/handshakes.ts";
import { paypal } from "../../src/shared/webhooks/paypal.ts";
import { sharedHeader } from "../../src/shared/webhooks/presets/tokens.ts";
import type { ReadyScheme, VerifyContext, WebhookScheme } from "../../src/shared/webhooks/scheme.ts";
import { sns } from "../../src/shared/webhooks/sns.ts";
import { twilio } from "../../src/shared/webhooks/twilio.ts";
import { schemeOf } from "../support/webhook-schemes.ts";
import { nowOf, requestOf, type Vector, vectors } from "../support/webhook-vectors.ts";

// Every known answer in the runtime that verifies them in production: its Web Crypto isn't Node's. What makes a vector valid, and
// what else must be refused, is tested in `unit`.

const OUR_TOKEN = "a-token-of-ours";

/** The schemes with code of their own, as the vectors mean them. */
const OWN_CODE: Readonly<Record<string, () => WebhookScheme>> = {
  twilio,
  fal,
  paypal,
  sns: () =>
    sns({
      topicArns: vectors
        .filter(({ scheme }) => scheme === "sns")
        .map(({ body = "{}" }) => String(JSON.parse(body).TopicArn)),
    }),
  "pubsub-oidc": () =>
    googleOidc({ audience: "https://example.com/hook", email: "push@proj.iam.gserviceaccount.com" }),
  cloudevents: () =>
    cloudEventsOptions({ scheme: sharedHeader({ header: "Authorization", label: "Bearer " }) }),
  eventgrid: eventGridValidation,
};

function readyFor(vector: Vector): ReadyScheme | null {
  const scheme = OWN_CODE[vector.scheme]?.() ?? schemeOf(vector);
  const secret = vector.secret ?? OUR_TOKEN;
  const variables = Object.fromEntries(scheme.variables.map((name) => [name, secret]));
  const ready = scheme.ready(scheme.secrets === "required" ? [secret] : [], variables);
  return ready.ok ? ready.value : null;
}

/** The vector's time, its certificates and its keys. */
function contextOf(vector: Vector): VerifyContext {
  const { certs = {}, jwks } = vector;
  return {
    now: nowOf(vector),
    async fetch({ url }) {
      if (url in certs) return new Response(certs[url] ?? null);
      return jwks === undefined ? new Response(null, { status: 404 }) : Response.json(jwks);
    },
  };
}

/** Whether its request is accepted: as an event, or as the handshake that its provider begins with. */
async function isAccepted(vector: Vector): Promise<boolean> {
  const ready = readyFor(vector);
  // A secret that can't be one verifies nothing.
  if (ready === null) return false;
  const request = requestOf(vector);
  // A GET may as well be an event that is signed: a handshake has a request of its own.
  if (vector.request !== undefined && request.method !== "POST") {
    const { status } = vector.response ?? {};
    const answer = await ready.greet?.(request);
    return answer != null && answer.status === status && status < 300;
  }
  const verdict = await ready.verify(request, contextOf(vector));
  if (!verdict.ok) expect(verdict.error.status).toBe("refused");
  return verdict.ok;
}

test.each(vectors.filter(({ scheme }) => scheme !== "blake3-keyed" && scheme !== "eventgrid"))(
  "$scheme $id: $expect",
  async (vector) => {
    expect(await isAccepted(vector)).toBe(vector.expect === "valid");
  },
);

test.each(vectors.filter(({ scheme }) => scheme === "eventgrid"))("$scheme $id: $expect", async (vector) => {
  // Its secret is in its URL, which is ours.
  const url = `https://h.example/hook?code=${OUR_TOKEN}`;
  const [ready, context] = [readyFor(vector), contextOf(vector)];
  const verdict = await ready?.verify({ ...requestOf(vector), url }, context);
  const answer = verdict?.ok ? await ready?.answer?.(verdict.value, context) : null;
  expect(JSON.parse(answer?.body ?? "null")).toEqual(vector.response?.json);
});

test.each(vectors.filter(({ scheme }) => scheme === "blake3-keyed"))("$scheme $id", (vector) => {
  const key = utf8ToBytes(vector.secret ?? "");
  expect(bytesToHex(blake3(requestOf(vector).body, { key }))).toBe(vector.headers.expected);
});

test("there are vectors of every kind", () => {
  expect(vectors.length).toBeGreaterThan(250);
  expect(new Set(vectors.map(({ expect: expected }) => expected))).toEqual(new Set(["valid", "invalid"]));
});
