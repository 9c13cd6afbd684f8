import type { Compiled } from "./compiled.ts";
import type { WebhookDescription } from "./description.ts";
import { type Bytes, toBase64, toHex, utf8 } from "./encoding.ts";
import type { Key } from "./keys.ts";
import { parseJson, sourceOf, stepsOf } from "./places.ts";
import type { ReadyScheme, WebhookRequest } from "./scheme.ts";
import { fill } from "./template.ts";

/** Signs as a provider does: puts the delivery's id, the time and the signature where the provider has them. */
export function signerOf(
  description: WebhookDescription,
  compiled: Compiled,
  mac: NonNullable<Key["sign"]>,
): NonNullable<ReadyScheme["sign"]> {
  const { from } = description.signature;
  const [place = ""] = typeof from === "string" ? [from] : from;
  const [[idPart, ...more] = []] = compiled.deliveryIds;
  const idPlace = more.length === 0 ? (idPart?.name ?? "") : "";
  const isInBody = place.startsWith("body:");
  return async (given, { now, id }) => {
    // An id in the body is the sender's own, save where the signature stands there too and signs it.
    let request = isInBody || idPlace.startsWith("header:") ? put(given, idPlace, id) : given;
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
    const signature = typeof content === "string" ? null : await signatureOf(content);
    if (signature === null) return request;
    items.push(`${compiled.label}${signature}`);
    const separator = description.algorithm === "token" ? "" : description.signature.separator;
    return put(request, place.replace(/-\*$/, "-1"), items.join(separator));
  };

  async function signatureOf(content: Bytes): Promise<string | null> {
    try {
      const bytes = await mac(content);
      if (description.algorithm === "token") return new TextDecoder().decode(bytes);
      return description.signature.encoding === "hex" ? toHex(bytes) : toBase64(bytes);
    } catch {
      return null;
    }
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
