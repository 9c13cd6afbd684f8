import { evaluatorOf, whyNotCel } from "./cel.ts";
import { type Json, type JsonObject, whyUnstorableText } from "./json.ts";
import { err, ok, type Result } from "./result.ts";
import type { Judgement, RuleEngine, Rules } from "./rules.ts";

/** Rules in CEL, https://cel.dev: `registry.withRules(celRules)`. */
export const celRules: RuleEngine = { check, judge };

const DEFAULT_ACTIONS = ["complete", "fail", "ignore"] as const;
const EXPRESSIONS = ["filter", "onComplete", "onFail", "transform"] as const;

/**
 * Checks rules when a callback is registered: a fault found later could only be passed over.
 *
 * @returns the rules ready to be stored, or a message that names the field and its fault: bad syntax, a variable other than
 * `payload` (those of `exists`, `all`, `map` and `filter` are fine), an unknown function, types that never fit
 */
function check(rules: Rules): Result<JsonObject, string> {
  const read = readRules(rules);
  if (!read.ok) return read;
  for (const field of EXPRESSIONS) {
    const expression = read.value[field];
    if (expression === undefined) continue;
    const whyNot = whyUnstorableText(expression, "it") ?? whyNotCel(expression);
    if (whyNot !== null) return err(`${field}: ${whyNot}`);
  }
  return ok({ ...read.value });
}

/**
 * Decides what becomes of a payload. Pure.
 *
 * An expression that fails or doesn't give a boolean counts as true in the filter and as false in the conditions, and a
 * transformation that fails gives the payload as it came: a mistake in a rule must not hold up a job for good.
 *
 * @param payload null where the delivery had none
 */
function judge(stored: JsonObject, payload: Json): Judgement {
  const read = readRules(stored);
  if (!read.ok) throw new Error(`a callback's stored rules are damaged: ${read.error}`);
  const rules = read.value;
  const { filter, onComplete, onFail, transform } = rules;
  const evaluate = evaluatorOf(payload);
  const isExactly = (expected: boolean, expression: string | undefined): expression is string => {
    if (expression === undefined) return false;
    const result = evaluate(expression);
    return result.ok && result.value === expected;
  };

  if (isExactly(false, filter)) return { type: "ignore", reason: "filter expression returned false" };
  if (isExactly(true, onFail)) {
    return { type: "fail", error: "callback failed: on_fail expression matched", expression: onFail };
  }
  if (isExactly(true, onComplete)) {
    const transformed = transform === undefined ? null : evaluate(transform);
    return { type: "complete", payload: transformed?.ok ? transformed.value : payload };
  }
  switch (rules.default ?? "complete") {
    case "complete":
      return { type: "complete", payload };
    case "fail":
      return { type: "fail", error: "callback failed: default action", expression: null };
    case "ignore":
      return { type: "ignore", reason: "no rule matched: default action" };
  }
}

/** The shape alone. Rules come from an application's own code, which may be JavaScript, or from the database. */
function readRules(value: unknown): Result<Rules, string> {
  if (typeof value !== "object" || value === null || Array.isArray(value))
    return err("rules must be an object");
  const rules: { -readonly [Field in keyof Rules]: Rules[Field] } = {};
  for (const [field, setting] of Object.entries(value)) {
    const expression = EXPRESSIONS.find((name) => name === field);
    const action = DEFAULT_ACTIONS.find((name) => name === setting);
    if (setting === undefined) continue;
    if (expression !== undefined) {
      if (typeof setting !== "string") return err(`${field} must be a CEL expression, written as text`);
      rules[expression] = setting;
    } else if (field === "default") {
      if (action === undefined) return err(`default must be one of ${DEFAULT_ACTIONS.join(", ")}`);
      rules.default = action;
    } else {
      return err(`${field} isn't a field of rules: ${[...EXPRESSIONS, "default"].join(", ")}`);
    }
  }
  return ok(rules);
}
