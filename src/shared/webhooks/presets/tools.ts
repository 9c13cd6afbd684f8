import { ok } from "../../result.ts";
import { concat, utf8 } from "../encoding.ts";
import { describedScheme } from "../engine.ts";
import { signing } from "../keys.ts";
import type { WebhookScheme } from "../scheme.ts";
import { signedBody, signedLikeStripe, type Tolerance, USUAL_TOLERANCE_SECONDS } from "./alike.ts";

/** GitHub. Nothing is said of the time. https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries */
export function github(): WebhookScheme {
  return signedBody(
    "github",
    { from: "header:X-Hub-Signature-256", label: "sha256=", encoding: "hex" },
    { deliveryId: "{header:X-GitHub-Delivery}" },
  );
}

/**
 * Linear; ±60 s, as in its SDK. The time is the one in the body: the header Linear-Timestamp isn't signed.
 * https://linear.app/developers/webhooks#securing-webhooks
 */
export function linear({ toleranceSeconds = 60 }: Tolerance = {}): WebhookScheme {
  return signedBody(
    "linear",
    { from: "header:Linear-Signature", encoding: "hex" },
    {
      timestamp: { from: "body:webhookTimestamp", unit: "ms", toleranceSeconds },
      deliveryId: "{header:Linear-Delivery}",
    },
  );
}

/** Vercel, by SHA-1. https://vercel.com/docs/webhooks/webhooks-api#securing-webhooks */
export function vercel(): WebhookScheme {
  return signedBody(
    "vercel",
    { from: "header:x-vercel-signature", encoding: "hex" },
    { algorithm: "hmac-sha1", deliveryId: "{body:id}" },
  );
}

/** Sentry; secrets are an integration's client secret. https://docs.sentry.io/organization/integrations/integration-platform/webhooks/ */
export function sentry(): WebhookScheme {
  return signedBody(
    "sentry",
    { from: "header:Sentry-Hook-Signature", encoding: "hex" },
    { deliveryId: "{header:Request-ID}" },
  );
}

/** WorkOS, whose time is in milliseconds; ±180 s, as in its SDK. https://workos.com/docs/events/data-syncing/webhooks */
export function workos({ toleranceSeconds = 180 }: Tolerance = {}): WebhookScheme {
  return signedLikeStripe("workos", "header:WorkOS-Signature", toleranceSeconds, {
    unit: "ms",
    deliveryId: "{body:id}",
  });
}

/** Mux; ±300 s. https://www.mux.com/docs/core/verify-webhook-signatures */
export function mux({ toleranceSeconds = USUAL_TOLERANCE_SECONDS }: Tolerance = {}): WebhookScheme {
  return signedLikeStripe("mux", "header:Mux-Signature", toleranceSeconds, { deliveryId: "{body:id}" });
}

/** Calendly; ±180 s, as in its samples. https://developer.calendly.com/api-docs/4c305798a61d3-webhook-signatures */
export function calendly({ toleranceSeconds = 180 }: Tolerance = {}): WebhookScheme {
  return signedLikeStripe("calendly", "header:Calendly-Webhook-Signature", toleranceSeconds);
}

/** Cal.com. https://cal.com/docs/developing/guides/automation/webhooks */
export function calcom(): WebhookScheme {
  return signedBody(
    "calcom",
    { from: "header:X-Cal-Signature-256", encoding: "hex" },
    { deliveryId: "{body:triggerEvent}:{body:createdAt}:{body:payload.uid?}" },
  );
}

/** Typeform. https://www.typeform.com/developers/webhooks/secure-your-webhooks/ */
export function typeform(): WebhookScheme {
  return signedBody(
    "typeform",
    { from: "header:Typeform-Signature", label: "sha256=", encoding: "base64" },
    { deliveryId: "{body:event_id}" },
  );
}

/** DocuSign Connect, which signs by every key of the account; secrets count as they are shown. https://developers.docusign.com/platform/webhooks/connect/hmac/ */
export function docusign(): WebhookScheme {
  return signedBody(
    "docusign",
    { from: "header:X-DocuSign-Signature-*", encoding: "base64" },
    { deliveryId: "{body:data.envelopeId}:{body:event}:{body:generatedDateTime}" },
  );
}

/** HubSpot's signature v3; secrets are an app's client secret; ±300 s. https://developers.hubspot.com/docs/apps/legacy-apps/authentication/validating-requests */
export function hubspot({ toleranceSeconds = USUAL_TOLERANCE_SECONDS }: Tolerance = {}): WebhookScheme {
  return signedBody(
    "hubspot",
    { from: "header:X-HubSpot-Signature-v3", encoding: "base64" },
    {
      timestamp: { from: "header:X-HubSpot-Request-Timestamp", unit: "ms", toleranceSeconds },
      content: "{method}{decodedUrl}{body}{timestamp}",
    },
  );
}

/** HubSpot's first signature, which can be lengthened and doesn't age: only where there is no v3. Same page as {@link hubspot}. */
export function hubspotV1(): WebhookScheme {
  return hashedByHubspot("hubspot-v1", "{body}");
}

/** HubSpot's second signature, which can be lengthened and doesn't age: only where there is no v3. Same page as {@link hubspot}. */
export function hubspotV2(): WebhookScheme {
  return hashedByHubspot("hubspot-v2", "{method}{url}{body}");
}

function hashedByHubspot(name: string, content: string): WebhookScheme {
  return describedScheme(
    {
      name,
      algorithm: "secret-then-content-sha256",
      key: "utf8",
      signature: { from: "header:X-HubSpot-Signature", encoding: "hex" },
      content,
    },
    (secret) =>
      ok(
        signing(
          async (signed) =>
            new Uint8Array(await crypto.subtle.digest("SHA-256", concat([utf8(secret), signed]))),
        ),
      ),
  );
}
