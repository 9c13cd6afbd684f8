import { err, ok, type Result } from "../result.ts";

const FORM = /^application\/x-www-form-urlencoded\b/i;

/**
 * Reads the body of a webhook: a form by its content type, and anything else as JSON, since some providers send that as text.
 *
 * Of a form each field becomes a text, or a list of texts where it comes more than once. A form that is nothing but a field
 * `payload` counts as the JSON in it: that is how GitHub and Slack send JSON as a form.
 */
export function parsePayload(body: string, contentType: string): Result<unknown, string> {
  if (!FORM.test(contentType)) return parseJson(body);
  const fields = new Map<string, string[]>();
  for (const [name, value] of new URLSearchParams(body))
    fields.set(name, [...(fields.get(name) ?? []), value]);
  const [payload, ...more] = fields.get("payload") ?? [];
  if (fields.size === 1 && payload !== undefined && more.length === 0) return parseJson(payload);
  return ok(
    Object.fromEntries(
      [...fields].map(([name, [first, ...rest]]) => [name, rest.length > 0 ? [first, ...rest] : first]),
    ),
  );
}

function parseJson(text: string): Result<unknown, string> {
  try {
    return ok(JSON.parse(text));
  } catch {
    return err("the body isn't valid JSON");
  }
}
