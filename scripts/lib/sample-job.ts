import pg from "pg";
import { createClient } from "../../src/client.ts";
import { registry } from "../../src/registry.ts";
import { pgDatabase } from "../../src/shared/db/pg.ts";
import { parseEnv } from "../../src/shared/env.ts";
import type { LocalStack } from "./local-stack.ts";

/** Goes with the example in src/registry.ts: change it when you put your own job kinds there. */
const PARKED_FOR_SECONDS = 3600;
const PAYLOAD = { chargeId: "ch_1" };

/**
 * Parks a job of the example registry.
 *
 * @param workerUrl where callbacks arrive
 * @returns a shell command that completes it
 */
export async function parkSampleJob(
  { devVars }: LocalStack,
  workerUrl: string,
): Promise<{ jobId: string; completeCommand: string }> {
  const { callbacks, database } = parseEnv(Object.fromEntries(devVars));
  if (!callbacks.ok) throw new Error(callbacks.error);
  if (!database.ok) throw new Error(database.error);
  const pool = new pg.Pool({
    connectionString: database.value.connectionString,
    connectionTimeoutMillis: 10_000,
  });
  try {
    const client = createClient({
      database: pgDatabase(pool),
      registry,
      callbacks: { ...callbacks.value, baseUrl: workerUrl },
    });
    const parked = await client.park(
      "charge_card",
      { orderId: "order-1", amountCents: 4200, email: "ada@example.com" },
      { timeoutSeconds: PARKED_FOR_SECONDS },
    );
    const completeCommand = [
      `curl -X POST ${parked.callbackUrl}`,
      "-H 'content-type: application/json'",
      ...(parked.signature === null ? [] : [`-H 'X-Awa-Signature: ${parked.signature}'`]),
      `-d '${JSON.stringify({ payload: PAYLOAD })}'`,
    ].join(" ");
    return { jobId: parked.jobId, completeCommand };
  } finally {
    await pool.end();
  }
}
