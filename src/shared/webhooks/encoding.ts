import { bytesToHex, hexToBytes, utf8ToBytes } from "@noble/hashes/utils.js";

export type Bytes = Uint8Array<ArrayBuffer>;

export const utf8 = (text: string): Bytes => utf8ToBytes(text);

/** Reads hexadecimal digits of either case; `null` for anything else, and for nothing. */
export function fromHex(text: string): Bytes | null {
  try {
    return text === "" ? null : hexToBytes(text);
  } catch {
    return null;
  }
}

export const toHex = (bytes: Uint8Array): string => bytesToHex(bytes);

/**
 * Reads base64 as RFC 4648 has it: padded, without white space, not the URL alphabet. `null` for anything else, and for nothing.
 *
 * One text per value: `atob` alone would take several, and with them signatures that nobody sent.
 */
export function fromBase64(text: string): Bytes | null {
  try {
    const binary = atob(text);
    return binary !== "" && btoa(binary) === text
      ? Uint8Array.from(binary, (char) => char.charCodeAt(0))
      : null;
  } catch {
    return null;
  }
}

export function toBase64(bytes: Uint8Array): string {
  return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
}

export function concat(pieces: readonly Uint8Array[]): Bytes {
  const whole = new Uint8Array(pieces.reduce((length, piece) => length + piece.length, 0));
  let at = 0;
  for (const piece of pieces) {
    whole.set(piece, at);
    at += piece.length;
  }
  return whole;
}

const RAW_P256_BYTES = 64;

/**
 * Rewrites an ECDSA signature for P-256 from DER, SEQUENCE { INTEGER r, INTEGER s }, to the r‖s of 64 bytes that Web Crypto wants.
 * `null` for what isn't exactly that, shortest form included.
 */
export function rawFromDer(der: Uint8Array): Bytes | null {
  if (der[0] !== 0x30 || der[1] !== der.length - 2) return null;
  const raw = new Uint8Array(RAW_P256_BYTES);
  let at = 2;
  for (const end of [RAW_P256_BYTES / 2, RAW_P256_BYTES]) {
    const length = der[at + 1] ?? 0;
    const integer = der.subarray(at + 2, at + 2 + length);
    const [first = 0x80, second = 0] = integer;
    const padded = first === 0;
    // A first bit that is set would make the number negative; a zero before it is there to prevent that, and for nothing else.
    if (der[at] !== 2 || first >= 0x80 || (padded && second < 0x80)) return null;
    const digits = padded ? integer.subarray(1) : integer;
    if (integer.length !== length || digits.length > RAW_P256_BYTES / 2) return null;
    raw.set(digits, end - digits.length);
    at += 2 + length;
  }
  return at === der.length ? raw : null;
}
