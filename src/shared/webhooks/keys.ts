import { err, ok, type Result } from "../result.ts";
import { type Bytes, fromBase64, fromHex, utf8 } from "./encoding.ts";

/** A secret, ready to be used. */
export interface Key {
  /** The signature of a content; absent for a public key, which can't sign. Throws where the content can't be signed. */
  readonly sign?: (content: Bytes) => Promise<Bytes>;
  /** Whether one of these is the signature of a content. May throw where the key turns out to be none. */
  readonly matches: (content: Bytes, signatures: readonly Bytes[]) => Promise<boolean>;
}

/** Why a secret can't be right, or `null`. It quotes nothing of it. */
export function whyBadText(secret: string): string | null {
  if (secret === "") return "is empty";
  return secret.trim() === secret ? null : "begins or ends with white space";
}

/** A secret's bytes, or what it would have to be: "is not whsec_ and base64 …". */
export function orElse(bytes: Bytes | null, what: string): Result<Bytes, string> {
  return bytes === null ? err(`is not ${what}`) : ok(bytes);
}

/** Reads a secret as one of the usual encodings has it. */
export function bytesOf(secret: string, encoding: "utf8" | "hex" | "base64"): Result<Bytes, string> {
  if (encoding === "utf8") return ok(utf8(secret));
  return encoding === "hex"
    ? orElse(fromHex(secret), "hexadecimal digits")
    : orElse(fromBase64(secret), "base64 with its padding");
}

/** A key that signs: it verifies by making the signature itself, once however many are to be compared with it. */
export function signing(sign: (content: Bytes) => Promise<Bytes>): Key {
  return { sign, matches: async (content, signatures) => isAmong(await sign(content), signatures) };
}

/**
 * Whether a value is among others, in constant time: they are compared by what HMAC makes of them under a key of the moment, so that
 * neither length nor content can be told from the time it takes.
 */
export async function isAmong(expected: Bytes, others: readonly Bytes[]): Promise<boolean> {
  const random = crypto.getRandomValues(new Uint8Array(32));
  const key = await crypto.subtle.importKey("raw", random, { name: "HMAC", hash: "SHA-256" }, false, [
    "sign",
    "verify",
  ]);
  const mac = await crypto.subtle.sign("HMAC", key, expected);
  let found = false;
  for (const other of others) found = (await crypto.subtle.verify("HMAC", key, mac, other)) || found;
  return found;
}

/** Makes it when it is first asked for, and once. */
export function once<T>(make: () => Promise<T>): () => Promise<T> {
  let made: Promise<T> | undefined;
  return () => {
    made ??= make();
    return made;
  };
}
