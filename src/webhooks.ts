// What a source of webhooks is written with: src/sources.ts shows how. Whatever isn't used isn't in the bundle.

export {
  complete,
  defineSource,
  fail,
  heartbeat,
  ignore,
  resolve,
  resume,
  retry,
  type SourceOptions,
  type WebhookEvent,
} from "./shared/registry/source.ts";
export { answering, type Handshakes } from "./shared/webhooks/challenge.ts";
export type { HmacSigned, PublicKeySigned, TokenSent } from "./shared/webhooks/description.ts";
export { fal } from "./shared/webhooks/fal.ts";
export { googleOidc } from "./shared/webhooks/google-oidc.ts";
export { cloudEventsOptions, eventGridToken, eventGridValidation } from "./shared/webhooks/handshakes.ts";
export { hmac } from "./shared/webhooks/hmac.ts";
export { paypal } from "./shared/webhooks/paypal.ts";
export {
  adyen,
  adyenPlatform,
  lemonSqueezy,
  paddle,
  shopify,
  square,
  stripe,
} from "./shared/webhooks/presets/commerce.ts";
export {
  discord,
  intercom,
  mailgun,
  meta,
  sendgrid,
  slack,
  twitch,
  zoom,
} from "./shared/webhooks/presets/messaging.ts";
export {
  clerk,
  openai,
  replicate,
  resend,
  standardWebhooks,
  standardWebhooksByPublicKey,
  svix,
} from "./shared/webhooks/presets/standard-webhooks.ts";
export { awa, sharedHeader } from "./shared/webhooks/presets/tokens.ts";
export {
  calcom,
  calendly,
  docusign,
  github,
  hubspot,
  hubspotV1,
  hubspotV2,
  linear,
  mux,
  sentry,
  typeform,
  vercel,
  workos,
} from "./shared/webhooks/presets/tools.ts";
export { publicKey } from "./shared/webhooks/public-key.ts";
export type { WebhookScheme } from "./shared/webhooks/scheme.ts";
export { sns } from "./shared/webhooks/sns.ts";
export { token } from "./shared/webhooks/token.ts";
export { twilio } from "./shared/webhooks/twilio.ts";
