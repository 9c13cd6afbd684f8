import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { MAX_EXPRESSION_CHARS } from "../../src/shared/cel.ts";
import { celRules } from "../../src/shared/cel-rules.ts";
import type { Json, JsonObject } from "../../src/shared/json.ts";
import type { Rules } from "../../src/shared/rules.ts";

const { check: checkRules } = celRules;
const judge = (rules: Rules, payload: Json) => celRules.judge({ ...rules }, payload);

const JUDGEMENT = { complete: "complete", fail: "fail", ignore: "ignore" } as const;
const FILTERED = { type: JUDGEMENT.ignore, reason: "filter expression returned false" };
const UNMATCHED = { type: JUDGEMENT.ignore, reason: "no rule matched: default action" };
const DEFAULT_FAIL = { type: JUDGEMENT.fail, error: "callback failed: default action", expression: null };

/** Whether a condition holds: errors and everything that isn't true are told apart by a filter beside it. */
function holds(condition: string, payload: Json): boolean {
  expect(checkRules({ onComplete: condition })).toMatchObject({ ok: true });
  return judge({ onComplete: condition, default: "ignore" }, payload).type === "complete";
}

const BROKEN = Symbol("the transformation fails");
function transformed(transform: string, payload: Json): unknown {
  expect(checkRules({ transform })).toMatchObject({ ok: true });
  const marked = { marker: "original", payload };
  const judgement = judge(
    { onComplete: "true", transform: transform.replaceAll("payload", "payload.payload") },
    marked,
  );
  expect(judgement.type).toBe("complete");
  if (judgement.type !== "complete") return undefined;
  return judgement.payload === marked ? BROKEN : judgement.payload;
}

/** The fault that registration finds. */
function fault(rules: Rules): string {
  const checked = checkRules(rules);
  return checked.ok ? "none" : checked.error;
}

