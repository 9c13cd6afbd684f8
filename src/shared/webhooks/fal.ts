import { err, ok } from "../result.ts";
import { type Bytes, fromHex, toHex, utf8 } from "./encoding.ts";
import { fieldsOf, fromBase64Url, jwks } from "./jwks.ts";
import { readerOf, sourceOf, textOf } from "./places.ts";
import { accept, type WebhookRequest, type WebhookScheme } from "./scheme.ts";

const TOLERANCE_SECONDS = 300;
const KEY_BYTES = 32;
const SIGNATURE_BYTES = 64;

const [readRequestId, readUserId, readTimestamp, readSignature] = [
  readerOf("header:X-Fal-Webhook-Request-Id"),
  readerOf("header:X-Fal-Webhook-User-Id"),
  readerOf("header:X-Fal-Webhook-Timestamp"),
  readerOf("header:X-Fal-Webhook-Signature"),
];

/** What may be said about fal. */
export interface FalOptions {
  /**
   * Where its keys are: https. fal has moved them before.
   *
   * @default "https://rest.fal.ai/.well-known/jwks.json"
   */
  readonly jwksUrl?: string;
}

/**
 * fal.ai: Ed25519 by one of the keys that it publishes; ±300 s; no secret. https://docs.fal.ai/model-endpoints/webhooks
 *
 * A request doesn't say which key signed it, so that all are tried. A delivery's id is the `request_id` of its body: fal's gateway
 * has another for each attempt.
 *
 * @throws Error where the URL of the keys isn't https
 */
export function fal({
  jwksUrl = "https://rest.fal.ai/.well-known/jwks.json",
}: FalOptions = {}): WebhookScheme {
  if (!URL.canParse(jwksUrl) || new URL(jwksUrl).protocol !== "https:") {
    throw new Error("the webhook scheme fal: jwksUrl isn't a URL of https");
  }
  const keys = jwks(jwksUrl, async ({ kty, crv, x }) => {
    const raw = kty === "OKP" && crv === "Ed25519" && typeof x === "string" ? fromBase64Url(x) : null;
    return raw?.length === KEY_BYTES
      ? crypto.subtle.importKey("raw", raw, "Ed25519", false, ["verify"])
      : null;
  });
  return {
    name: "fal",
    secrets: "none",
    variables: [],
    deliveryId: (request, payload) =>
      textOf(fieldsOf(payload).request_id) ?? textOf(readRequestId(sourceOf(request))),
    ready: () =>
      ok({
        async verify(request, context) {
          const signed = await signedOf(request, context.now);
          if (typeof signed === "string") return err({ status: "refused", reason: signed });
          const { signature, content } = signed;
          const fits = await keys.fits(
            ({ key }) => crypto.subtle.verify("Ed25519", key, signature, content),
            context,
          );
          return fits.ok ? ok(accept(request)) : fits;
        },
      }),
  };
}

/** The signature and what it is to sign, or why the request isn't genuine. */
async function signedOf(
  request: WebhookRequest,
  now: Date,
): Promise<{ readonly signature: Bytes; readonly content: Bytes } | string> {
  const source = sourceOf(request);
  const [requestId, userId, timestamp, hex] = [readRequestId, readUserId, readTimestamp, readSignature].map(
    (read) => textOf(read(source)),
  );
  if (requestId === undefined || userId === undefined || timestamp === undefined || hex === undefined) {
    return "it lacks one of the headers that fal signs by, or has it twice";
  }
  if (!/^\d{1,12}$/.test(timestamp)) return "its timestamp can't be read";
  if (Math.abs(now.getTime() - Number(timestamp) * 1000) > TOLERANCE_SECONDS * 1000) {
    return `its timestamp is more than ${TOLERANCE_SECONDS} s away from now`;
  }
  const signature = fromHex(hex);
  // workerd throws at a signature of any other length.
  if (signature?.length !== SIGNATURE_BYTES) return "it has no signature of the right form";
  const hash = toHex(new Uint8Array(await crypto.subtle.digest("SHA-256", request.body)));
  return { signature, content: utf8([requestId, userId, timestamp, hash].join("\n")) };
}
