import {
  type ASTNode,
  TypeError as CelTypeError,
  Environment,
  EvaluationError,
  ParseError,
  type ParseResult,
} from "@marcbachmann/cel-js";
import { Duration, UnsignedInt } from "@marcbachmann/cel-js/evaluator";
import { isStorable, type Json } from "./json.ts";
import { err, ok, type Result } from "./result.ts";

/** A longer expression is refused: it is read on every delivery, and nobody can review it. */
export const MAX_EXPRESSION_CHARS = 2_000;
/**
 * What one payload may cost, over all its expressions. A unit is about one character of an expression evaluated once, so
 * this is a fraction of a second. A body of 2 MiB in a nested loop would otherwise hold the Worker for hours.
 */
const MAX_WORK = 20_000_000;
/** Text is scanned and copied faster than it is evaluated. */
const CHARS_PER_UNIT = 8;
/** The cost of handing an element of a list, or {@link CHARS_PER_UNIT} characters, to an operator or a function. */
const OPERAND_WEIGHT = 4;

/** The macros that run an expression once for every element of what they are called on. */
const LOOPS: ReadonlySet<string> = new Set(["all", "exists", "exists_one", "filter", "map"]);
/** Names that the library brings along and rules do without, with the reason. */
const NOT_IN_RULES: ReadonlyMap<string, string> = new Map([
  ["matches", "regular expressions can take exponential time here; use contains, startsWith or endsWith"],
  ["split", "its result can be far larger than its input"],
  ["join", "its result can be far larger than its input"],
  ["json", "its numbers would follow other rules"],
]);
/** Constants that the library defines beside the variables. */
const NOT_VARIABLES: ReadonlySet<string> = new Set(["cel", "google"]);

/** An expression can't be compiled, or went wrong on this payload. The message is for people. */
export type CelError = string;

/** What the running evaluation may still spend. Evaluation is synchronous, so there is only ever one. */
const meter = { left: 0 };
/**
 * One object for all: a loop may hit the limit a million times, and a stack trace each would be the attack. Not one of the
 * library's errors, because to those it attaches the expression.
 */
const OVERSPENT = new Error("the payload is too large for this expression");

const environment = withMixedArithmetic(
  new Environment({ homogeneousAggregateLiterals: false }).registerVariable("payload", "dyn"),
);
const meteredEnvironment = environment
  .clone({ limits: { maxDepth: MAX_EXPRESSION_CHARS } })
  .registerFunction("spend(dyn, int): dyn", (value: unknown, weight: bigint) => {
    spend(sizeOf(value) * Number(weight));
    return value;
  });

/** Says why an expression can't be a rule, or `null` where it can. */
export function whyNotCel(expression: string): CelError | null {
  const compiled = compile(expression);
  return compiled.ok ? null : compiled.error;
}

/**
 * Gives a function that evaluates expressions over one payload. It never throws: whatever goes wrong is the error.
 *
 * CEL tells whole numbers (int) from others (double), JSON doesn't. Here a number without a fraction is an int, as in the
 * reference, and one with a fraction is a double. So `payload.amount / 100` of 4200 is 42, and of 4250 too: CEL divides
 * ints without a remainder. Who wants 42.5 writes `payload.amount / 100.0`.
 *
 * JavaScript can't tell 10.0 from 10, so a field may be an int in one payload and a double in the next. Therefore the two
 * mix freely: in comparisons, as in CEL, and also in `+`, `-`, `*` and `/`, which give a double then. Integers beyond 2^53
 * have lost their last digits before they come here, and count as doubles.
 *
 * @returns a result as JSON: an int must be a safe integer, bytes become base64, a timestamp ISO 8601, a duration seconds
 * such as "1.5s", a map's keys text
 */
export function evaluatorOf(payload: Json): (expression: string) => Result<Json, CelError> {
  let converted: { readonly payload: unknown } | null = null;
  let left = MAX_WORK;
  return (expression) => {
    const program = compile(expression);
    if (!program.ok) return program;
    meter.left = left;
    try {
      converted ??= { payload: toCel(payload) };
      const result: unknown = toJson(program.value(converted));
      return isStorable(result) ? ok(result) : err("the result can't be stored as JSON");
    } catch (thrown) {
      return err(reasonOf(thrown));
    } finally {
      left = meter.left;
    }
  };
}

function compile(expression: string): Result<ParseResult, CelError> {
  if (expression.length > MAX_EXPRESSION_CHARS) {
    return err(`is longer than ${MAX_EXPRESSION_CHARS} characters`);
  }
  try {
    const written = environment.parse(expression);
    const metered = withMeter(written.ast, expression);
    const program = meteredEnvironment.parse(metered);
    // As written too, and first: the meter hides types, and its function isn't for rules.
    for (const checked of [written.check(), program.check()]) {
      if (!checked.valid) return err(reasonOf(checked.error));
    }
    return ok(program);
  } catch (thrown) {
    return err(reasonOf(thrown));
  }
}

/** The library's messages go on with a picture of the expression, which belongs in no log. */
function reasonOf(thrown: unknown): CelError {
  if (thrown instanceof ParseError || thrown instanceof CelTypeError || thrown instanceof EvaluationError) {
    return thrown.summary;
  }
  if (thrown instanceof RangeError) return "it is nested too deeply or its result is too large";
  return thrown instanceof Error ? thrown.message : "it failed";
}

