import { bodyLimit } from "hono/body-limit";
import * as v from "valibot";
import { whyUnstorable } from "../shared/json.ts";
import { err, ok, type Result } from "../shared/result.ts";
import { type IngressContext, refuse } from "./context.ts";
import type { Refusal } from "./wire-errors.ts";

/** The largest body that is read, in bytes: the reference's 2 MB. */
export const MAX_BODY_BYTES = 2_097_152;

/** Refuses a larger body: by its Content-Length before anything is read, otherwise while it streams in. */
export const limitBody = bodyLimit({
  maxSize: MAX_BODY_BYTES,
  onError: (c: IngressContext) => refuse(c, { type: "too_large", maxBytes: MAX_BODY_BYTES }),
});

const JSON_TYPE = /^application\/(?:[a-z0-9.+-]+\+)?json\s*(?:;\s*charset="?utf-8"?\s*)?$/i;
const MAX_ECHOED_CHARACTERS = 40;
const NO_OBJECT = "the body must be a JSON object";

/**
 * Reads a JSON body of a known shape. No body at all counts as `{}`: a sender that can only be given a URL may send none.
 *
 * A field that isn't in the schema is refused by name: a misspelt one must not silently mean nothing.
 *
 * @param schema a strict object
 */
export async function readBody<S extends v.GenericSchema>(
  c: IngressContext,
  schema: S,
): Promise<Result<v.InferOutput<S>, Refusal>> {
  const bytes = await c.req.arrayBuffer();
  let value: unknown = {};
  if (bytes.byteLength > 0) {
    if (!JSON_TYPE.test(c.req.header("Content-Type") ?? "")) return err({ type: "wrong_content_type" });
    const parsed = parseJson(bytes);
    if (!parsed.ok) return parsed;
    value = parsed.value;
  }
  // An array without elements would pass as an object without fields.
  if (Array.isArray(value)) return err({ type: "wrong_shape", reason: NO_OBJECT });
  const unstorable = whyUnstorable(value, "the body");
  const shaped = v.safeParse(schema, value);
  if (!shaped.success) return err({ type: "wrong_shape", reason: describe(shaped.issues[0]) });
  return unstorable === null ? ok(shaped.output) : err({ type: "invalid", reason: unstorable });
}

function parseJson(bytes: ArrayBuffer): Result<unknown, Refusal> {
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: false }).decode(bytes);
  } catch {
    return err({ type: "invalid_json", reason: "the body isn't valid UTF-8" });
  }
  try {
    return ok(JSON.parse(text));
  } catch {
    return err({ type: "invalid_json", reason: "the body isn't valid JSON" });
  }
}

/** Says what is wrong with the body's shape, naming the field. */
function describe(issue: v.BaseIssue<unknown>): string {
  const [at] = issue.path ?? [];
  if (at === undefined) return NO_OBJECT;
  const field = JSON.stringify(String(at.key).slice(0, MAX_ECHOED_CHARACTERS));
  if (issue.expected === "never") return `unknown field ${field}`;
  return issue.received === "undefined"
    ? `missing field ${field}`
    : `field ${field} must be a ${issue.expected}`;
}
