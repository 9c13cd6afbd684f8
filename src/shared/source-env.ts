import { type Bindings, type ConfigProblem, notSet, variable } from "./env.ts";
import type { RegisteredSource } from "./registry/source.ts";
import { err, ok, type Result } from "./result.ts";
import type { ReadyScheme } from "./webhooks/scheme.ts";

/** Between secrets stands a comma. Some providers hand theirs out as `v1,whsec_…`, whose comma is part of it. */
const SECRETS = /(?<!(?:^|,)v1a?),/;

/** A source with its secrets, or with what is wrong with them: one that is misconfigured doesn't stop the others. */
export interface ConfiguredSource {
  readonly source: RegisteredSource;
  readonly scheme: Result<ReadyScheme, ConfigProblem>;
}

/** Configures the sources of a registry, by name. Never throws, and quotes no value. */
export function parseSources(
  env: Bindings,
  sources: readonly RegisteredSource[],
): ReadonlyMap<string, ConfiguredSource> {
  return new Map(sources.map((source) => [source.name, { source, scheme: parseScheme(env, source) }]));
}

function parseScheme(
  env: Bindings,
  { scheme, secret }: RegisteredSource,
): Result<ReadyScheme, ConfigProblem> {
  const secrets: string[] = [];
  if (secret !== null) {
    const given = needed(env, secret);
    if (!given.ok) return given;
    secrets.push(...given.value.split(SECRETS));
  }
  const variables: Record<string, string> = {};
  for (const name of scheme.variables) {
    const given = needed(env, name);
    if (!given.ok) return given;
    variables[name] = given.value;
  }
  const ready = scheme.ready(secrets, variables);
  return ready.ok
    ? ready
    : err(`${[secret, ...scheme.variables].filter(Boolean).join(", ")}: ${ready.error}`);
}

function needed(env: Bindings, name: string): Result<string, ConfigProblem> {
  const given = variable(env, name);
  if (!given.ok) return given;
  return given.value === undefined ? err(notSet(name)) : ok(given.value);
}

/** The platform's rate limiter: a binding of wrangler.toml. */
export interface RateLimiter {
  limit(options: { readonly key: string }): Promise<{ readonly success: boolean }>;
}

/** The rate limits of webhooks; `null`: off. */
export interface RateLimits {
  /** For each source. */
  readonly source: RateLimiter | null;
  /** For each address that sends. */
  readonly address: RateLimiter | null;
}

/** Takes the rate-limiting bindings AWA_WEBHOOK_SOURCE_LIMITER and AWA_WEBHOOK_ADDRESS_LIMITER, where they are there. Never throws. */
export function parseRateLimits(env: Bindings): Result<RateLimits, ConfigProblem> {
  const source = limiter(env, "AWA_WEBHOOK_SOURCE_LIMITER");
  if (!source.ok) return source;
  const address = limiter(env, "AWA_WEBHOOK_ADDRESS_LIMITER");
  if (!address.ok) return address;
  return ok({ source: source.value, address: address.value });
}

function limiter(env: Bindings, name: string): Result<RateLimiter | null, ConfigProblem> {
  const binding = env[name];
  if (binding === undefined || binding === null) return ok(null);
  return isLimiter(binding)
    ? ok(binding)
    : err(`${name} is not a rate-limiting binding: bind it as one in wrangler.toml, or remove it`);
}

function isLimiter(binding: unknown): binding is RateLimiter {
  return (
    typeof binding === "object" &&
    binding !== null &&
    "limit" in binding &&
    typeof binding.limit === "function"
  );
}
