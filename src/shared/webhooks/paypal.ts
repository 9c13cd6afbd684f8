import { err, ok } from "../result.ts";
import { type Bytes, fromBase64, utf8 } from "./encoding.ts";
import { readerOf, sourceOf, textOf } from "./places.ts";
import { accept, type WebhookRequest, type WebhookScheme } from "./scheme.ts";
import { certificates } from "./x509.ts";

const LIVE_CERTIFICATE = /^https:\/\/api\.paypal\.com\/v1\/notifications\/certs\/[\w-]+$/;
const SANDBOX_CERTIFICATE = /^https:\/\/api\.sandbox\.paypal\.com\/v1\/notifications\/certs\/[\w-]+$/;

const readId = readerOf("body:id");
const READERS = [
  readerOf("header:PAYPAL-TRANSMISSION-ID"),
  readerOf("header:PAYPAL-TRANSMISSION-TIME"),
  readerOf("header:PAYPAL-TRANSMISSION-SIG"),
  readerOf("header:PAYPAL-CERT-URL"),
  readerOf("header:PAYPAL-AUTH-ALGO"),
];

/** What may be said about PayPal. */
export interface PaypalOptions {
  /**
   * Whether events come from the sandbox, whose certificates are others. It is one or the other: nobody in the sandbox is to make
   * live events.
   *
   * @default false
   */
  readonly sandbox?: boolean;
}

/**
 * PayPal: RSA with SHA-256, by a certificate that each request names; the secret is the webhook's id, which PayPal shows beside its
 * URL, and which isn't very secret. https://developer.paypal.com/api/rest/webhooks/rest/#link-verifymessage
 *
 * Of the body only a CRC-32 is signed, which anyone can make another body fit: whoever has seen one request can send others, and
 * nothing but https guards against that. Look an event up at PayPal before money depends on it. No time is looked at, since it isn't
 * known whether retries, which go on for three days, are signed anew: the body's `id`, the delivery's id, tells them.
 */
export function paypal({ sandbox = false }: PaypalOptions = {}): WebhookScheme {
  const known = certificates({ chain: true });
  return {
    name: "paypal",
    secrets: "required",
    variables: [],
    deliveryId: (request, payload) => textOf(readId({ request, json: () => payload })),
    ready(webhookIds) {
      if (webhookIds.length === 0) return err("is missing");
      if (!webhookIds.every((id) => /^\w+$/.test(id))) {
        return err("is not a webhook's id, which has letters and digits and nothing else");
      }
      return ok({
        async verify(request, context) {
          const signed = signedOf(request, sandbox ? SANDBOX_CERTIFICATE : LIVE_CERTIFICATE);
          if (typeof signed === "string") return err({ status: "refused", reason: signed });
          const { start, ...rest } = signed;
          const checksum = crc32(request.body);
          const contents = webhookIds.map((id) => utf8(`${start}|${id}|${checksum}`));
          const fits = await known.fits({ ...rest, hash: "SHA-256", contents }, context);
          return fits.ok ? ok(accept(request)) : fits;
        },
      });
    },
  };
}

/** A request's signature and what it begins to sign, or why it isn't genuine. */
function signedOf(
  request: WebhookRequest,
  certificate: RegExp,
): { readonly certificateUrl: string; readonly signature: Bytes; readonly start: string } | string {
  const source = sourceOf(request);
  const [id, time, base64 = "", certificateUrl = "", algorithm] = READERS.map((read) => textOf(read(source)));
  if (id === undefined || time === undefined) return "it lacks a header that PayPal signs, or has it twice";
  if (algorithm !== "SHA256withRSA") return "it is signed by another algorithm than SHA256withRSA";
  // Compared as text: what a parser would make of it doesn't matter.
  if (!certificate.test(certificateUrl)) return "its certificate isn't one of PayPal's";
  const signature = fromBase64(base64);
  if (signature === null) return "it has no signature of the right form";
  return { certificateUrl, signature, start: `${id}|${time}` };
}

const CRC_TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let value = byte;
  for (let bit = 0; bit < 8; bit += 1) value = (value >>> 1) ^ (value & 1 ? 0xedb88320 : 0);
  return value;
});

/** The CRC-32 of zip and PNG, as an unsigned number. https://www.w3.org/TR/png-3/#D-CRCAppendix */
function crc32(bytes: Uint8Array): number {
  let crc = 0xffffffff;
  for (const byte of bytes) crc = (crc >>> 8) ^ (CRC_TABLE[(crc ^ byte) & 0xff] ?? 0);
  return (crc ^ 0xffffffff) >>> 0;
}
