import { expect } from "vitest";
import type { ReadyScheme, WebhookRequest, WebhookScheme } from "../../src/shared/webhooks/scheme.ts";
import {
  adyen,
  adyenPlatform,
  awa,
  calcom,
  calendly,
  clerk,
  discord,
  docusign,
  github,
  hubspot,
  hubspotV1,
  hubspotV2,
  intercom,
  lemonSqueezy,
  linear,
  mailgun,
  meta,
  mux,
  openai,
  paddle,
  publicKey,
  replicate,
  resend,
  sendgrid,
  sentry,
  sharedHeader,
  shopify,
  slack,
  square,
  standardWebhooks,
  stripe,
  svix,
  twitch,
  typeform,
  vercel,
  workos,
  zoom,
} from "../../src/webhooks.ts";
import type { Vector } from "./webhook-vectors.ts";

/** One of the engine's schemes, under the name that the vectors have for it. */
export interface Entry {
  readonly make: (options?: { toleranceSeconds?: number }) => WebhookScheme;
  /** How far from now a request may be by default; absent where its time isn't looked at. */
  readonly toleranceSeconds?: number;
  /** Another good secret than those of the vectors. */
  readonly otherSecret: string;
  /** What of the body isn't signed, and why that is so. */
  readonly bodyUnsigned?: string;
}

const WHSEC = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX";
const HEX_KEY = "11".repeat(32);
/** The public key of RFC 8032's third test. */
const ED25519_KEY = "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025";
const P256_KEY =
  "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEi2MX4DlMdC+EPEowBX0qS7mkgwN9BrQT1Hnm2Rpe9Yav+RzVuI8a+d2TGBPdD190Egsuj2QKkBd/QX2xDx9HtA==";
const plain = { otherSecret: "another secret" };
const whsec = { toleranceSeconds: 300, otherSecret: WHSEC };

export const VERIFY_TOKEN = "META_VERIFY_TOKEN";
export const HEADER_OF_CHOICE = "X-Webhook-Secret";

/** Every scheme of the engine. */
export const ENTRIES: Readonly<Record<string, Entry>> = {
  "standard-webhooks": { make: standardWebhooks, ...whsec },
  svix: { make: svix, ...whsec },
  openai: { make: openai, ...whsec },
  replicate: { make: replicate, ...whsec },
  clerk: { make: clerk, ...whsec },
  resend: { make: resend, ...whsec },
  stripe: { make: stripe, toleranceSeconds: 300, ...plain },
  mux: { make: mux, toleranceSeconds: 300, ...plain },
  calendly: { make: calendly, toleranceSeconds: 180, ...plain },
  workos: { make: workos, toleranceSeconds: 180, ...plain },
  paddle: { make: paddle, toleranceSeconds: 300, ...plain },
  slack: { make: slack, toleranceSeconds: 300, ...plain },
  zoom: { make: zoom, toleranceSeconds: 300, ...plain },
  twitch: { make: twitch, toleranceSeconds: 600, ...plain },
  linear: { make: linear, toleranceSeconds: 60, ...plain },
  "hubspot-v3": { make: hubspot, toleranceSeconds: 300, ...plain },
  "hubspot-v1": { make: hubspotV1, ...plain },
  "hubspot-v2": { make: hubspotV2, ...plain },
  github: { make: github, ...plain },
  shopify: { make: shopify, ...plain },
  square: { make: square, ...plain },
  meta: { make: () => meta({ verifyTokenVariable: VERIFY_TOKEN }), ...plain },
  vercel: { make: vercel, ...plain },
  sentry: { make: sentry, ...plain },
  lemonsqueezy: { make: lemonSqueezy, ...plain },
  calcom: { make: calcom, ...plain },
  intercom: { make: intercom, ...plain },
  typeform: { make: typeform, ...plain },
  docusign: { make: docusign, ...plain },
  "adyen-platform": { make: adyenPlatform, otherSecret: HEX_KEY },
  adyen: { make: adyen, otherSecret: HEX_KEY, bodyUnsigned: "only eight of its fields are signed" },
  mailgun: {
    make: mailgun,
    toleranceSeconds: 32_400,
    ...plain,
    bodyUnsigned: "only a time and a token are signed",
  },
  discord: { make: discord, toleranceSeconds: 300, otherSecret: ED25519_KEY },
  sendgrid: { make: sendgrid, toleranceSeconds: 90_000, otherSecret: P256_KEY },
  awa: {
    make: () => awa({ after: "callbacks" }),
    otherSecret: HEX_KEY,
    bodyUnsigned: "only the callback's id is signed",
  },
  assemblyai: {
    make: () => sharedHeader({ header: HEADER_OF_CHOICE }),
    otherSecret: "another-secret",
    bodyUnsigned: "a token signs nothing",
  },
  ed25519: {
    make: () =>
      publicKey({
        name: "ed25519",
        algorithm: "ed25519",
        key: "hex",
        signature: { from: "header:sig", encoding: "hex" },
        content: "{body}",
      }),
    otherSecret: ED25519_KEY,
  },
};

/** What no header may be accepted with. */
export const JUNK = [
  "",
  " ",
  ",",
  "=",
  "v1",
  "v1,",
  "v1=",
  "sha256=",
  "t=,v1=",
  "null",
  "=".repeat(100),
  "A".repeat(44),
  "0".repeat(64),
  "9".repeat(400),
  "-1",
  "1e9",
  "0x10",
  "\u00ff\u00fe",
  "v1,A v1,B ".repeat(200),
];

export function entryOf(name: string): Entry {
  const entry = ENTRIES[name];
  if (entry === undefined) throw new Error(`no scheme ${name}`);
  return entry;
}

/** The scheme of a vector, with its tolerance. */
export function schemeOf({ scheme, tolerance }: Vector): WebhookScheme {
  return entryOf(scheme).make(tolerance === undefined ? {} : { toleranceSeconds: tolerance });
}

/** A scheme with these secrets, which are good ones. */
export function readyWith(scheme: WebhookScheme, ...secrets: readonly string[]): ReadyScheme {
  const ready = scheme.ready(secrets, { [VERIFY_TOKEN]: secrets[0] ?? "" });
  expect(ready).toMatchObject({ ok: true });
  if (!ready.ok) throw new Error(ready.error);
  return ready.value;
}

/** Nothing of the engine fetches. */
export function contextAt(now: Date) {
  return {
    now,
    fetch: async (): Promise<never> => {
      throw new Error("fetched");
    },
  };
}

/** Whether a request is accepted. What isn't is refused, for a reason; nothing is thrown. */
export async function accepts(ready: ReadyScheme, request: WebhookRequest, now: Date): Promise<boolean> {
  const verdict = await ready.verify(request, contextAt(now));
  if (!verdict.ok && (verdict.error.status !== "refused" || verdict.error.reason === "")) {
    throw new Error(`not refused: ${JSON.stringify(verdict.error)}`);
  }
  return verdict.ok;
}
