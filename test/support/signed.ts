import type { Bindings } from "../../src/shared/env.ts";
import type { RegistryView } from "../../src/shared/registry/define.ts";
import { parseSources } from "../../src/shared/source-env.ts";
import { signWebhook } from "../../src/shared/webhooks/sign.ts";

/** Secrets for the example's sources. */
export const SOURCE_SECRETS = {
  STRIPE_WEBHOOK_SECRET: "whsec_test_stripe",
  GITHUB_WEBHOOK_SECRET: "test-github",
  CARRIER_WEBHOOK_SECRET: "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3",
  REPLICATE_WEBHOOK_SECRET: "whsec_ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4",
} as const satisfies Bindings;

/** One webhook to be signed. */
export interface ToSign {
  readonly source: string;
  /** JSON. */
  readonly body: unknown;
  /** The callback that the URL names. */
  readonly callbackId?: string | null;
  /** The provider's id of the delivery, where it stands in a header. */
  readonly id?: string;
  readonly headers?: Readonly<Record<string, string>>;
}

/** Signs a webhook as its provider would, for an ingress at `origin`. */
export async function signed(
  registry: RegistryView,
  { source, body, callbackId, id = crypto.randomUUID(), headers = {} }: ToSign,
  origin = "http://localhost",
): Promise<Request> {
  const scheme = parseSources(SOURCE_SECRETS, registry.sources()).get(source)?.scheme;
  if (scheme?.ok !== true) throw new Error(`can't sign for ${source}`);
  const url = `${origin}/webhooks/${source}${callbackId ? `/${callbackId}` : ""}`;
  const request = await signWebhook(
    scheme.value,
    {
      method: "POST",
      url,
      headers: new Headers({ "Content-Type": "application/json", ...headers }),
      body: new Uint8Array(new TextEncoder().encode(JSON.stringify(body))),
    },
    { now: new Date(), id },
  );
  if (request === null) throw new Error(`can't sign for ${source}`);
  return new Request(request.url, { method: "POST", headers: request.headers, body: request.body });
}
