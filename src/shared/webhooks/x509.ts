import { err, ok, type Result } from "../result.ts";
import { type Bytes, fromBase64 } from "./encoding.ts";
import { type PublicKey, published } from "./jwks.ts";
import type { NotVerified, VerifyContext } from "./scheme.ts";

const CERTIFICATE = /-----BEGIN CERTIFICATE-----([\w+/=\s]+)-----END CERTIFICATE-----/g;
const RSA = "RSASSA-PKCS1-v1_5";
const SEQUENCE = 0x30;
const VERSION = 0xa0;
/** Serial number, algorithm, issuer, validity and subject stand before the key. */
const FIELDS_BEFORE_KEY = 5;

/**
 * The public key of a certificate, as the SPKI that Web Crypto wants; `null` for what isn't a certificate in PEM and nothing else.
 *
 * It walks past the other fields, and checks none of them: neither dates nor issuer. Certificates are trusted for the host that they
 * were fetched from. https://www.rfc-editor.org/rfc/rfc5280#section-4.1
 *
 * @param chain whether further certificates may follow, which are passed over
 */
export function spkiOf(pem: string, { chain }: { readonly chain: boolean }): Bytes | null {
  const [first, ...more] = [...pem.matchAll(CERTIFICATE)];
  if (pem.replace(CERTIFICATE, "").trim() !== "" || (more.length > 0 && !chain)) return null;
  const der = fromBase64((first?.[1] ?? "").replace(/\s/g, ""));
  if (der === null || der[0] !== SEQUENCE) return null;
  const whole = elementAt(der, 0);
  if (whole.end !== der.length || der[whole.content] !== SEQUENCE) return null;
  const body = elementAt(der, whole.content);
  let at = body.content;
  if (der[at] === VERSION) at = elementAt(der, at).end;
  for (let field = 0; field < FIELDS_BEFORE_KEY; field += 1) at = elementAt(der, at).end;
  const { end } = elementAt(der, at);
  return der[at] === SEQUENCE && end <= body.end ? der.slice(at, end) : null;
}

/** Where the content of a DER element begins and ends; NaN where there is none, or it is cut off. */
function elementAt(der: Bytes, at: number): { readonly content: number; readonly end: number } {
  let length = der[at + 1] ?? Number.NaN;
  let content = at + 2;
  // Above 0x80 it says how many bytes of length follow. Three are plenty; 0x80 itself isn't DER.
  if (length >= 0x80) {
    const lengthBytes = length - 0x80;
    length = lengthBytes === 0 || lengthBytes > 3 ? Number.NaN : 0;
    for (let i = 0; i < lengthBytes; i += 1) length = length * 256 + (der[content + i] ?? Number.NaN);
    content += lengthBytes;
  }
  const end = content + length;
  return end <= der.length ? { content, end } : { content: Number.NaN, end: Number.NaN };
}

/** What an RSA certificate's key is to have signed. */
export interface RsaSigned {
  /** Where the certificate is. Its host has been looked at. */
  readonly certificateUrl: string;
  readonly hash: "SHA-1" | "SHA-256";
  readonly signature: Bytes;
  /** One of these is what was signed. */
  readonly contents: readonly Bytes[];
}

/** The certificates of a provider. */
export interface Certificates {
  /** Whether a signature, RSASSA-PKCS1-v1_5, is that of a certificate's key. */
  fits(signed: RsaSigned, context: VerifyContext): Promise<Result<null, NotVerified>>;
}

/** A certificate's URL changes with the certificate, so that this only bounds how long one that was withdrawn is trusted. */
const MAX_AGE_SECONDS = 86_400;

/** Certificates that a provider publishes, kept for up to a day. */
export function certificates(options: { readonly chain: boolean }): Certificates {
  const keys = published(async (pem) => {
    const spki = spkiOf(pem, options);
    // What can't be imported is no key, and isn't kept.
    if (spki !== null) await importRsa(spki, "SHA-256");
    return spki;
  });
  return {
    async fits({ certificateUrl, hash, signature, contents }, context) {
      const spki = await keys.get(certificateUrl, MAX_AGE_SECONDS, context);
      if (!spki.ok) return spki;
      const key = await importRsa(spki.value, hash);
      for (const content of contents) {
        const isFit = await crypto.subtle.verify(RSA, key, signature, content).catch(() => false);
        if (isFit) return ok(null);
      }
      return err({ status: "refused", reason: "its signature doesn't fit" });
    },
  };
}

function importRsa(spki: Bytes, hash: RsaSigned["hash"]): Promise<PublicKey> {
  return crypto.subtle.importKey("spki", spki, { name: RSA, hash }, false, ["verify"]);
}
