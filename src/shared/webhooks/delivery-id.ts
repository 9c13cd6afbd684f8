import { whyNoName } from "../registry/options.ts";
import { toHex, utf8 } from "./encoding.ts";
import { parsePayload } from "./payload.ts";
import type { VerifiedRequest, WebhookScheme } from "./scheme.ts";

/**
 * What makes a delivery the same as another: the provider's own id, which it repeats with every retry. Where it has none, or one that
 * can't be a key, a hash of the body, together with the callback that the URL names: two callbacks may well be told the same. Neither
 * time nor signature goes into it: providers sign every retry anew.
 */
export async function deliveryIdOf(
  scheme: WebhookScheme,
  request: VerifiedRequest,
  body: string,
  pathCallbackId: string | null,
): Promise<string> {
  const payload = parsePayload(body, request.headers.get("content-type") ?? "");
  const id = scheme.deliveryId(request, payload.ok ? payload.value : undefined);
  if (id !== undefined && whyNoName(id, "the id") === null) return id;
  const hashed = utf8(id ?? `${pathCallbackId ?? ""}\n${body}`);
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", hashed));
  return `sha256:${toHex(digest)}`;
}
