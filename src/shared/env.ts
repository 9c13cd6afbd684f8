import { DEFAULT_RETENTION, type Retention } from "./db/statements/delete-ended.ts";
import { err, ok, type Result } from "./result.ts";
import type { SecretHex } from "./signature.ts";

/** The bindings that the Worker reads; this file is the only one that does. */
export type Bindings = Readonly<Record<string, unknown>>;

/** How the database is reached. */
export interface DatabaseConfig {
  readonly connectionString: string;
  /** The URL of Neon's HTTP protocol where it isn't Neon's own: local development. */
  readonly fetchEndpoint: string | undefined;
}

/** How callbacks are received. */
export interface CallbackConfig {
  /** The live secrets: the first signs, all verify. Empty: unsigned mode, switched on by name. */
  readonly secrets: readonly SecretHex[];
  /** Starts with a slash and doesn't end with one. */
  readonly pathPrefix: string;
  /** Where callbacks arrive, for the URLs that handlers give away, without a slash at the end; `null`: they come without. */
  readonly baseUrl: string | null;
}

/** Everything, parsed once. The parts fail on their own: a bad callback secret must not stop the rescues. */
export interface Config {
  readonly database: Result<DatabaseConfig, ConfigProblem>;
  readonly callbacks: Result<CallbackConfig, ConfigProblem>;
  readonly retention: Result<Retention, ConfigProblem>;
}

/** What is wrong and what to do: names the variable, never its content. */
export type ConfigProblem = string;

export const DEFAULT_CALLBACK_PATH_PREFIX = "/api/callbacks";
const SECRET = /^[0-9a-f]{64}$/i;
const MAX_RETENTION_SECONDS = 3_153_600_000;

/** Parses the bindings. Never throws, reads nothing else, and quotes no value. */
export function parseEnv(env: Bindings): Config {
  return { database: parseDatabase(env), callbacks: parseCallbacks(env), retention: parseRetention(env) };
}

function parseDatabase(env: Bindings): Result<DatabaseConfig, ConfigProblem> {
  const connectionString = variable(env, "DATABASE_URL");
  if (!connectionString.ok) return connectionString;
  if (connectionString.value === undefined) {
    return err(notSet("DATABASE_URL"));
  }
  const url = URL.parse(connectionString.value);
  const whole =
    url !== null && /^postgres(ql)?:$/.test(url.protocol) && url.hostname !== "" && url.username !== "";
  if (!whole || url.pathname.length < 2) {
    return err("DATABASE_URL is not a postgres://user:password@host/database URL: correct it");
  }
  const fetchEndpoint = variable(env, "NEON_FETCH_ENDPOINT");
  if (!fetchEndpoint.ok) return fetchEndpoint;
  const endpoint = fetchEndpoint.value === undefined ? undefined : URL.parse(fetchEndpoint.value);
  if (endpoint === null || (endpoint !== undefined && !/^https?:$/.test(endpoint.protocol))) {
    return err("NEON_FETCH_ENDPOINT is not an http(s) URL: correct it, or remove it outside development");
  }
  return ok({ connectionString: connectionString.value, fetchEndpoint: fetchEndpoint.value });
}

function parseCallbacks(env: Bindings): Result<CallbackConfig, ConfigProblem> {
  const givenPrefix = variable(env, "AWA_CALLBACK_PATH_PREFIX");
  if (!givenPrefix.ok) return givenPrefix;
  const pathPrefix = parsePathPrefix(givenPrefix.value ?? DEFAULT_CALLBACK_PATH_PREFIX);
  if (!pathPrefix.ok) return err(`AWA_CALLBACK_PATH_PREFIX ${pathPrefix.error}`);
  const baseUrl = parseBaseUrl(env);
  if (!baseUrl.ok) return baseUrl;
  const addressed = { pathPrefix: pathPrefix.value, baseUrl: baseUrl.value };
  const allowUnsigned = variable(env, "AWA_CALLBACK_ALLOW_UNSIGNED");
  if (!allowUnsigned.ok) return allowUnsigned;
  const isUnsigned = allowUnsigned.value ?? "false";
  if (!/^(true|false)$/.test(isUnsigned)) {
    return err("AWA_CALLBACK_ALLOW_UNSIGNED is neither true nor false: correct it");
  }
  const secret = variable(env, "AWA_CALLBACK_HMAC_SECRET");
  if (!secret.ok) return secret;
  if (isUnsigned === "true") {
    return secret.value === undefined
      ? ok({ secrets: [], ...addressed })
      : err(
          "AWA_CALLBACK_HMAC_SECRET and AWA_CALLBACK_ALLOW_UNSIGNED=true contradict each other: remove one of them",
        );
  }
  if (secret.value === undefined) {
    return err(`${notSet("AWA_CALLBACK_HMAC_SECRET")}, 64 hexadecimal digits (\`openssl rand -hex 32\`)`);
  }
  const secrets = parseSecrets(secret.value.split(","));
  if (!secrets.ok) return err(`AWA_CALLBACK_HMAC_SECRET ${secrets.error}`);
  return ok({ secrets: secrets.value, ...addressed });
}