describe("judge", () => {
  test("C1 rules without expressions: complete with the payload, whatever it is", () => {
    expect(judge({}, { a: 1 })).toEqual({ type: "complete", payload: { a: 1 } });
    expect(judge({ default: "complete" }, null)).toEqual({ type: "complete", payload: null });
  });
  test("C2 default ignore: the callback goes on waiting", () => {
    expect(judge({ default: "ignore" }, { a: 1 })).toEqual(UNMATCHED);
  });
  test("default fail, without an expression to blame", () => {
    expect(judge({ default: "fail" }, { a: 1 })).toEqual(DEFAULT_FAIL);
  });
  test("C3 filter false: ignored, even where a condition holds", () => {
    const rules = { filter: 'payload.type == "payment"', onComplete: "true", onFail: "true" };
    expect(judge(rules, { type: "refund" })).toEqual(FILTERED);
  });
  test("C4 filter true, then onComplete", () => {
    const rules: Rules = {
      filter: 'payload.type == "payment"',
      onComplete: 'payload.status == "done"',
      default: "ignore",
    };
    const done = { type: "payment", status: "done" };
    expect(judge(rules, done)).toEqual({ type: "complete", payload: done });
    expect(judge(rules, { type: "payment", status: "pending" })).toEqual(UNMATCHED);
    expect(judge(rules, { type: "refund", status: "done" })).toEqual(FILTERED);
  });
  test("C5 onFail true: fail, with the expression", () => {
    const onFail = 'payload.status == "failed"';
    expect(judge({ onFail }, { status: "failed" })).toEqual({
      type: "fail",
      error: "callback failed: on_fail expression matched",
      expression: onFail,
    });
  });
  test("C6 fail beats complete", () => {
    expect(judge({ onFail: "payload.bad", onComplete: "true" }, { bad: true })).toMatchObject({
      type: "fail",
    });
  });
  test("C7 transform 4200 / 100 = 42", () => {
    const rules = { onComplete: "payload.amount > 0", transform: "payload.amount / 100" };
    expect(judge(rules, { amount: 4200 })).toEqual({ type: "complete", payload: 42 });
  });
  test("C7 a transformation gives objects too", () => {
    expect(transformed('{"id": payload.id, "cents": payload.n * 100}', { id: "x", n: 42 })).toEqual({
      id: "x",
      cents: 4200,
    });
  });
  test("C8 a broken filter passes", () => {
    expect(judge({ filter: "payload.missing.deep > 0" }, { a: 1 })).toMatchObject({ type: "complete" });
  });
  test("C9 a broken transformation keeps the payload", () => {
    const rules = { onComplete: "true", transform: "payload.missing.deep" };
    expect(judge(rules, { a: 1 })).toEqual({ type: "complete", payload: { a: 1 } });
  });
  test("C10 nothing matches: the default, with the payload as it came", () => {
    const rules = { onComplete: "payload.n > 5", onFail: "payload.n < 0", transform: "payload.n / 0" };
    expect(judge({ ...rules, default: "complete" }, { n: 1 })).toEqual({
      type: "complete",
      payload: { n: 1 },
    });
    expect(judge({ ...rules, default: "ignore" }, { n: 1 })).toEqual(UNMATCHED);
    expect(judge({ ...rules, default: "fail" }, { n: 1 })).toEqual(DEFAULT_FAIL);
  });
  test("a transformation applies only where onComplete matched", () => {
    expect(judge({ transform: "payload.n" }, { n: 1 })).toEqual({ type: "complete", payload: { n: 1 } });
    const rules = { onComplete: "false", transform: "payload.n" };
    expect(judge(rules, { n: 1 })).toEqual({ type: "complete", payload: { n: 1 } });
  });
  test("C14 a nested path", () => {
    expect(holds('payload.data.charge["status"] == "paid"', { data: { charge: { status: "paid" } } })).toBe(
      true,
    );
    expect(holds("payload.items[1].id == 7", { items: [{ id: 6 }, { id: 7 }] })).toBe(true);
  });
  test("C15 a missing field counts as false", () => {
    expect(holds("payload.missing == 1", { a: 1 })).toBe(false);
    expect(holds("payload.missing != 1", { a: 1 })).toBe(false);
    expect(judge({ onFail: "payload.missing" }, {})).toMatchObject({ type: "complete" });
  });
  test("no payload: it is null", () => {
    expect(holds("payload == null", null)).toBe(true);
    expect(holds("payload.a == 1", null)).toBe(false);
  });
});

describe("fail-open", () => {
  const payload = { text: "yes", zero: 0, none: null, list: [true] };
  const faulty = [
    "payload.nope",
    "1 / payload.zero == 1",
    "payload.text",
    "payload.zero",
    "payload.none",
    "payload.list",
    "1",
    '"x"',
  ];
  test.each(faulty)("filter %s counts as true", (filter) => {
    expect(checkRules({ filter })).toMatchObject({ ok: true });
    expect(judge({ filter, default: "fail" }, payload)).toEqual(DEFAULT_FAIL);
  });
  test.each(faulty)("onFail %s counts as false", (onFail) => {
    expect(judge({ onFail }, payload)).toEqual({ type: "complete", payload });
  });
  test.each(faulty)("onComplete %s counts as false", (onComplete) => {
    expect(judge({ onComplete, default: "ignore" }, payload)).toEqual(UNMATCHED);
  });
  test("an expression that no longer compiles counts as one that fails", () => {
    const rules = { filter: "((", onFail: "other == 1", onComplete: "payload", default: "fail" } as const;
    expect(judge(rules, payload)).toEqual(DEFAULT_FAIL);
  });
  test.each([
    ["an integer beyond 2^53", "9007199254740993"],
    ["an overflow", "payload.big * payload.big"],
    ["an infinite number", "1.0 / 0.0"],
    ["not a number", "0.0 / 0.0"],
    ["a type", "type(payload)"],
    ["NUL", '"a\\u0000b"'],
    ["a list with what can't be stored", "[1.0 / 0.0]"],
    ["a key with what can't be stored", '{"a\\u0000b": 1}'],
  ])("a transformation that gives %s keeps the payload", (_what, transform) => {
    expect(transformed(transform, { big: 9_007_199_254_740_991 })).toBe(BROKEN);
  });
});