function withMixedArithmetic(target: Environment): Environment {
  for (const [left, right] of [
    ["int", "double"],
    ["double", "int"],
  ]) {
    target
      .registerOperator(`${left} + ${right}: double`, (a: number, b: number) => Number(a) + Number(b))
      .registerOperator(`${left} - ${right}: double`, (a: number, b: number) => Number(a) - Number(b))
      .registerOperator(`${left} * ${right}: double`, (a: number, b: number) => Number(a) * Number(b))
      .registerOperator(`${left} / ${right}: double`, (a: number, b: number) => Number(a) / Number(b));
  }
  return target;
}

function spend(units: number): void {
  meter.left -= units;
  if (meter.left < 0) throw OVERSPENT;
}

function sizeOf(value: unknown): number {
  if (typeof value === "string") return Math.ceil(value.length / CHARS_PER_UNIT);
  if (Array.isArray(value) || value instanceof Uint8Array) return value.length;
  if (value instanceof Map) return value.size;
  return typeof value === "object" && value !== null ? Object.keys(value).length : 0;
}

/**
 * Writes an expression out again, with `spend(…)` around everything whose cost grows with the payload: what a loop runs
 * over, and what is handed to a function, to `+` or to `in`. The library has limits for parsing but none for evaluating.
 * Spending before a loop starts, not within it, is what stops nested ones: `exists` and `||` swallow errors.
 */
function withMeter(node: ASTNode, source: string): string {
  const write = (part: ASTNode): string => withMeter(part, source);
  const metered = (part: ASTNode, weight = OPERAND_WEIGHT): string =>
    part.op === "value" ? write(part) : `spend(${write(part)}, ${weight})`;
  switch (node.op) {
    case "value":
      return source.slice(node.range.start, node.range.end);
    case "id":
      if (NOT_VARIABLES.has(node.args)) throw new ParseError(`Unknown variable: ${node.args}`);
      return node.args;
    case ".":
      return `${write(node.args[0])}.${node.args[1]}`;
    case "[]":
      return `${write(node.args[0])}[${write(node.args[1])}]`;
    case "call": {
      const [name, args] = node.args;
      // `has` takes a path, not a value.
      return `${name}(${args.map((arg) => (name === "has" ? write(arg) : metered(arg))).join(", ")})`;
    }
    case "rcall": {
      const [name, receiver, args] = node.args;
      const missing = NOT_IN_RULES.get(name);
      if (missing !== undefined) throw new ParseError(`${name}() isn't available: ${missing}`);
      if (!LOOPS.has(name))
        return `${metered(receiver)}.${name}(${args.map((arg) => metered(arg)).join(", ")})`;
      const weight = args.reduce((sum, { range }) => sum + range.end - range.start, 0);
      return `${metered(receiver, weight)}.${name}(${args.map(write).join(", ")})`;
    }
    case "list":
      return `[${node.args.map(write).join(", ")}]`;
    case "map":
      return `{${node.args.map(([key, value]) => `${write(key)}: ${write(value)}`).join(", ")}}`;
    case "?:": {
      const [condition, yes, no] = node.args;
      return `(${write(condition)} ? ${write(yes)} : ${write(no)})`;
    }
    case "!_":
      return `(!${write(node.args)})`;
    case "-_":
      return `(-${write(node.args)})`;
    case "+":
      return `(${metered(node.args[0])} + ${metered(node.args[1])})`;
    case "in":
      return `(${write(node.args[0])} in ${metered(node.args[1])})`;
    case ".?":
    case "[?]":
      throw new ParseError("optional fields aren't available");
    default:
      return `(${write(node.args[0])} ${node.op} ${write(node.args[1])})`;
  }
}

/**
 * The library looks at an object's `constructor`; an object that brings a field of this name becomes a Map. The others
 * don't, because a Map takes three times the memory, and a body of 2 MiB can hold 700,000 objects.
 */
function toCel(value: Json): unknown {
  if (typeof value === "number") return Number.isSafeInteger(value) ? BigInt(value) : value;
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map(toCel);
  const entries = Object.entries(value).map(([key, item]): [string, unknown] => [key, toCel(item)]);
  return Object.hasOwn(value, "constructor") ? new Map(entries) : Object.fromEntries(entries);
}

function toJson(value: unknown): unknown {
  spend(OPERAND_WEIGHT);
  if (typeof value === "string") spend(value.length);
  if (typeof value === "bigint" || value instanceof UnsignedInt) return toSafeNumber(value.valueOf());
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map(toJson);
  if (value instanceof Map) return toJsonObject([...value]);
  if (value instanceof Date) return value.toISOString();
  if (value instanceof Duration) return toSeconds(value);
  if (value instanceof Uint8Array) {
    spend(value.length);
    return btoa(Array.from(value, (byte) => String.fromCharCode(byte)).join(""));
  }
  return Object.getPrototypeOf(value) === Object.prototype ? toJsonObject(Object.entries(value)) : value;
}

function toJsonObject(entries: readonly (readonly [unknown, unknown])[]): Record<string, unknown> {
  return Object.fromEntries(entries.map(([key, item]) => [String(key), toJson(item)]));
}

function toSafeNumber(value: bigint): number {
  const number = Number(value);
  if (!Number.isSafeInteger(number)) throw new EvaluationError("the result has an integer beyond 2^53");
  return number;
}

/** As protobuf writes durations in JSON. The library's own text is wrong for negative fractions. */
function toSeconds(duration: Duration): string {
  const nanos = duration.seconds * 1_000_000_000n + BigInt(duration.nanos);
  const digits = String(nanos < 0n ? -nanos : nanos).padStart(10, "0");
  const fraction = digits.slice(-9).replace(/0+$/, "");
  return `${nanos < 0n ? "-" : ""}${digits.slice(0, -9)}${fraction === "" ? "" : `.${fraction}`}s`;
}
