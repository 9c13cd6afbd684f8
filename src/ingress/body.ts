import { createMiddleware } from "hono/factory";
import * as v from "valibot";
import { whyUnstorable } from "../shared/json.ts";
import { err, ok, type Result } from "../shared/result.ts";
import type { Bytes } from "../shared/webhooks/encoding.ts";
import { type IngressContext, type IngressEnv, refuse } from "./context.ts";
import type { Refusal } from "./wire-errors.ts";

/** The largest body that is read, in bytes: the reference's 2 MB. */
export const MAX_BODY_BYTES = 2_097_152;

/**
 * Reads the body, once. Refuses a larger one: by its Content-Length before anything is read, otherwise while it streams in. What is
 * counted is what comes, since a Content-Length may say anything; and a body that breaks off is its sender's doing, not a fault of ours.
 */
export const limitBody = createMiddleware<IngressEnv>(async (c, next) => {
  const body = await readAtMost(c.req.raw, MAX_BODY_BYTES);
  if (!body.ok) return refuse(c, body.error);
  c.set("body", body.value);
  return next();
});

async function readAtMost(request: Request, maxBytes: number): Promise<Result<Bytes, Refusal>> {
  const tooLarge = err<Refusal>({ type: "too_large", maxBytes });
  if (Number(request.headers.get("Content-Length")) > maxBytes) return tooLarge;
  if (request.body === null) return ok(new Uint8Array());
  const reader = request.body.getReader();
  // One buffer that grows: a body may come in a million pieces of one byte.
  let buffer: Bytes = new Uint8Array();
  let size = 0;
  try {
    for (let next = await reader.read(); !next.done; next = await reader.read()) {
      const end = size + next.value.byteLength;
      if (end > maxBytes) {
        // The rest is of no interest, nor whether its sender can be told so.
        reader.cancel().catch(() => undefined);
        return tooLarge;
      }
      if (end > buffer.length) {
        const grown = new Uint8Array(Math.min(maxBytes, Math.max(end, 2 * buffer.length)));
        grown.set(buffer.subarray(0, size));
        buffer = grown;
      }
      buffer.set(next.value, size);
      size = end;
    }
  } catch {
    return err({ type: "invalid", reason: "the body breaks off" });
  }
  return ok(buffer.subarray(0, size));
}

const JSON_TYPE = /^application\/(?:[a-z0-9.+-]+\+)?json\s*(?:;\s*charset="?utf-8"?\s*)?$/i;
const MAX_ECHOED_CHARACTERS = 40;
const NO_OBJECT = "the body must be a JSON object";

/**
 * Takes the body for JSON of a known shape. No body at all counts as `{}`: a sender that can only be given a URL may send none.
 *
 * A field that isn't in the schema is refused by name: a misspelt one must not silently mean nothing.
 *
 * @param schema a strict object
 */
export function readBody<S extends v.GenericSchema>(
  c: IngressContext,
  schema: S,
): Result<v.InferOutput<S>, Refusal> {
  const bytes = c.get("body");
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

function parseJson(bytes: Bytes): Result<unknown, Refusal> {
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
