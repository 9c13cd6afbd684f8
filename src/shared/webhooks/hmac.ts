import { err, ok, type Result } from "../result.ts";
import type { HmacSigned } from "./description.ts";
import { type Bytes, fromBase64 } from "./encoding.ts";
import { describedScheme } from "./engine.ts";
import { bytesOf, type Key, once, orElse, signing } from "./keys.ts";
import type { WebhookScheme } from "./scheme.ts";

const MIN_KEY_BYTES = 16;

/**
 * Describes how a provider signs by HMAC, in one go and without code. Most presets are made of it; so is a provider that has none.
 *
 * A signature is looked for, its timestamp compared with the clock, and only then is the content put together, byte for byte as it
 * came, and the signature compared with it in constant time. JSON is parsed only where a place in the body is named.
 *
 * @param description see {@link HmacSigned}; times in seconds
 * @returns the scheme of a source. Its secrets are checked when the source is made ready: white space around them, keys that aren't
 *   what `key` says, and keys that are too short are refused by name. All secrets verify, the first one signs.
 * @throws Error for a description that can't be meant
 *
 * @example A provider that sends `Acme-Signature: t=1700000000,v1=5257a8…`
 * ```ts
 * hmac({
 *   name: "acme",
 *   algorithm: "hmac-sha256",
 *   key: "utf8",
 *   signature: { from: "header:Acme-Signature", separator: ",", label: "v1=", encoding: "hex" },
 *   timestamp: { from: "field:t", unit: "s", toleranceSeconds: 300 },
 *   content: "{timestamp}.{body}",
 *   deliveryId: "{body:id}",
 * })
 * ```
 */
export function hmac(description: HmacSigned): WebhookScheme {
  return describedScheme(description, keyOf);
}

function keyOf(secret: string, { algorithm, key: encoding }: HmacSigned): Result<Key, string> {
  const bytes = encoding === "whsec" ? whsecBytes(secret) : bytesOf(secret, encoding);
  if (!bytes.ok) return bytes;
  if (encoding !== "utf8" && bytes.value.length < MIN_KEY_BYTES) {
    return err(`is too short: a key has ${MIN_KEY_BYTES} bytes or more`);
  }
  const parameters = { name: "HMAC", hash: `SHA-${algorithm.slice("hmac-sha".length)}` };
  const key = once(() => crypto.subtle.importKey("raw", bytes.value, parameters, false, ["sign"]));
  return ok(
    signing(async (content) => new Uint8Array(await crypto.subtle.sign("HMAC", await key(), content))),
  );
}

function whsecBytes(secret: string): Result<Bytes, string> {
  if (/^wh[ps]k_/.test(secret)) return err("is a key for Ed25519, and not whsec_ and base64");
  // Supabase puts the version of the signature before it.
  return orElse(fromBase64(secret.replace(/^(?:v1,)?whsec_/, "")), "whsec_ and base64 with its padding");
}