describe("numbers", () => {
  test.each([
    ["payload.amount == 4200", true],
    ["payload.amount == 4200.0", true],
    ["payload.amount != 4200", false],
    ["payload.ratio > 0.5", true],
    ["payload.ratio >= 1", true],
    ["payload.half > 0", true],
    ["payload.half == 0.5", true],
    ["payload.half == 1", false],
    ["payload.count > 1", true],
    ["payload.count > 1.5", true],
    ["1.5 < payload.count", true],
    ["payload.count % 2 == 0", true],
    ["payload.half * 2 == 1", true],
    ["payload.half + payload.count == 2.5", true],
    ["payload.count in [1, 2, 3]", true],
    ["2 in payload.list", true],
    ["2.5 in payload.list", true],
    ["payload.list[payload.ratio] == 2.5", true],
    ["size(payload.list) == 3", true],
    ["payload.list == [1, 2.5, 2]", true],
    ["payload.big > 9007199254740992", true],
    ["-payload.count == -2", true],
    ['string(payload.count) == "2"', true],
    ['payload.count == "2"', false],
    ["1 - (2 - payload.count) == 1", true],
    ["payload.count * (1 + payload.count) == 6", true],
    ["0.1234567891234 < 0.1234567891235", true],
  ])("%s is %s", (condition, expected) => {
    const payload = { amount: 4200, ratio: 1, half: 0.5, count: 2, list: [1, 2.5, 2], big: 1e17 };
    expect(holds(condition, payload)).toBe(expected);
  });
  test.each([
    ["payload.amount / 100", 42],
    ["payload.amount / 100.0", 42.5],
    ["double(payload.amount) / 100", 42.5],
    ["payload.price / 2", 5.25],
    ["payload.price * 100", 1050],
    ["100 - payload.price", 89.5],
    ["-payload.price", -10.5],
    ["9007199254740991", 9_007_199_254_740_991],
  ])("%s gives %s", (transform, expected) => {
    expect(transformed(transform, { amount: 4250, price: 10.5 })).toBe(expected);
  });
});

