import { hmac } from "../hmac.ts";
import type { WebhookScheme } from "../scheme.ts";
import { type Tolerance, USUAL_TOLERANCE_SECONDS } from "./alike.ts";

/** What may be said about Standard Webhooks. */
export interface StandardWebhooksOptions extends Tolerance {
  /**
   * `hmac`: a secret `whsec_…`, signatures `v1,…`. `ed25519`: the sender's public key `whpk_…`, signatures `v1a,…`.
   *
   * @default "hmac"
   */
  readonly signedBy?: "hmac" | "ed25519";
}

/**
 * Standard Webhooks: OpenAI, Replicate, Supabase, Polar, Render and many more. Secrets `whsec_…`, with the prefix or without; ±300 s.
 * https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
 */
export function standardWebhooks(options: StandardWebhooksOptions = {}): WebhookScheme {
  return signedLikeSvix("standard-webhooks", "webhook", options);
}

/** Svix: the maths of Standard Webhooks under headers of its own; ±300 s. https://docs.svix.com/receiving/verifying-payloads/how-manual */
export function svix(options: StandardWebhooksOptions = {}): WebhookScheme {
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

function signedLikeSvix(
  name: string,
  prefix: "webhook" | "svix",
  { signedBy = "hmac", toleranceSeconds = USUAL_TOLERANCE_SECONDS }: StandardWebhooksOptions,
): WebhookScheme {
  const from = `header:${prefix}-signature` as const;
  const described = {
    name,
    timestamp: { from: `header:${prefix}-timestamp`, unit: "s", toleranceSeconds },
    content: `{header:${prefix}-id}.{timestamp}.{body}`,
    deliveryId: `{header:${prefix}-id}`,
  } as const;
  return signedBy === "hmac"
    ? hmac({
        ...described,
        algorithm: "hmac-sha256",
        key: "whsec",
        signature: { from, separator: " ", label: "v1,", encoding: "base64" },
      })
    : hmac({
        ...described,
        algorithm: "ed25519",
        key: "whpk",
        signature: { from, separator: " ", label: "v1a,", encoding: "base64" },
      });
}
