import { answering } from "../challenge.ts";
import type { BodyPlace } from "../description.ts";
import { publicKey } from "../public-key.ts";
import type { WebhookScheme } from "../scheme.ts";
import { signedBody, signedLikeSlack, type Tolerance, USUAL_TOLERANCE_SECONDS } from "./alike.ts";

const CHALLENGE: BodyPlace = "body:challenge";

/** Slack, its URL verification answered; ±300 s. https://docs.slack.dev/authentication/verifying-requests-from-slack */
export function slack({ toleranceSeconds = USUAL_TOLERANCE_SECONDS }: Tolerance = {}): WebhookScheme {
  const scheme = signedLikeSlack(
    "slack",
    "header:X-Slack-Signature",
    "header:X-Slack-Request-Timestamp",
    toleranceSeconds,
    { deliveryId: ["{body:event_id}", "{body:trigger_id}"] },
  );
  return answering(scheme, {
    challenges: [{ when: { "body:type": "url_verification" }, respond: { text: CHALLENGE } }],
  });
}

/** Zoom, its URL validation answered; ±300 s. https://developers.zoom.us/docs/api/webhooks/#verify-webhook-events */
export function zoom({ toleranceSeconds = USUAL_TOLERANCE_SECONDS }: Tolerance = {}): WebhookScheme {
  const scheme = signedLikeSlack(
    "zoom",
    "header:x-zm-signature",
    "header:x-zm-request-timestamp",
    toleranceSeconds,
  );
  return answering(scheme, {
    challenges: [
      {
        when: { "body:event": "endpoint.url_validation" },
        respond: {
          json: { plainToken: "body:payload.plainToken", encryptedToken: "mac:payload.plainToken" },
        },
      },
    ],
  });
}

/**
 * Discord, interactions and webhook events, the pings of both answered; the secret is the application's public key, 64 hexadecimal
 * digits; ±300 s. https://discord.com/developers/docs/interactions/overview#setting-up-an-endpoint
 */
export function discord({ toleranceSeconds = USUAL_TOLERANCE_SECONDS }: Tolerance = {}): WebhookScheme {
  const scheme = publicKey({
    name: "discord",
    algorithm: "ed25519",
    key: "hex",
    signature: { from: "header:X-Signature-Ed25519", encoding: "hex" },
    timestamp: { from: "header:X-Signature-Timestamp", unit: "s", toleranceSeconds },
    content: "{timestamp}{body}",
    deliveryId: "{body:id}",
  });
  return answering(scheme, {
    challenges: [
      // Type 1 is an interaction's ping, and a webhook event that is none.
      { when: { "body:type": "1", "body:event": null }, respond: { json: { type: 1 } } },
      { when: { "body:type": "0" }, respond: "nothing" },
    ],
  });
}

/** Twitch EventSub, its challenge answered; ±600 s. https://dev.twitch.tv/docs/eventsub/handling-webhook-events */
export function twitch({ toleranceSeconds = 600 }: Tolerance = {}): WebhookScheme {
  const scheme = signedBody(
    "twitch",
    { from: "header:Twitch-Eventsub-Message-Signature", label: "sha256=", encoding: "hex" },
    {
      timestamp: { from: "header:Twitch-Eventsub-Message-Timestamp", unit: "rfc3339", toleranceSeconds },
      content: "{header:Twitch-Eventsub-Message-Id}{timestamp}{body}",
      deliveryId: "{header:Twitch-Eventsub-Message-Id}",
    },
  );
  return answering(scheme, {
    challenges: [
      {
        when: { "header:Twitch-Eventsub-Message-Type": "webhook_callback_verification" },
        respond: { text: CHALLENGE },
      },
    ],
  });
}

/**
 * Meta: WhatsApp, Messenger, Instagram and the rest; secrets are the app's.
 * https://developers.facebook.com/docs/graph-api/webhooks/getting-started
 *
 * @param verifyTokenVariable names the variable with the token that was made up for `hub.verify_token`
 */
export function meta({ verifyTokenVariable }: { readonly verifyTokenVariable: string }): WebhookScheme {
  const scheme = signedBody("meta", {
    from: "header:X-Hub-Signature-256",
    label: "sha256=",
    encoding: "hex",
  });
  return answering(scheme, {
    greeting: {
      when: { "query:hub.mode": "subscribe" },
      token: "query:hub.verify_token",
      variable: verifyTokenVariable,
      respond: { text: "query:hub.challenge" },
    },
  });
}

/** Intercom, by SHA-1; secrets are the app's client secret. https://developers.intercom.com/docs/webhooks/setting-up-webhooks */
export function intercom(): WebhookScheme {
  return signedBody(
    "intercom",
    { from: "header:X-Hub-Signature", label: "sha1=", encoding: "hex" },
    { algorithm: "hmac-sha1", deliveryId: "{body:id}" },
  );
}

/**
 * SendGrid's Event Webhook; the secret is its verification key, base64; ±25 h, since it isn't known whether a retry, which may come
 * a day late, is signed anew. https://www.twilio.com/docs/sendgrid/for-developers/tracking-events/getting-started-event-webhook-security-features
 */
export function sendgrid({ toleranceSeconds = 90_000 }: Tolerance = {}): WebhookScheme {
  return publicKey({
    name: "sendgrid",
    algorithm: "ecdsa-p256",
    key: "spki",
    signature: { from: "header:X-Twilio-Email-Event-Webhook-Signature", encoding: "base64" },
    timestamp: { from: "header:X-Twilio-Email-Event-Webhook-Timestamp", unit: "s", toleranceSeconds },
    content: "{timestamp}{body}",
  });
}

/**
 * Mailgun's event webhooks in JSON; the secret is the HTTP webhook signing key; ±9 h, since retries go on for 8 with the first
 * signature. https://documentation.mailgun.com/docs/mailgun/user-manual/webhooks/securing-webhooks
 *
 * Only a time and a token are signed, and nothing of the event: whoever has seen one request can send others, and nothing but the
 * token, which is the delivery's id, tells.
 */
export function mailgun({ toleranceSeconds = 32_400 }: Tolerance = {}): WebhookScheme {
  return signedBody(
    "mailgun",
    { from: "body:signature.signature", encoding: "hex" },
    {
      timestamp: { from: "body:signature.timestamp", unit: "s", toleranceSeconds },
      content: "{timestamp}{body:signature.token}",
      deliveryId: "{body:signature.token}",
    },
  );
}
