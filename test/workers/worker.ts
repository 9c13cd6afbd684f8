import { createExecutionContext, createScheduledController, waitOnExecutionContext } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { expect } from "vitest";
import { createClient, neonDatabase } from "../../src/client.ts";
import worker from "../../src/index.ts";
import { registry } from "../../src/registry.ts";
import { TEST_CALLBACK_SECRET } from "../support/secrets.ts";

declare global {
  namespace Cloudflare {
    interface GlobalProps {
      mainModule: typeof import("../../src/index.ts");
    }
  }
}

/** Where the Worker is, as far as the outside knows. */
export const ORIGIN = "https://edge.example";

export const bindings: Readonly<Record<string, unknown>> = { ...env };

function textOf(name: string): string {
  const value = bindings[name];
  return typeof value === "string" ? value : expect.fail(`${name} isn't bound`);
}

/** One database for the whole project: its test files run side by side in it. */
function databaseAs(login: "DATABASE_URL" | "TEST_OWNER_URL") {
  return neonDatabase({
    connectionString: textOf(login),
    fetchEndpoint: textOf("NEON_FETCH_ENDPOINT"),
    timeoutMs: 30_000,
  });
}

export function client() {
  return createClient({
    database: databaseAs("DATABASE_URL"),
    registry,
    callbacks: { baseUrl: ORIGIN, secrets: [TEST_CALLBACK_SECRET] },
  });
}

export function query(text: string, values: readonly (string | number)[] = []) {
  return databaseAs("TEST_OWNER_URL").query({ text, values, decode: (rows) => rows });
}

/** For `expect.poll` of what a tick does. */
export const PATIENCE = { timeout: 10_000 } as const;

/** One tick. Another file's may go on beside it, and have taken what this one would have: poll for what it does. */
export async function runScheduled(): Promise<void> {
  const context = createExecutionContext();
  await worker.scheduled(createScheduledController({ cron: "* * * * *" }), bindings, context);
  await waitOnExecutionContext(context);
}
