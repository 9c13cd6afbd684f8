import fc from "fast-check";
import { MAX_BODY_BYTES } from "../../../src/ingress/body.ts";
import { MAX_JSON_DEPTH } from "../../../src/shared/json.ts";
import { CANARY, type Content } from "./request.ts";

/** A body, and by which code it has to be refused. */
export interface BadBody {
  readonly about: string;
  readonly content: Content;
  readonly code: string;
}

const utf8 = (text: string) => new TextEncoder().encode(text);
const utf16 = (text: string, bigEndian: boolean) =>
  Uint8Array.from(
    [0xfeff, ...[...text].map((char) => char.charCodeAt(0))].flatMap((unit) => {
      const bytes = [unit & 0xff, unit >> 8];
      return bigEndian ? bytes.reverse() : bytes;
    }),
  );
/** Bytes in the middle of a JSON text that would be valid otherwise. */
const around = (...bytes: number[]) =>
  Uint8Array.from([...utf8(`{"payload":"${CANARY}`), ...bytes, ...utf8('"}')]);
const nested = (depth: number, open: string, close: string): Content =>
  depth > 5_000
    ? { start: '{"payload":', unit: open, times: depth, end: "" }
    : `{"payload":${open.repeat(depth)}1${close.repeat(depth)}}`;

/** Bytes that aren't UTF-8. */
export const NOT_UTF8: readonly Uint8Array[] = [
  around(0xff),
  around(0xc0, 0x80),
  around(0xe0, 0x80, 0x80),
  around(0xed, 0xa0, 0x80),
  around(0xf5, 0x80, 0x80, 0x80),
  around(0xf0, 0x9f, 0x92),
  around(0x80),
  utf16('{"payload":1}', false),
  utf16('{"payload":1}', true),
  Uint8Array.from([0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 0xab, 0xae, 5, 0, 0x43, 0xbf, 0xa6, 0xa3, 2, 0, 0, 0]),
];

/** Texts that aren't JSON. */
export const NOT_JSON: readonly Content[] = [
  " ",
  "\0",
  "{",
  "{}{}",
  "{}\0",
  `{"payload":"${CANARY}`,
  `{'payload':'${CANARY}'}`,
  `payload=${CANARY}`,
  '{"payload":1,}',
  '{"payload":NaN}',
  '{"payload":Infinity}',
  '{"payload":0x10}',
  '{"payload":01}',
  '{"payload":"\t"}',
  '{"payload":"\\x41"}',
  '{"payload":"\\ud8"}',
  '{"payload":undefined}',
  '/* */{"payload":1}',
  "\u{feff}\u{feff}{}",
  "<?xml version='1.0'?><!DOCTYPE a [<!ENTITY b SYSTEM 'file:///etc/passwd'>]><a>&b;</a>",
  nested(200_000, "[", ""),
  nested(200_000, '{"a":', ""),
];

