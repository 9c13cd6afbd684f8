import type { HeaderPlace, HmacSigned, SignaturePlace, SignedTime } from "../description.ts";
import { hmac } from "../hmac.ts";
import type { WebhookScheme } from "../scheme.ts";

/** How far the time of a signature may be from now, into the past and into the future alike. */
export interface Tolerance {
  /** Seconds; each preset says which it takes where nothing is said. */
  readonly toleranceSeconds?: number;
}

/** Five minutes, which most providers recommend and most of their libraries take. */
export const USUAL_TOLERANCE_SECONDS = 300;

/** HMAC-SHA256 of the body, by the secret as it is: what most providers do. `more` says what is otherwise. */
export function signedBody(
  name: string,
  signature: SignaturePlace,
  more: Partial<Omit<HmacSigned, "name" | "signature">> = {},
): WebhookScheme {
  return hmac({ name, algorithm: "hmac-sha256", key: "utf8", content: "{body}", signature, ...more });
}

/** `t=1700000000,v1=5257a8…` over the time, a dot and the body: Stripe's way, which others took over. */
export function signedLikeStripe(
  name: string,
  from: HeaderPlace,
  toleranceSeconds: number,
  { unit = "s", ...more }: Pick<HmacSigned, "deliveryId"> & { readonly unit?: SignedTime["unit"] } = {},
): WebhookScheme {
  return signedBody(
    name,
    { from, separator: ",", label: "v1=", encoding: "hex" },
    { timestamp: { from: "field:t", unit, toleranceSeconds }, content: "{timestamp}.{body}", ...more },
  );
}

/** `v0=a2114d…` over `v0:`, the time, a colon and the body: Slack's way, and Zoom's. */
export function signedLikeSlack(
  name: string,
  from: HeaderPlace,
  time: HeaderPlace,
  toleranceSeconds: number,
  more: Pick<HmacSigned, "deliveryId"> = {},
): WebhookScheme {
  return signedBody(
    name,
    { from, label: "v0=", encoding: "hex" },
    { timestamp: { from: time, unit: "s", toleranceSeconds }, content: "v0:{timestamp}:{body}", ...more },
  );
}
