import { expect, test } from "vitest";
import { signCallbackId, verifyCallbackId } from "../../src/shared/signature.ts";

const [old, next] = ["07".repeat(32), "ab".repeat(32)];
const VECTOR = "b1495225f01fa8cd09e410d288d09b68c1cc9fb2414686c0d3ac13fc905497d9";

test("the reference's known answer", () => {
  expect(signCallbackId(old, "abc")).toBe(VECTOR);
});

test("every live secret verifies; another secret, id or digit doesn't", () => {
  expect(verifyCallbackId([old], "abc", VECTOR)).toBe(true);
  expect(verifyCallbackId([next, old], "abc", VECTOR)).toBe(true);
  expect(verifyCallbackId([next], "abc", VECTOR)).toBe(false);
  expect(verifyCallbackId([], "abc", VECTOR)).toBe(false);
  expect(verifyCallbackId([old], "abd", VECTOR)).toBe(false);
  for (let i = 0; i < 64; i++) {
    const flipped = VECTOR.slice(0, i) + (VECTOR[i] === "0" ? "1" : "0") + VECTOR.slice(i + 1);
    expect(verifyCallbackId([old], "abc", flipped)).toBe(false);
  }
});
