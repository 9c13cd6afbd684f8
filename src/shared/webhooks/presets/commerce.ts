import type { WebhookScheme } from "../scheme.ts";
import { signedBody, signedLikeStripe, type Tolerance, USUAL_TOLERANCE_SECONDS } from "./alike.ts";

/** Stripe. The signing secret counts with its `whsec_`; ±300 s. https://docs.stripe.com/webhooks/signature */
export function stripe({ toleranceSeconds = USUAL_TOLERANCE_SECONDS }: Tolerance = {}): WebhookScheme {
  return signedLikeStripe("stripe", "header:Stripe-Signature", toleranceSeconds, { deliveryId: "{body:id}" });
}

/** Paddle Billing; ±300 s, where its SDK takes 5. https://developer.paddle.com/webhooks/signature-verification */
export function paddle({ toleranceSeconds = USUAL_TOLERANCE_SECONDS }: Tolerance = {}): WebhookScheme {
  return signedBody(
    "paddle",
    { from: "header:Paddle-Signature", separator: ";", label: "h1=", encoding: "hex" },
    {
      timestamp: { from: "field:ts", unit: "s", toleranceSeconds },
      content: "{timestamp}:{body}",
      deliveryId: "{body:event_id}",
    },
  );
}

/**
 * Shopify, its webhooks and its newer events; secrets are an app's client secret. Nothing is said of the time.
 * https://shopify.dev/docs/apps/build/webhooks/verify-deliveries
 *
 * The event's id isn't taken as the delivery's: it stands for what the merchant did, and several topics may tell of that.
 */
export function shopify(): WebhookScheme {
  return signedBody(
    "shopify",
    { from: ["header:X-Shopify-Hmac-Sha256", "header:Shopify-Hmac-Sha256"], encoding: "base64" },
    { deliveryId: ["{header:X-Shopify-Webhook-Id}", "{header:Shopify-Webhook-Id}"] },
  );
}

/** Square, which signs the URL as it was registered, and then the body. https://developer.squareup.com/docs/webhooks/step3validate */
export function square(): WebhookScheme {
  return signedBody(
    "square",
    { from: "header:x-square-hmacsha256-signature", encoding: "base64" },
    { content: "{url}{body}", deliveryId: "{body:event_id}" },
  );
}

/** Lemon Squeezy. https://docs.lemonsqueezy.com/help/webhooks/signing-requests */
export function lemonSqueezy(): WebhookScheme {
  return signedBody("lemonsqueezy", { from: "header:X-Signature", encoding: "hex" });
}

// One item a request, as Adyen sends JSON: further ones beside it nobody would have signed.
const ITEM = "body:notificationItems.*.NotificationRequestItem";

/**
 * Adyen's payment webhooks, whose signature stands in the body. The secret is 64 hexadecimal digits.
 * https://docs.adyen.com/development-resources/webhooks/secure-webhooks/verify-hmac-signatures
 *
 * Only the references, the amount, the event and whether it succeeded are signed: `reason`, `eventDate`, `paymentMethod` and
 * `additionalData` can be anyone's.
 */
export function adyen(): WebhookScheme {
  return signedBody(
    "adyen",
    { from: `${ITEM}.additionalData.hmacSignature`, encoding: "base64" },
    {
      key: "hex",
      content: [
        `{${ITEM}.pspReference}`,
        `{${ITEM}.originalReference?}`,
        `{${ITEM}.merchantAccountCode}`,
        `{${ITEM}.merchantReference?}`,
        `{${ITEM}.amount.value?}`,
        `{${ITEM}.amount.currency?}`,
        `{${ITEM}.eventCode}`,
        `{${ITEM}.success}`,
      ].join(":"),
      deliveryId: `{${ITEM}.pspReference}:{${ITEM}.eventCode}:{${ITEM}.success}`,
    },
  );
}

/**
 * Adyen's webhooks for platforms and for management. The secret is 64 hexadecimal digits.
 * https://docs.adyen.com/development-resources/webhooks/secure-webhooks/verify-hmac-signatures
 */
export function adyenPlatform(): WebhookScheme {
  return signedBody("adyen-platform", { from: "header:HmacSignature", encoding: "base64" }, { key: "hex" });
}
