import { Cron } from "croner";
import type { Scope } from "./lifecycle.ts";
import { errorMessage } from "./processes.ts";

const TRIGGER_TIMEOUT_MS = 60_000;

/**
 * Fires the Worker's scheduled trigger when the expressions say, as Cloudflare would: `wrangler dev` doesn't by itself. An
 * expression isn't fired again while its last run still goes on.
 *
 * @param workerUrl where `wrangler dev` serves the Worker
 * @throws Error naming an expression that isn't one
 */
export function startCron(scope: Scope, workerUrl: string, expressions: readonly string[]): void {
  for (const expression of expressions) {
    // Cloudflare's expressions have five parts, are in UTC, and count the days of the week from 1 = Sunday:
    // https://developers.cloudflare.com/workers/configuration/cron-triggers/
    const options = { mode: "5-part", timezone: "UTC", alternativeWeekdays: true, protect: true } as const;
    const job = new Cron(expression, options, () => fire(scope, workerUrl, expression));
    scope.defer(() => job.stop());
  }
}

async function fire(scope: Scope, workerUrl: string, expression: string): Promise<void> {
  try {
    await fireScheduled(scope, workerUrl, expression);
  } catch (thrown) {
    if (!scope.signal.aborted) console.error(errorMessage(thrown));
  }
}

/**
 * Fires the scheduled trigger once and waits for its end.
 *
 * @throws Error that says what came of it, where it didn't succeed
 */
export async function fireScheduled({ signal }: Scope, workerUrl: string, expression: string): Promise<void> {
  const url = `${workerUrl}/cdn-cgi/local/scheduled?cron=${encodeURIComponent(expression)}`;
  const response = await fetch(url, {
    signal: AbortSignal.any([signal, AbortSignal.timeout(TRIGGER_TIMEOUT_MS)]),
  }).catch((thrown: unknown) => {
    throw new Error(`The scheduled trigger "${expression}" couldn't be fired: ${errorMessage(thrown)}`);
  });
  const outcome = (await response.text()).slice(0, 200);
  if (!response.ok)
    throw new Error(`The scheduled trigger "${expression}" failed (${outcome}): the Worker's log says why.`);
}