describe("what a transformation gives is JSON", () => {
  const payload = { s: "text", list: [1, 2.5, null, { a: [true] }], map: { "": 1, constructor: 2 } };
  test.each<[string, Json]>([
    ["payload", payload],
    ["payload.list", payload.list],
    ["payload.list.filter(i, i != null).map(i, [i])", [[1], [2.5], [{ a: [true] }]]],
    ["payload.map(key, key)", ["s", "list", "map"]],
    ["payload.s + payload.s", "texttext"],
    ["[payload.s, 1, 2.5, null]", ["text", 1, 2.5, null]],
    ['{1: "a", true: "b"}', { 1: "a", true: "b" }],
    ["{}", {}],
    ["7u", 7],
    ['b"ab\\xff"', "YWL/"],
    ['timestamp("2026-01-02T03:04:05Z")', "2026-01-02T03:04:05.000Z"],
    ['duration("90m")', "5400s"],
    ['duration("1.5s")', "1.5s"],
    ['duration("-1.5s")', "-1.5s"],
    ['payload.s == "text" ? "yes" : "no"', "yes"],
    ["has(payload.list) && !has(payload.nope)", true],
    [
      "payload.list.filter(i, i == 2.5) + payload.list.map(i, payload.s) + [0]",
      [2.5, "text", "text", "text", "text", 0],
    ],
    ['b"a" + b"b"', "YWI="],
    ['string(1 + 2.5) + "x" + "y"', "3.5xy"],
    ['timestamp("2026-01-02T03:04:05Z") + duration("1h") - duration("1m")', "2026-01-02T04:03:05.000Z"],
    ['timestamp("2026-01-02T00:00:00Z") - timestamp("2026-01-01T00:00:00Z")', "86400s"],
    ["type(payload.list) == list && type(payload.s) == string && type(1 + 1) == int", true],
    ['int("5") + size(payload.s) - payload.s.size()', 5],
    ['"a" in payload.list[3] && !("b" in payload.list[3]) && payload.s in ["text"]', true],
    ['payload.s.startsWith("te") && payload.s.contains("ex") && payload.s.endsWith("xt")', true],
    ["(payload.list[0] == 1 ? [payload.list] : [])[0][1]", 2.5],
    ["!(payload.list[0] > 1 || payload.list[1] > 3) // a comment", true],
    ['r"\\d" + "\\u00e9" + \'"\'', '\\dé"'],
  ])("%s", (transform, expected) => {
    expect(transformed(transform, payload)).toEqual(expected);
  });
  test("names that mean something to JavaScript are plain fields", () => {
    const odd: Json = JSON.parse('{"constructor": "a", "__proto__": {"b": 1}, "toString": null}');
    expect(holds('payload.constructor == "a" && payload.toString == null', odd)).toBe(true);
    expect(holds("payload.hasOwnProperty == null", odd)).toBe(false);
    expect(holds("has(payload.constructor) && !has(payload.valueOf)", odd)).toBe(true);
    expect(holds('has(payload.valueOf) || "valueOf" in payload', {})).toBe(false);
    expect(holds("payload.a == payload.b", { a: { toString: null }, b: { x: null } })).toBe(false);
    expect(holds("payload.a == payload.b", { a: odd, b: odd })).toBe(true);
    expect(JSON.stringify(transformed("payload", odd))).toBe(JSON.stringify(odd));
  });
});

describe("checkRules", () => {
  test("gives what is to be stored", () => {
    const rules: Rules = {
      filter: "payload.a",
      onComplete: "payload.b",
      onFail: "payload.c",
      transform: "payload.d",
      default: "fail",
    };
    expect(checkRules(rules)).toEqual({ ok: true, value: rules });
    expect(checkRules({})).toEqual({ ok: true, value: {} });
  });
  test.each(["filter", "onComplete", "onFail", "transform"] as const)(
    "C11 bad syntax in %s is named",
    (field) => {
      expect(fault({ [field]: "payload.a ==" })).toMatch(new RegExp(`^${field}: `));
      expect(fault({ [field]: "" })).toMatch(new RegExp(`^${field}: `));
    },
  );
  test.each([
    ["other == 1", "other"],
    ["payload.a == other", "other"],
    ["payload.items.exists(i, i == j)", "j"],
    ["payload.items.exists(i, true) && i == 1", "i"],
    ["cel == cel", "cel"],
    ["cel.bind(x, payload, x == x)", "cel"],
    ["google.protobuf == null", "google"],
  ])("another variable: %s", (onComplete, name) => {
    expect(fault({ onComplete })).toBe(`onComplete: Unknown variable: ${name}`);
  });
  test.each([
    "payload.items.exists(i, i.ok)",
    "payload.items.all(i, payload.items.exists(j, i == j))",
    "payload.items.filter(i, i.ok).map(i, i.id).size() == 1",
    "payload.items.exists_one(i, i.ok)",
  ])("a loop's own variable is fine: %s", (onComplete) => {
    expect(checkRules({ onComplete })).toMatchObject({ ok: true });
    expect(holds(onComplete, { items: [{ ok: true, id: 1 }] })).toBe(true);
  });
  test.each([
    ["an unknown function", "spend(payload, 1) == 1", /spend/],
    ["an unknown method", "payload.a.nope()", /nope/],
    ["types that never fit", '"a" == 1', /no such overload/],
    ["a regular expression", 'payload.a.matches("(a+)+$")', /exponential/],
    ["join", 'payload.a.join(",") == ""', /join/],
    ["NUL", '"\0" == payload', /NUL/],
  ])("refused: %s", (_what, onComplete, message) => {
    expect(fault({ onComplete })).toMatch(message);
  });
  test("a fault doesn't repeat the expression", () => {
    expect(fault({ onFail: 'payload.password == "hunter2" && nope' })).not.toContain("hunter2");
  });
  test.each<[string, object]>([
    ["on_complete", { on_complete: "true" }],
    ["filter", { filter: true }],
    ["transform", { transform: null }],
    ["default", { default: "retry" }],
    ["default", { default: null }],
    ["object", []],
  ])("what TypeScript would refuse: %s", (name, rules) => {
    const checked = checkRules(rules);
    expect(checked).toEqual({ ok: false, error: expect.stringContaining(name) });
  });
});

