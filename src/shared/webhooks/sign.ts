import { compile } from "./compiled.ts";
import { type Bytes, toBase64, toHex, utf8 } from "./encoding.ts";
import { parseJson, sourceOf, stepsOf } from "./places.ts";
import type { ReadyScheme, Signing, WebhookRequest } from "./scheme.ts";
import { fill } from "./template.ts";

/** When a webhook is signed, and the provider's id of the delivery. */
export interface SignedBy {
  readonly now: Date;
  readonly id: string;
}

/**
 * Signs a webhook as its provider does, for trying things by hand: puts the delivery's id, the time and the signature where the
 * provider has them. A request that lacks something that is signed comes back without a signature.
 *
 * @returns the request as it is to be sent; `null` where only the provider can sign
 */
export async function signWebhook(
  { signing }: ReadyScheme,
  request: WebhookRequest,
  by: SignedBy,
): Promise<WebhookRequest | null> {
  if (signing === undefined) return null;
  if (signing.asSigned === undefined) return sign(signing, request, by);
  const pair = await signing.asSigned(request);
  if (pair === null) return request;
  const { headers } = await sign(signing, pair.signed, by);
  return { ...pair.sent, headers };
}

async function sign(
  { description, mac }: Signing,
  given: WebhookRequest,
  { now, id }: SignedBy,
): Promise<WebhookRequest> {
  const compiled = compile(description);
  const { from } = description.signature;
  const [place = ""] = typeof from === "string" ? [from] : from;
  const [[idPart, ...more] = []] = compiled.deliveryIds;
  const idPlace = more.length === 0 ? (idPart?.name ?? "") : "";
  // An id in the body is the sender's own, save where the signature stands there too and signs it.
  const hasOurId = place.startsWith("body:") || idPlace.startsWith("header:");
  let request = hasOurId ? put(given, idPlace, id) : given;
  const items: string[] = [];
  let timestamp = "";
  if (description.algorithm !== "token" && description.timestamp !== undefined) {
    const { from: timePlace, unit } = description.timestamp;
    timestamp =
      unit === "rfc3339"
        ? now.toISOString()
        : String(Math.floor(unit === "ms" ? now.getTime() : now.getTime() / 1000));
    if (timePlace.startsWith("field:")) items.push(`${compiled.time?.label}${timestamp}`);
    else request = put(request, timePlace, unit === "rfc3339" ? timestamp : Number(timestamp));
  }
  const content = await fill(compiled.content, sourceOf(request), timestamp);
  const signature = typeof content === "string" ? null : await signatureOf({ description, mac }, content);
  if (signature === null) return request;
  items.push(`${compiled.label}${signature}`);
  const separator = description.algorithm === "token" ? "" : description.signature.separator;
  return put(request, place.replace(/-\*$/, "-1"), items.join(separator));
}

async function signatureOf({ description, mac }: Signing, content: Bytes): Promise<string | null> {
  try {
    const bytes = await mac(content);
    if (description.algorithm === "token") return new TextDecoder().decode(bytes);
    return description.signature.encoding === "hex" ? toHex(bytes) : toBase64(bytes);
  } catch {
    return null;
  }
}

/** The same request with a value in one of its places. */
function put(request: WebhookRequest, place: string, value: string | number): WebhookRequest {
  const name = place.slice(place.indexOf(":") + 1);
  if (place.startsWith("header:")) {
    const headers = new Headers(request.headers);
    headers.set(name, String(value));
    return { ...request, headers };
  }
  if (place.startsWith("body:")) {
    return {
      ...request,
      body: utf8(JSON.stringify(withValue(parseJson(request.body), stepsOf(name), value))),
    };
  }
  if (place.startsWith("query:") && URL.canParse(request.url)) {
    const url = new URL(request.url);
    url.searchParams.set(name, String(value));
    return { ...request, url: url.href };
  }
  return request;
}

/** The same JSON with a value at the end of a path, whose objects and lists are made where there are none. */
function withValue(json: unknown, [step, ...more]: readonly string[], value: string | number): unknown {
  if (step === undefined) return value;
  if (step === "*" || /^\d+$/.test(step)) {
    const items: unknown[] = Array.isArray(json) ? [...json] : [];
    const at = step === "*" ? 0 : Number(step);
    items[at] = withValue(items[at], more, value);
    return items;
  }
  const fields: Readonly<Record<string, unknown>> =
    typeof json === "object" && json !== null && !Array.isArray(json) ? { ...json } : {};
  return { ...fields, [step]: withValue(fields[step], more, value) };
}
