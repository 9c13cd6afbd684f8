import fc from "fast-check";
import { NOT_JSON } from "./bodies.ts";
import { CANARY, type Content, type Hostile } from "./request.ts";
import { SOURCES, signedWebhook } from "./webhooks.ts";

const JUNK_VALUES: readonly unknown[] = [
  null,
  true,
  -1,
  1.5,
  1e300,
  "",
  " ",
  "\0",
  "\ud800",
  "x".repeat(201),
  "💶".repeat(200),
  "x".repeat(100_000),
  CANARY,
  "' OR 1=1; --",
  "__proto__",
  [],
  [[]],
  {},
  { id: 1 },
  JSON.parse(`${"[".repeat(500)}${"]".repeat(500)}`),
  JSON.parse('{"__proto__":{"callback_id":"x"}}'),
];
const CALLBACK_IDS = [
  ...JUNK_VALUES,
  "00000000-0000-4000-8000-000000000000",
  "0a1b2c3d-4e5f-4a6b-8c7d-9e0f1a2b3c4d ",
];

/** Bodies in the shape of their provider's, with junk in it. None is for a callback that there is. */
function shaped(source: string): fc.Arbitrary<unknown> {
  const junk = fc.oneof(
    fc.constantFrom(...JUNK_VALUES),
    fc.jsonValue({ maxDepth: 3 }),
    fc.string({ unit: "binary" }),
  );
  const or = (...values: unknown[]) =>
    fc.oneof({ weight: 3, arbitrary: fc.constantFrom(...values) }, { weight: 1, arbitrary: junk });
  switch (source) {
    case "stripe":
      return fc.record(
        {
          id: fc.oneof(fc.uuid(), fc.uuid(), fc.uuid(), junk),
          type: or("payment_intent.succeeded", "payment_intent.canceled", "payment_intent.processing", "x"),
          data: fc.oneof(
            fc.record({
              object: fc.record({
                id: or("pi_1"),
                metadata: fc.record({ callback_id: fc.constantFrom(...CALLBACK_IDS) }),
              }),
            }),
            junk,
          ),
        },
        { requiredKeys: [] },
      );
    case "github":
      return fc.record(
        {
          deployment: fc.oneof(fc.record({ id: or(1, 2 ** 53, 1e21, -0, 1e-7) }), junk),
          deployment_status: fc.oneof(
            fc.record({ state: or("success", "failure", "pending"), environment_url: junk }),
            junk,
          ),
        },
        { requiredKeys: [] },
      );
    case "carrier":
      return fc.record(
        {
          type: or("parcel.collected"),
          data: fc.oneof(fc.record({ reference: junk, parcel: or("p-1") }), junk),
        },
        { requiredKeys: [] },
      );
    default:
      return fc.record(
        { id: or("p1"), status: or("succeeded", "failed", "starting"), output: junk, error: junk },
        { requiredKeys: [] },
      );
  }
}

/** What a genuine provider could send by mistake: signed as it should be, for no callback that there is, and mostly malformed. Each is recorded, and answered by 500 once at the most. */
export function malformedDelivery(): fc.Arbitrary<Hostile> {
  const path = fc.constantFrom("", "/00000000-0000-4000-8000-000000000001");
  const each = SOURCES.map((source) =>
    fc
      .record({
        path,
        id: fc.oneof(
          fc.uuid(),
          fc.uuid(),
          fc.constantFrom("x".repeat(201), "\u00ff\u00fe", "a, b", " ", "%00"),
        ),
        event: fc.constantFrom("deployment_status", "push", CANARY),
        type: fc.constantFrom(
          "application/json",
          "application/json",
          "application/x-www-form-urlencoded",
          CANARY,
        ),
        content: fc.oneof(
          { weight: 6, arbitrary: shaped(source).map((body): Content => JSON.stringify(body)) },
          {
            weight: 1,
            arbitrary: fc.constantFrom(
              ...NOT_JSON.filter((body) => typeof body !== "string" || !body.includes("\0")),
            ),
          },
          {
            weight: 1,
            arbitrary: fc
              .string({ unit: "grapheme" })
              .map((text): Content => `payload=${encodeURIComponent(text)}&payload=%00&__proto__=1`),
          },
        ),
      })
      .map(
        ({ path, id, event, type, content }): Hostile => ({
          ...signedWebhook({
            source,
            id,
            path,
            headers: [
              ["X-GitHub-Event", event],
              ["Content-Type", type],
            ],
            content,
          }),
          about: "signed and malformed",
          answers: ["delivery_failed", "failed", "ignored", "parked", "late", "duplicate", "unauthorized"],
        }),
      ),
  );
  return fc.oneof(...each);
}