describe("stored rules", () => {
  test("are what the check gave, through JSON", () => {
    const checked = checkRules({ onComplete: "payload.ok", default: "ignore" });
    if (!checked.ok) expect.fail(checked.error);
    expect(celRules.judge(JSON.parse(JSON.stringify(checked.value)), { ok: true }).type).toBe("complete");
    expect(celRules.judge(JSON.parse(JSON.stringify(checked.value)), { ok: false }).type).toBe("ignore");
  });
  test.each<[string, JsonObject]>([
    ["an unknown field", { on_complete: "true" }],
    ["an expression that isn't text", { filter: 1 }],
    ["an unknown default", { default: "retry" }],
  ])("%s was stored by no build of ours", (_what, stored) => {
    expect(() => celRules.judge(stored, null)).toThrow("stored rules");
  });
});

describe("hostile expressions", () => {
  test("the longest one, and one longer", () => {
    const longest = `payload.a == "${"x".repeat(MAX_EXPRESSION_CHARS - 15)}"`;
    expect(longest).toHaveLength(MAX_EXPRESSION_CHARS);
    expect(fault({ filter: longest })).toBe("none");
    expect(fault({ filter: `${longest} ` })).toBe(
      `filter: is longer than ${MAX_EXPRESSION_CHARS} characters`,
    );
  });
  test.each([
    ["brackets", `${"(".repeat(900)}payload${")".repeat(900)}`],
    ["lists", `${"[".repeat(900)}payload${"]".repeat(900)}`],
    ["indices", `payload${"[0]".repeat(600)}`],
    ["negations", `${"!".repeat(1_900)}payload`],
    ["conditions", `${"payload ? true : ".repeat(110)}false`],
    ["sums", Array(220).fill("payload").join(" + ")],
    ["alternatives", Array(180).fill("payload").join(" || ")],
    ["loops", `${"payload.all(a, ".repeat(100)}true${")".repeat(100)}`],
  ])("deep %s are refused or judged, not a crash", (_what, onComplete) => {
    checkRules({ onComplete });
    expect(judge({ onComplete, default: "ignore" }, "x")).toEqual(UNMATCHED);
  });
  test("a long chain is fine", () => {
    const condition = Array.from({ length: 80 }, (_, i) => `payload.n == ${i}`).join(" || ");
    expect(holds(condition, { n: 79 })).toBe(true);
    expect(holds(condition, { n: 80 })).toBe(false);
  });
});

