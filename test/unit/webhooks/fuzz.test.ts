import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  accepts,
  ENTRIES,
  entryOf,
  HEADER_OF_CHOICE,
  JUNK,
  readyWith,
} from "../../support/webhook-schemes.ts";
import { vectors } from "../../support/webhook-vectors.ts";

describe("whatever comes is refused, and nothing throws", () => {
  const headerNames = [
    ...new Set([HEADER_OF_CHOICE, ...vectors.flatMap(({ headers }) => Object.keys(headers))]),
  ];
  const text = fc.oneof(
    fc.string({ unit: fc.constantFrom(..."0123456789abcdefghiv=,;. +/-:TZ") }),
    fc.constantFrom(...JUNK),
    fc.string({ unit: fc.integer({ min: 0x20, max: 0xff }).map((code) => String.fromCharCode(code)) }),
  );
  const requests = fc.record({
    method: fc.constantFrom("POST", "GET", "PUT"),
    url: fc.oneof(fc.webUrl({ withQueryParameters: true }), fc.string()),
    headers: fc
      .dictionary(fc.constantFrom(...headerNames), text, { noNullPrototype: true })
      .map((fields) => new Headers(fields)),
    body: fc.oneof(
      fc.uint8Array().map((bytes) => Uint8Array.from(bytes)),
      fc.json().map((json) => new Uint8Array(new TextEncoder().encode(json))),
    ),
  });
  test.each(Object.keys(ENTRIES))("%s", async (name) => {
    const { make, otherSecret } = entryOf(name);
    const scheme = make();
    const ready = readyWith(scheme, otherSecret);
    await fc.assert(
      fc.asyncProperty(requests, fc.jsonValue(), async (request, payload) => {
        expect(await accepts(ready, request, new Date(1_700_000_000_000))).toBe(false);
        expect(["string", "undefined"]).toContain(typeof scheme.deliveryId(request, payload));
        await ready.greet?.(request);
      }),
      { numRuns: 40 },
    );
  });
});
