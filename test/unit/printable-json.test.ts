import fc from "fast-check";
import { expect, test } from "vitest";
import { printableJson } from "../../src/shared/json.ts";
import { jsonLog } from "../../src/shared/log.ts";

test.each([
  ["a CSI of one character, which JSON.stringify leaves", "\u009b31m", '"\\u009b31m"'],
  ["text that goes the other way", "\u202efdp", '"\\u202efdp"'],
  ["a line separator", "a\u2028b", '"a\\u2028b"'],
  ["what isn't seen", "\u{e0041}\u200b", '"\\udb40\\udc41\\u200b"'],
  ["a line break and an escape", "\n\u001b", '"\\n\\u001b"'],
  ["any other text", "Grüße 💶 日本", '"Grüße 💶 日本"'],
])("%s", (_, text, printed) => {
  expect(printableJson(text)).toBe(printed);
});

test("whatever it is, it is JSON of the same, on one line of what can be seen, or on lines of an indentation", () => {
  fc.assert(
    fc.property(fc.jsonValue(), (value) => {
      const expected: unknown = JSON.parse(JSON.stringify(value));
      expect(JSON.parse(printableJson(value))).toEqual(expected);
      expect(printableJson(value)).not.toMatch(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u);
      expect(JSON.parse(printableJson(value, 2))).toEqual(expected);
    }),
  );
});

test("a line of the log stays one", () => {
  const lines: string[] = [];
  jsonLog((line) => lines.push(line))({ level: "info", event: "request", kind: "a\n{}\u2028\u009bA" });
  expect(lines).toEqual(['{"level":"info","event":"request","kind":"a\\n{}\\u2028\\u009bA"}']);
});
