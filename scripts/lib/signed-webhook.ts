import type { Bindings } from "../../src/shared/env.ts";
import type { RegistryView } from "../../src/shared/registry/define.ts";
import { parseSources } from "../../src/shared/source-env.ts";
import { WEBHOOK_PATH } from "../../src/shared/wait.ts";
import type { WebhookRequest } from "../../src/shared/webhooks/scheme.ts";
import { signWebhook } from "../../src/shared/webhooks/sign.ts";

/** One webhook to be signed, for trying things by hand. */
export interface WebhookDraft {
  readonly source: string;
  readonly body: string;
  /** Where the Worker is, without a slash at the end. */
  readonly baseUrl: string;
  /** The callback that the URL is to name. */
  readonly callbackId?: string | undefined;
  /** The provider's id of the delivery, where it sends one in a header. The same again is a redelivery. */
  readonly deliveryId: string;
  readonly headers: readonly (readonly [string, string])[];
  readonly now: Date;
}

/**
 * Signs a webhook as its provider would.
 *
 * @param env the bindings with the source's secrets
 * @throws Error that says what to do: the source isn't there, its secret isn't set, only its provider can sign, or what is to be
 *   signed isn't there
 */
export async function signedWebhook(
  registry: RegistryView,
  env: Bindings,
  draft: WebhookDraft,
): Promise<WebhookRequest> {
  const { source, body, baseUrl, callbackId, deliveryId, headers, now } = draft;
  const configured = parseSources(env, registry.sources()).get(source);
  if (configured === undefined) {
    const names = registry.sources().map(({ name }) => name);
    throw new Error(`The registry has no source ${source}. It has: ${names.join(", ") || "none"}.`);
  }
  if (!configured.scheme.ok) throw new Error(configured.scheme.error);
  const given = new Headers(headers.map(([name, value]): [string, string] => [name, value]));
  if (!given.has("Content-Type")) given.set("Content-Type", "application/json");
  const request = await signWebhook(
    configured.scheme.value,
    {
      method: "POST",
      url: `${baseUrl}${WEBHOOK_PATH}/${source}${callbackId === undefined ? "" : `/${callbackId}`}`,
      headers: given,
      body: new TextEncoder().encode(body),
    },
    { now, id: deliveryId },
  );
  if (request === null) {
    throw new Error(
      `${configured.source.scheme.name} signs with a key that only its provider has: have it send a test event.`,
    );
  }
  // A signature is left out where something that it is for is missing.
  const verdict = await configured.scheme.value.verify(request, { now, fetch });
  if (!verdict.ok) {
    throw new Error(
      `Something that ${configured.source.scheme.name} signs is missing: look up what a body of it has, and whether it wants --callback.`,
    );
  }
  return request;
}
