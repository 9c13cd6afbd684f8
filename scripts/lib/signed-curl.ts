import type { Bindings } from "../../src/shared/env.ts";
import type { RegistryView } from "../../src/shared/registry/define.ts";
import { parseSources } from "../../src/shared/source-env.ts";
import { WEBHOOK_PATH } from "../../src/shared/wait.ts";
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
 * A shell command that sends a webhook, signed as its provider would.
 *
 * @param env the bindings with the source's secrets
 * @throws Error that says what to do: the source isn't there, its secret isn't set, or only its provider can sign
 */
export async function signedCurl(
  registry: RegistryView,
  env: Bindings,
  draft: WebhookDraft,
): Promise<string> {
  const { source, body, baseUrl, callbackId, deliveryId, headers, now } = draft;
  const configured = parseSources(env, registry.sources()).get(source);
  if (configured === undefined) {
    const names = registry.sources().map(({ name }) => name);
    throw new Error(`The registry has no source ${source}. It has: ${names.join(", ") || "none"}.`);
  }
  if (!configured.scheme.ok) throw new Error(configured.scheme.error);
  const request = await signWebhook(
    configured.scheme.value,
    {
      method: "POST",
      url: `${baseUrl}${WEBHOOK_PATH}/${source}${callbackId === undefined ? "" : `/${callbackId}`}`,
      headers: new Headers([
        ["Content-Type", "application/json"],
        ...headers.map(([name, value]): [string, string] => [name, value]),
      ]),
      body: new TextEncoder().encode(body),
    },
    { now, id: deliveryId },
  );
  if (request === null) {
    throw new Error(
      `${configured.source.scheme.name} signs with a key that only its provider has: have it send a test event.`,
    );
  }
  const lines = [
    `curl -i -X POST ${quoted(request.url)}`,
    ...[...request.headers].map(([name, value]) => `  -H ${quoted(`${name}: ${value}`)}`),
    `  --data-binary ${quoted(new TextDecoder().decode(request.body))}`,
  ];
  return lines.join(" \\\n");
}

/** A word for a POSIX shell. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}
