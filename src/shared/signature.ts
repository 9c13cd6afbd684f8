import { blake3 } from "@noble/hashes/blake3.js";
import { bytesToHex, hexToBytes, utf8ToBytes } from "@noble/hashes/utils.js";

/** A callback secret: 64 hexadecimal digits, 32 bytes. */
export type SecretHex = string;

/**
 * Signs a callback id: the BLAKE3 keyed hash as 64 lower-case hexadecimal digits, as Awa's receiver has it.
 *
 * @param secret 64 hexadecimal digits
 * @param callbackId the id exactly as it stands in the path
 */
export function signCallbackId(secret: SecretHex, callbackId: string): string {
  return bytesToHex(keyedHash(secret, callbackId));
}

/**
 * Checks a signature against every live secret, in constant time: which secret fits, and how many digits are right, can't be
 * told from the time it takes.
 *
 * @param secrets the live secrets; during a rotation there are two
 * @param signature 64 lower-case hexadecimal digits, checked by the caller
 */
export function verifyCallbackId(
  secrets: readonly SecretHex[],
  callbackId: string,
  signature: string,
): boolean {
  const given = hexToBytes(signature);
  let valid = 0;
  for (const secret of secrets) {
    const expected = keyedHash(secret, callbackId);
    let difference = 0;
    for (const [i, byte] of expected.entries()) difference |= byte ^ (given[i] ?? 256);
    valid |= difference === 0 ? 1 : 0;
  }
  return valid === 1;
}

function keyedHash(secret: SecretHex, callbackId: string): Uint8Array {
  return blake3(utf8ToBytes(callbackId), { key: hexToBytes(secret) });
}
