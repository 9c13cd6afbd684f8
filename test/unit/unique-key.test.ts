import canonicalize from "canonicalize";
import fc from "fast-check";
import { expect, test } from "vitest";
import { canonicalJson, isStorable } from "../../src/shared/json.ts";
import { uniqueKey } from "../../src/shared/unique-key.ts";
import { NOW } from "../support/jobs.ts";

const job = { kind: "send_email", queue: "default", args: { to: "a@b.com", n: 1 } };
const key = (other: object, options: Parameters<typeof uniqueKey>[1], now = NOW) =>
  uniqueKey({ ...job, ...other }, options, now).key;

test("the same parts give the same key, in whatever order they are written", () => {
  expect(key({}, {})).toMatch(/^[0-9a-f]{32}$/);
  expect(key({ args: { n: 1, to: "a@b.com" } }, {})).toBe(key({}, {}));
  expect(key({ queue: "other" }, {})).toBe(key({}, {}));
});

test("every part that counts makes another key", () => {
  const keys = [
    key({}, {}),
    key({ kind: "other" }, {}),
    key({ args: { to: "c@d.com", n: 1 } }, {}),
    key({}, { byArgs: false }),
    key({}, { byQueue: true }),
    key({}, { byPeriodSeconds: 60 }),
    key({}, { byPeriodSeconds: 3600 }),
  ];
  expect(new Set(keys).size).toBe(keys.length);
});

// The reference hashes its parts without their names: these two would be one key there.
test('a queue called "{}" without args is not empty args without a queue', () => {
  const byQueue = key({ queue: "{}", args: {} }, { byArgs: false, byQueue: true });
  expect(byQueue).not.toBe(key({ queue: "{}", args: {} }, { byArgs: true, byQueue: false }));
});

test("a period begins at whole multiples since the epoch", () => {
  const at = (text: string) => key({}, { byPeriodSeconds: 3600 }, new Date(text));
  expect(at("2026-01-01T10:00:00.000Z")).toBe(at("2026-01-01T10:59:59.999Z"));
  expect(at("2026-01-01T10:59:59.999Z")).not.toBe(at("2026-01-01T11:00:00.000Z"));
});

test("the key is held in every state that isn't terminal, or in those that are named", () => {
  expect(uniqueKey(job, {}, NOW).states).toEqual([
    "scheduled",
    "available",
    "running",
    "waiting_external",
    "retryable",
  ]);
  expect(uniqueKey(job, { states: ["completed", "completed"] }, NOW).states).toEqual(["completed"]);
});

test("canonical JSON is that of the library, for whatever can be stored", () => {
  const name = fc.oneof(fc.string({ unit: "binary" }), fc.nat(20).map(String), fc.constant("__proto__"));
  const { value } = fc.letrec<{ value: unknown }>((tie) => ({
    value: fc.oneof(
      { depthSize: "medium" },
      fc.jsonValue(),
      fc.constant(-0),
      fc.array(tie("value"), { maxLength: 4 }),
      fc.dictionary(name, fc.option(tie("value"), { nil: undefined }), { maxKeys: 6 }),
    ),
  }));
  fc.assert(
    fc.property(value.filter(isStorable), (json) => {
      expect(canonicalJson(json)).toBe(canonicalize(json));
    }),
    { numRuns: 2_000 },
  );
});
