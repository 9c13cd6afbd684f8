import type { IngressDeps } from "../../src/ingress/context.ts";
import { type Bindings, parseEnv } from "../../src/shared/env.ts";
import { parseRateLimits, parseSources } from "../../src/shared/source-env.ts";

/** What an ingress is made of, from its bindings; nothing is fetched, and the log is dropped, unless a test says otherwise. */
export function ingressDeps(
  env: Bindings,
  given: Pick<IngressDeps, "registry" | "database"> & Partial<IngressDeps>,
): IngressDeps {
  return {
    config: parseEnv(env),
    sources: parseSources(env, given.registry.sources()),
    rateLimits: parseRateLimits(env),
    log: () => undefined,
    clock: () => 0,
    now: () => Date.now(),
    fetch: () => Promise.reject(new Error("nothing is fetched here")),
    ...given,
  };
}
