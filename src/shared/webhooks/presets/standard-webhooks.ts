import { hmac } from "../hmac.ts";
import { publicKey } from "../public-key.ts";
import type { WebhookScheme } from "../scheme.ts";
import { type Tolerance, USUAL_TOLERANCE_SECONDS } from "./alike.ts";

/**
 * Standard Webhooks: OpenAI, Replicate, Supabase, Polar, Render and many more. Secrets `whsec_…`, with the prefix or without; ±300 s.
 * https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
 */
export function standardWebhooks(options: Tolerance = {}): WebhookScheme {
  return signedLikeSvix("standard-webhooks", "webhook", options);
}

/** Svix: the maths of Standard Webhooks under headers of its own; ±300 s. https://docs.svix.com/receiving/verifying-payloads/how-manual */
export function svix(options: Tolerance = {}): WebhookScheme {
  return signedLikeSvix("svix", "svix", options);
}

/** OpenAI: Standard Webhooks; ±300 s. https://platform.openai.com/docs/guides/webhooks */
export function openai(options: Tolerance = {}): WebhookScheme {
  return signedLikeSvix("openai", "webhook", options);
}

/** Replicate: Standard Webhooks; ±300 s. https://replicate.com/docs/topics/webhooks/verify-webhook */
export function replicate(options: Tolerance = {}): WebhookScheme {
  return signedLikeSvix("replicate", "webhook", options);
}

/** Clerk: Svix; ±300 s. https://clerk.com/docs/webhooks/sync-data */
export function clerk(options: Tolerance = {}): WebhookScheme {
  return signedLikeSvix("clerk", "svix", options);
}

/** Resend: Svix; ±300 s. https://resend.com/docs/dashboard/webhooks/verify-webhooks-requests */
export function resend(options: Tolerance = {}): WebhookScheme {
  return signedLikeSvix("resend", "svix", options);
}

/**
 * Standard Webhooks by Ed25519, signatures `v1a,…`; the secret is the sender's public key, `whpk_…`; ±300 s. Same page as
 * {@link standardWebhooks}.
 */
export function standardWebhooksByPublicKey({
  toleranceSeconds = USUAL_TOLERANCE_SECONDS,
}: Tolerance = {}): WebhookScheme {
  return publicKey({
    ...svixParts("standard-webhooks", "webhook", toleranceSeconds),
    algorithm: "ed25519",
    key: "whpk",
    signature: { from: "header:webhook-signature", separator: " ", label: "v1a,", encoding: "base64" },
  });
}

function signedLikeSvix(
  name: string,
  prefix: "webhook" | "svix",
  { toleranceSeconds = USUAL_TOLERANCE_SECONDS }: Tolerance,
): WebhookScheme {
  return hmac({
    ...svixParts(name, prefix, toleranceSeconds),
    algorithm: "hmac-sha256",
    key: "whsec",
    signature: { from: `header:${prefix}-signature`, separator: " ", label: "v1,", encoding: "base64" },
  });
}

function svixParts(name: string, prefix: "webhook" | "svix", toleranceSeconds: number) {
  return {
    name,
    timestamp: { from: `header:${prefix}-timestamp`, unit: "s", toleranceSeconds },
    content: `{header:${prefix}-id}.{timestamp}.{body}`,
    deliveryId: `{header:${prefix}-id}`,
  } as const;
}