/** JSON values that aren't the shape of any action's body. */
const NOT_AN_OBJECT = ["null", "true", "0", '"complete"', "[]", "[{}]", '[{"payload":1}]', "\u{feff}[]"];
const UNKNOWN_FIELDS = [
  `{"payloud":"${CANARY}"}`,
  `{"__proto__":{"payload":"${CANARY}"}}`,
  `{"constructor":{"prototype":{"payload":"${CANARY}"}}}`,
  '{"toString":1}',
  '{"hasOwnProperty":1}',
  '{"":1}',
  '{"Payload":1}',
  '{"payload ":1}',
  '{"pay\\u0000load":1}',
  '{"\\ud800":1}',
  `{"${"💶".repeat(19)}x💶":1}`,
  `{"${"x".repeat(40)}${CANARY}":1}`,
  '{"id":"00000000-0000-4000-8000-000000000000","state":"completed"}',
  '{"$where":"1=1"}',
];
/** Values of JSON that Postgres can't hold, or that aren't worth it. */
const UNSTORABLE = [
  '"\\u0000"',
  '["a\\u0000b"]',
  '{"\\u0000":1}',
  '"\\ud800"',
  '"\\udc00\\ud800"',
  '{"\\udfff":1}',
  "1e400",
  "[-1e999]",
];
const TOO_DEEP = [MAX_JSON_DEPTH, MAX_JSON_DEPTH + 1, 1_000, 5_000];
/** By action: fields of the wrong type, and values out of range. */
const WRONG_TYPE: Readonly<Record<string, readonly string[]>> = {
  complete: ['{"resume":"true"}', '{"resume":null}', '{"resume":1}', '{"resume":[],"payload":1}'],
  fail: ["{}", '{"error":null}', '{"error":1}', '{"error":["x"]}', '{"error":{}}', '{"Error":"x"}'],
  retry: ['{"payload":1}', '{"error":"x"}', '{"timeout_seconds":1}'],
  heartbeat: [
    '{"timeout_seconds":"60"}',
    '{"timeout_seconds":null}',
    '{"timeout_seconds":[60]}',
    '{"timeout_seconds":{}}',
    '{"timeout_seconds":true}',
    '{"timeoutSeconds":60}',
  ],
};
const OUT_OF_RANGE: Readonly<Record<string, readonly string[]>> = {
  complete: [
    ...UNSTORABLE.map((value) => `{"payload":${value}}`),
    ...UNSTORABLE.map((value) => `{"payload":1,"payload":{"a":[${value}]},"resume":true}`),
    ...TOO_DEEP.map((depth) => `{"payload":${"[".repeat(depth)}${"]".repeat(depth)}}`),
    ...TOO_DEEP.map((depth) => `{"payload":${'{"a":'.repeat(depth)}1${"}".repeat(depth)}}`),
  ],
  fail: [
    '{"error":"\\u0000"}',
    '{"error":"a\\u0000b"}',
    '{"error":"\\ud800"}',
    '{"error":"x","error":"\\udc00"}',
  ],
  retry: [],
  heartbeat: ["-1", "-0", "-0.0", "-1e-300", "1e400", "-1e400", "31536001", "1e300", "31536000.0000001"].map(
    (seconds) => `{"timeout_seconds":${seconds}}`,
  ),
};

const from = (about: string, code: string, contents: readonly Content[]): readonly BadBody[] =>
  contents.map((content) => ({ about, content, code }));

const TOO_LARGE: readonly BadBody[] = from("too large", "payload_too_large", [
  { start: "", unit: " ", times: MAX_BODY_BYTES + 1, end: "" },
  { start: '{"payload":"', unit: "x", times: MAX_BODY_BYTES, end: '"}' },
  { start: '{"payload":', unit: "[", times: MAX_BODY_BYTES, end: "" },
]);

/** Bodies that an action has to refuse, whatever became of its callback. */
export function badBody(action: string): fc.Arbitrary<BadBody> {
  const listed = (about: string, code: string, contents: readonly Content[]) =>
    fc.constantFrom(...from(about, code, contents));
  const outOfRange = OUT_OF_RANGE[action] ?? [];
  return fc.oneof(
    { weight: 30, arbitrary: listed("not UTF-8", "invalid_json", NOT_UTF8) },
    { weight: 40, arbitrary: listed("not JSON", "invalid_json", NOT_JSON) },
    {
      weight: 20,
      arbitrary: fc
        .uint8Array({ minLength: 1, maxLength: 200 })
        // Of random bytes the first makes sure that it is no JSON.
        .map((bytes) => ({
          about: "random bytes",
          content: Uint8Array.from([0xfe, ...bytes]),
          code: "invalid_json",
        })),
    },
    { weight: 25, arbitrary: listed("no object", "invalid_body", NOT_AN_OBJECT) },
    { weight: 30, arbitrary: listed("unknown field", "invalid_body", UNKNOWN_FIELDS) },
    {
      weight: 20,
      arbitrary: fc
        .dictionary(
          fc.string({ unit: "binary", minLength: 1, maxLength: 60 }),
          fc.jsonValue({ maxDepth: 3 }),
          { minKeys: 1 },
        )
        .map((body) => ({
          about: "random fields",
          content: JSON.stringify({ ...body, "not a field": CANARY }),
          code: "invalid_body",
        })),
    },
    { weight: 30, arbitrary: listed("wrong type", "invalid_body", WRONG_TYPE[action] ?? []) },
    ...(outOfRange.length === 0
      ? []
      : [{ weight: 40, arbitrary: listed("out of range", "validation_error", outOfRange) }]),
    // Two megabytes each: few of them.
    { weight: 1, arbitrary: fc.constantFrom(...TOO_LARGE) },
  );
}