function parseBaseUrl(env: Bindings): Result<string | null, ConfigProblem> {
  const given = variable(env, "AWA_CALLBACK_BASE_URL");
  if (!given.ok) return given;
  if (given.value === undefined) return ok(null);
  const url = URL.parse(given.value);
  const whole =
    url !== null && /^https?:$/.test(url.protocol) && url.username === "" && url.search + url.hash === "";
  return whole
    ? ok(given.value.replace(/\/+$/, ""))
    : err(
        "AWA_CALLBACK_BASE_URL is not an http(s) URL such as https://awa-edge.example.workers.dev: correct it",
      );
}

/** Checks callback secrets: each 64 hexadecimal digits. */
export function parseSecrets(secrets: readonly string[]): Result<readonly SecretHex[], ConfigProblem> {
  if (secrets.some((secret) => /\s/.test(secret))) return err("contains white space: paste it again without");
  return secrets.every((secret) => SECRET.test(secret))
    ? ok(secrets.map((secret) => secret.toLowerCase()))
    : err("is not 64 hexadecimal digits (several secrets are separated by commas): correct it");
}

/** Normalises a path prefix: one slash in front, none behind. */
export function parsePathPrefix(prefix: string): Result<string, ConfigProblem> {
  const path = `/${prefix.replace(/^\/+|\/+$/g, "")}`;
  return /^(\/[A-Za-z0-9._~-]+)+$/.test(path)
    ? ok(path)
    : err("is not a path such as /api/callbacks: use letters, digits and . _ ~ - between slashes");
}

const PERIODS = [
  ["completedSeconds", "AWA_COMPLETED_RETENTION_SECONDS"],
  ["failedSeconds", "AWA_FAILED_RETENTION_SECONDS"],
  ["deadLetterSeconds", "AWA_DEAD_LETTER_RETENTION_SECONDS"],
  ["deliverySeconds", "AWA_DELIVERY_RETENTION_SECONDS"],
  ["parkedDeliverySeconds", "AWA_PARKED_DELIVERY_RETENTION_SECONDS"],
] as const satisfies readonly (readonly [keyof Retention, string])[];

function parseRetention(env: Bindings): Result<Retention, ConfigProblem> {
  const retention = { ...DEFAULT_RETENTION };
  for (const [period, name] of PERIODS) {
    const given = variable(env, name);
    if (!given.ok) return given;
    if (given.value === undefined) continue;
    const seconds = /^[0-9]{1,10}$/.test(given.value) ? Number(given.value) : Number.NaN;
    if (!(seconds <= MAX_RETENTION_SECONDS)) {
      return err(`${name} is not a whole number of seconds up to ${MAX_RETENTION_SECONDS}: correct it`);
    }
    retention[period] = seconds;
  }
  return ok(retention);
}

export function notSet(name: string): ConfigProblem {
  return `${name} is not set: set it with \`wrangler secret put ${name}\``;
}

/** A text variable; empty counts as not set, and white space around it as a slip of the clipboard. */
export function variable(env: Bindings, name: string): Result<string | undefined, ConfigProblem> {
  const value = env[name];
  if (value === undefined || value === "") return ok(undefined);
  if (typeof value !== "string") return err(`${name} is not a text variable: set it as one`);
  if (value.trim() !== value) return err(`${name} begins or ends with white space: paste it again without`);
  return ok(value);
}
