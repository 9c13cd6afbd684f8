import { err, ok, type Result } from "../result.ts";
import { signCallbackId } from "../signature.ts";
import type { WebhookDescription } from "./description.ts";
import { type Bytes, concat, fromBase64, fromHex, rawFromDer, toHex, utf8 } from "./encoding.ts";

/** A secret, ready to be used. */
export interface Key {
  /** The signature of a content; absent for a public key, which can't sign. Throws where the content can't be signed. */
  readonly sign?: (content: Bytes) => Promise<Bytes>;
  /** Whether one of these is the signature of a content. May throw where the key turns out to be none. */
  readonly matches: (content: Bytes, signatures: readonly Bytes[]) => Promise<boolean>;
}

const MIN_HMAC_KEY_BYTES = 16;
const ED25519_KEY_BYTES = 32;
const ED25519_SIGNATURE_BYTES = 64;
const BLAKE3_KEY_BYTES = 32;
/** What every SPKI of a P-256 key begins with, as base64; the 64 bytes of the point follow. */
const P256_SPKI = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE";
const P256_SPKI_BYTES = 91;

/** Why a secret can't be right, or `null`. It quotes nothing of it. */
export function whyBadText(secret: string): string | null {
  if (secret === "") return "is empty";
  return secret.trim() === secret ? null : "begins or ends with white space";
}

/** Makes a key of a secret, or says what is wrong with it, without quoting it. */
export function keyOf(
  secret: string,
  { algorithm, key: encoding = "utf8" }: { algorithm: WebhookDescription["algorithm"]; key?: string },
): Result<Key, string> {
  const reason = whyBadText(secret);
  if (reason !== null) return err(reason);
  const read = bytesOf(secret, encoding);
  if (!read.ok) return read;
  const bytes = read.value;
  switch (algorithm) {
    case "hmac-sha1":
    case "hmac-sha256":
    case "hmac-sha512":
      if (encoding !== "utf8" && bytes.length < MIN_HMAC_KEY_BYTES) {
        return err(`is too short: a key has ${MIN_HMAC_KEY_BYTES} bytes or more`);
      }
      return ok(signing(hmacOf(bytes, `SHA-${algorithm.slice("hmac-sha".length)}`)));
    case "secret-then-content-sha256":
      return ok(
        signing(
          async (content) => new Uint8Array(await crypto.subtle.digest("SHA-256", concat([bytes, content]))),
        ),
      );
    case "blake3": {
      if (bytes.length !== BLAKE3_KEY_BYTES) return err(`is not ${BLAKE3_KEY_BYTES * 2} hexadecimal digits`);
      const hex = toHex(bytes);
      return ok(
        signing(async (content) => fromHex(signCallbackId(hex, strictText(content))) ?? new Uint8Array()),
      );
    }
    case "ed25519":
      if (bytes.length !== ED25519_KEY_BYTES) return err(`is not a public key of ${ED25519_KEY_BYTES} bytes`);
      // workerd throws at a signature of any other length.
      return ok(
        verifying("raw", bytes, "Ed25519", (given) =>
          given.length === ED25519_SIGNATURE_BYTES ? given : null,
        ),
      );
    case "ecdsa-p256":
      return ok(verifying("spki", bytes, P256, rawFromDer));
    case "token":
      // A header holds nothing else, so that such a secret would never fit.
      return /^[\x20-\x7e]+$/.test(secret)
        ? ok(signing(async () => bytes))
        : err("has characters that no header can have");
  }
}

function bytesOf(secret: string, encoding: string): Result<Bytes, string> {
  const orElse = (bytes: Bytes | null, what: string) => (bytes === null ? err(`is not ${what}`) : ok(bytes));
  switch (encoding) {
    case "hex":
      return orElse(fromHex(secret), "hexadecimal digits");
    case "base64":
      return orElse(fromBase64(secret), "base64 with its padding");
    case "whsec":
      if (/^wh[ps]k_/.test(secret)) return err("is a key for Ed25519, and not whsec_ and base64");
      // Supabase puts the version of the signature before it.
      return orElse(fromBase64(secret.replace(/^(?:v1,)?whsec_/, "")), "whsec_ and base64 with its padding");
    case "whpk":
      if (/^wh(?:sec|sk)_/.test(secret)) return err("is a secret key, and not whpk_ and base64");
      return orElse(fromBase64(secret.replace(/^whpk_/, "")), "whpk_ and base64 with its padding");
    case "spki": {
      const bytes = secret.startsWith(P256_SPKI) ? fromBase64(secret) : null;
      return orElse(
        bytes?.length === P256_SPKI_BYTES ? bytes : null,
        "the SPKI of a P-256 key in base64, without a PEM's header and line breaks",
      );
    }
    default:
      return ok(utf8(secret));
  }
}

const HMAC_SHA256 = { name: "HMAC", hash: "SHA-256" };
const P256 = { name: "ECDSA", namedCurve: "P-256", hash: "SHA-256" };

function hmacOf(secret: Bytes, hash: string): (content: Bytes) => Promise<Bytes> {
  const key = once(() => crypto.subtle.importKey("raw", secret, { name: "HMAC", hash }, false, ["sign"]));
  return async (content) => new Uint8Array(await crypto.subtle.sign("HMAC", await key(), content));
}

/** A key that signs: it verifies by making the signature itself, once however many are to be compared with it. */
function signing(sign: (content: Bytes) => Promise<Bytes>): Key {
  return { sign, matches: async (content, signatures) => isAmong(await sign(content), signatures) };
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

/**
 * Whether a value is among others, in constant time: they are compared by what HMAC makes of them under a key of the moment, so that
 * neither length nor content can be told from the time it takes.
 */
export async function isAmong(expected: Bytes, others: readonly Bytes[]): Promise<boolean> {
  const random = crypto.getRandomValues(new Uint8Array(32));
  const key = await crypto.subtle.importKey("raw", random, HMAC_SHA256, false, ["sign", "verify"]);
  const mac = await crypto.subtle.sign("HMAC", key, expected);
  let found = false;
  for (const other of others) found = (await crypto.subtle.verify("HMAC", key, mac, other)) || found;
  return found;
}

function once<T>(make: () => Promise<T>): () => Promise<T> {
  let made: Promise<T> | undefined;
  return () => {
    made ??= make();
    return made;
  };
}

function strictText(bytes: Bytes): string {
  return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
}
