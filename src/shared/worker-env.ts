import { type Bindings, type ConfigProblem, variable } from "./env.ts";
import { err, ok, type Result } from "./result.ts";

/** What a long-lived worker takes from its environment beside what the Worker does. */
export interface WorkerConfig {
  /** Of the health endpoint; 0: any that is free. */
  readonly port: number;
  readonly host: string;
  /** How long handlers may go on after the worker was told to stop, in seconds. */
  readonly graceSeconds: number;
  /** In place of the registry's concurrency, for each queue; `null`: as the registry has it. */
  readonly concurrency: number | null;
}

/** Parses the variables of a long-lived worker. Never throws, and quotes no value. */
export function parseWorkerEnv(env: Bindings): Result<WorkerConfig, ConfigProblem> {
  const port = wholeNumber(env, "AWA_WORKER_PORT", 8788, 0, 65_535);
  if (!port.ok) return port;
  const graceSeconds = wholeNumber(env, "AWA_WORKER_GRACE_SECONDS", 25, 0, 86_400);
  if (!graceSeconds.ok) return graceSeconds;
  const concurrency = wholeNumber(env, "AWA_WORKER_CONCURRENCY", null, 1, 1000);
  if (!concurrency.ok) return concurrency;
  const host = variable(env, "AWA_WORKER_HOST");
  if (!host.ok) return host;
  return ok({
    port: port.value,
    // Whoever wants it reached from elsewhere says so.
    host: host.value ?? "127.0.0.1",
    graceSeconds: graceSeconds.value,
    concurrency: concurrency.value,
  });
}

function wholeNumber<D extends number | null>(
  env: Bindings,
  name: string,
  fallback: D,
  min: number,
  max: number,
): Result<number | D, ConfigProblem> {
  const given = variable(env, name);
  if (!given.ok) return given;
  if (given.value === undefined) return ok(fallback);
  const number = /^[0-9]{1,6}$/.test(given.value) ? Number(given.value) : Number.NaN;
  return number >= min && number <= max
    ? ok(number)
    : err(`${name} is not a whole number from ${min} to ${max}: correct it`);
}
