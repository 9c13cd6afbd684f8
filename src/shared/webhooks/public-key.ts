import { err, ok, type Result } from "../result.ts";
import type { PublicKeySigned } from "./description.ts";
import { type Bytes, fromBase64, rawFromDer } from "./encoding.ts";
import { describedScheme } from "./engine.ts";
import { bytesOf, type Key, once, orElse } from "./keys.ts";
import type { WebhookScheme } from "./scheme.ts";

const ED25519_KEY_BYTES = 32;
const ED25519_SIGNATURE_BYTES = 64;
/** What every SPKI of a P-256 key begins with, as base64; the 64 bytes of the point follow. */
const P256_SPKI = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE";
const P256_SPKI_BYTES = 91;
const P256 = { name: "ECDSA", namedCurve: "P-256", hash: "SHA-256" };

/**
 * Describes how a provider signs by Ed25519 or ECDSA; the secret of its source is the provider's public key. Otherwise as `hmac`.
 *
 * @throws Error for a description that can't be meant
 */
export function publicKey(description: PublicKeySigned): WebhookScheme {
  return describedScheme(description, keyOf);
}

function keyOf(secret: string, description: PublicKeySigned): Result<Key, string> {
  if (description.algorithm === "ecdsa-p256") {
    const spki = secret.startsWith(P256_SPKI) ? fromBase64(secret) : null;
    const bytes = orElse(
      spki?.length === P256_SPKI_BYTES ? spki : null,
      "the SPKI of a P-256 key in base64, without a PEM's header and line breaks",
    );
    return bytes.ok ? ok(verifying("spki", bytes.value, P256, rawFromDer)) : bytes;
  }
  const bytes = description.key === "whpk" ? whpkBytes(secret) : bytesOf(secret, description.key);
  if (!bytes.ok) return bytes;
  if (bytes.value.length !== ED25519_KEY_BYTES) {
    return err(`is not a public key of ${ED25519_KEY_BYTES} bytes`);
  }
  // workerd throws at a signature of any other length.
  const raw = (given: Bytes) => (given.length === ED25519_SIGNATURE_BYTES ? given : null);
  return ok(verifying("raw", bytes.value, "Ed25519", raw));
}

function whpkBytes(secret: string): Result<Bytes, string> {
  if (/^wh(?:sec|sk)_/.test(secret)) return err("is a secret key, and not whpk_ and base64");
  return orElse(fromBase64(secret.replace(/^(?:v1a,)?whpk_/, "")), "whpk_ and base64 with its padding");
}

/** A public key. `raw` brings a signature into Web Crypto's form; `null` for what can't be one. */
function verifying(
  format: "raw" | "spki",
  bytes: Bytes,
  algorithm: "Ed25519" | typeof P256,
  raw: (signature: Bytes) => Bytes | null,
): Key {
  const key = once(() => crypto.subtle.importKey(format, bytes, algorithm, false, ["verify"]));
  return {
    matches: async (content, signatures) => {
      for (const signature of signatures) {
        const given = raw(signature);
        if (given === null) continue;
        if (await crypto.subtle.verify(algorithm, await key(), given, content)) return true;
      }
      return false;
    },
  };
}
