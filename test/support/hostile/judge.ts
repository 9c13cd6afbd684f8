import { CANARY, type Hostile } from "./request.ts";

/** The codes that a request may be refused by, whoever sends it, with their status: those of the README. */
export const DOCUMENTED: Readonly<Record<string, number>> = {
  validation_error: 400,
  invalid_json: 400,
  unauthorized: 401,
  not_found: 404,
  callback_not_found: 404,
  source_not_found: 404,
  method_not_allowed: 405,
  callback_already_resolved: 409,
  job_still_running: 409,
  unique_conflict: 409,
  callback_expired: 410,
  callback_cancelled: 410,
  callback_superseded: 410,
  payload_too_large: 413,
  unsupported_media_type: 415,
  invalid_body: 422,
  rate_limited: 429,
  follow_up_failed: 500,
};
/** And of a delivery that was recorded and couldn't be processed: once. */
export const DOCUMENTED_OF_DELIVERIES = { ...DOCUMENTED, delivery_failed: 500 };

/** What would tell of our insides, in an answer. */
const INTERNALS =
  /\b(?:SELECT|INSERT INTO|UPDATE awa|awa_edge|pg_catalog|SQLSTATE)\b|postgres(?:ql)?:\/\/|node_modules|\bat .*[(/]\S+:\d+|\/src\/|\b[A-Z]\w*Error\b|\[object /;
/** A signature, or a secret of callbacks. */
const HEX_64 = /[0-9a-f]{64}/i;

/** The code of a refusal, or what sort of success it is. */
export function kindOf(text: string): string {
  const body: unknown = JSON.parse(text);
  if (typeof body !== "object" || body === null) return "no object";
  const { code, status, state, duplicate }: Record<string, unknown> = { ...body };
  if (code !== undefined) return String(code);
  if (duplicate === true) return "duplicate";
  return String(status ?? (state === undefined ? "nothing known" : "moved"));
}

/**
 * Says what is wrong with an answer, in full sentences; nothing: it is as documented.
 *
 * @param secrets what may stand neither in an answer nor in the log
 */
export function judge(
  { method, answers }: Hostile,
  response: { readonly status: number; readonly headers: Headers; readonly text: string },
  documented: Readonly<Record<string, number>>,
  secrets: readonly string[],
): string[] {
  const { status, headers, text } = response;
  const wrong = leaksIn(text, secrets).map((leak) => `the answer shows ${leak}: ${text}`);
  if (INTERNALS.test(text)) wrong.push(`the answer shows internals: ${text}`);
  for (const name of ["server", "x-powered-by", "access-control-allow-origin", "set-cookie", "location"]) {
    if (headers.has(name)) wrong.push(`the answer has the header ${name}`);
  }
  if (method === "HEAD") {
    if (text !== "") wrong.push("HEAD is answered with a body");
    if (![200, 404, 405].includes(status)) wrong.push(`HEAD is answered ${status}`);
    return wrong;
  }
  if (!headers.get("content-type")?.startsWith("application/json")) wrong.push("the answer isn't JSON");
  const kind = kindOf(text);
  if (!answers.includes(kind)) wrong.push(`it is answered ${status} ${kind}`);
  if (status === 200) return wrong;
  if (documented[kind] !== status) wrong.push(`${status} ${kind} isn't documented`);
  if (Object.keys(JSON.parse(text)).join() !== "error,code") wrong.push(`it isn't {error, code}: ${text}`);
  if (status === 405 && !headers.has("allow")) wrong.push("405 without Allow");
  return wrong;
}

/** What of a request, or of our secrets, a text shows: an answer, or a line of the log. */
export function leaksIn(text: string, secrets: readonly string[]): string[] {
  return [
    ...secrets.filter((secret) => text.includes(secret)).map(() => "a secret"),
    ...(text.includes(CANARY) ? ["what was sent"] : []),
    ...(HEX_64.test(text) ? ["64 hexadecimal digits"] : []),
  ];
}