describe("hostile payloads", () => {
  const MAX_MS = 5_000;
  function nested(levels: number): Json {
    let value: Json = "end";
    for (let i = 0; i < levels; i++) value = [value];
    return value;
  }
  const list = Array.from({ length: 50_000 }, (_, i) => i);
  const text = "a".repeat(2_000_000);

  test("nested a hundred thousand levels deep", () => {
    const payload = nested(100_000);
    expect(judge({ filter: "payload == 1", onComplete: "true", transform: "payload" }, payload)).toEqual({
      type: "complete",
      payload,
    });
  });
  test("a result nested too deeply to be stored", () => {
    expect(transformed("[payload]", nested(127))).toEqual([nested(127)]);
    expect(transformed("[payload]", nested(128))).toBe(BROKEN);
  });
  test("a large list is looked through", () => {
    expect(holds("payload.exists(i, i == 49999)", list)).toBe(true);
    expect(holds("49999 in payload && payload.all(i, i >= 0)", list)).toBe(true);
  });
  test.each([
    ["two loops", "payload.list.all(a, payload.list.all(b, b >= 0))"],
    ["two loops that swallow errors", "payload.list.exists(a, payload.list.exists(b, b < 0))"],
    ["three loops", "payload.list.all(a, payload.list.exists(b, payload.list.exists(c, a + b + c < 0)))"],
    ["a loop of memberships", "payload.list.exists(a, -1 in payload.list)"],
    ["a loop of searches", 'payload.list.exists(a, payload.text.contains("ab"))'],
    ["a loop of long sums", "payload.list.map(a, payload.list + payload.list).size() == 0"],
    ["a loop of long texts", "payload.list.map(a, (payload.text + payload.text).upperAscii()).size() == 0"],
    ["a loop of conversions", "payload.list.map(a, bytes(payload.text)).size() == 0"],
  ])("%s over it end", (_what, condition) => {
    const start = performance.now();
    expect(holds(condition, { list, text })).toBe(false);
    expect(performance.now() - start).toBeLessThan(MAX_MS);
  });
  test.each([
    ["shares one list", "payload.list.map(a, payload.list)"],
    ["shares one text", "payload.list.map(a, payload.text)"],
  ])("a huge result that %s keeps the payload", (_what, transform) => {
    const start = performance.now();
    expect(transformed(transform, { list, text })).toBe(BROKEN);
    expect(performance.now() - start).toBeLessThan(MAX_MS);
  });
  test("one payload's cost is another's not", () => {
    expect(holds("payload.list.all(a, payload.list.all(b, b >= 0))", { list })).toBe(false);
    expect(holds("payload.list.all(a, payload.list.all(b, b >= 0))", { list: [1, 2, 3] })).toBe(true);
  });
});

describe("properties", () => {
  const expressions = fc.constantFrom(
    "payload",
    "payload.a",
    "payload.a.b == 1",
    "payload[0] > 0.5",
    "payload.a / 100",
    "payload + payload",
    "payload.exists(i, i == payload)",
    "payload.map(i, [i, payload])",
    "size(payload) > 1",
    "payload == null",
    "payload in [payload]",
    '{"it": payload}',
    "!payload",
    "-payload",
    "((",
  );
  const anyRules = fc.record(
    {
      filter: expressions,
      onFail: expressions,
      onComplete: fc.oneof(expressions, fc.constant("true")),
      transform: expressions,
      default: fc.constantFrom("complete", "fail", "ignore"),
    },
    { requiredKeys: [] },
  );
  const anyPayload: fc.Arbitrary<Json> = fc
    .jsonValue()
    .map((value): Json => JSON.parse(JSON.stringify(value)));

  test("judge never throws, whatever the payload", () => {
    fc.assert(
      fc.property(anyRules, anyPayload, (rules, payload) => {
        expect(Object.keys(JUDGEMENT)).toContain(judge(rules, payload).type);
      }),
    );
  });
  test("judge never throws, whatever the expression", () => {
    fc.assert(
      fc.property(fc.string(), anyPayload, (text, payload) => {
        const rules = { filter: text, onFail: text, onComplete: text, transform: text };
        expect(Object.keys(JUDGEMENT)).toContain(judge(rules, payload).type);
      }),
    );
  });
  test("a payload goes through an expression unchanged", () => {
    fc.assert(
      fc.property(anyPayload, (payload) => {
        expect(transformed("payload", payload)).toEqual(payload);
      }),
    );
  });
});
