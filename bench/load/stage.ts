import { randomBytes, randomUUID } from "node:crypto";
import pg from "pg";
import { fireScheduled } from "../../scripts/lib/cron.ts";
import type { Scope } from "../../scripts/lib/lifecycle.ts";
import { startOwnDatabase } from "../../scripts/lib/own-database.ts";
import { randomSecrets } from "../../scripts/lib/source-secrets.ts";
import { memoryKib, startWorkerd } from "../../scripts/lib/workerd.ts";
import { registry } from "../../src/registry.ts";
import { signCallbackId } from "../../src/shared/signature.ts";
import { parseSources } from "../../src/shared/source-env.ts";
import { signWebhook } from "../../src/shared/webhooks/sign.ts";
import { Faults } from "./faults.ts";

export interface LoadOptions {
  readonly rate: number;
  readonly seconds: number;
  /** Shares, 0 to 1. */
  readonly webhooks: number;
  readonly duplicates: number;
  readonly faults: number;
  /** Seconds between two ticks. */
  readonly tick: number;
  readonly atOnce: number;
}

/** One request, ready to be sent. */
export interface Prepared {
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Uint8Array;
}

export type LoadStage = Awaited<ReturnType<typeof setUp>>;

const DATABASE = "postgres";
const PARKED_AT_ONCE = 10_000;
/** What the platform lets an isolate have. */
const MAX_HEAP_MIB = 128;

/** Starts Postgres, the development server and the Worker, and parks a job for everything that will be sent. */
export async function setUp(scope: Scope, options: LoadOptions) {
  const { ownerUrl, workerUrl: databaseUrl, neon } = await startOwnDatabase(scope);
  const owner = new pg.Pool({ connectionString: ownerUrl, max: 4 });
  owner.on("error", () => undefined);
  scope.defer(() => owner.end());
  const secret = randomBytes(32).toString("hex");
  const sourceSecrets = Object.fromEntries(randomSecrets(registry.sources()));
  const worker = await startWorkerd(scope, {
    vars: {
      DATABASE_URL: databaseUrl,
      NEON_FETCH_ENDPOINT: neon.endpoint,
      AWA_CALLBACK_HMAC_SECRET: secret,
      ...sourceSecrets,
    },
    maxHeapMib: MAX_HEAP_MIB,
  });
  const stripe = parseSources(sourceSecrets, registry.sources()).get("stripe")?.scheme;
  if (stripe?.ok !== true) throw new Error("the registry has no source stripe that can be signed for");
  const scheme = stripe.value;

  const jobs = Math.round(options.rate * options.seconds);
  const callbackIds = Array.from({ length: jobs }, () => randomUUID());
  const isWebhook = callbackIds.map(() => Math.random() < options.webhooks);
  for (let n = 0; n < jobs; n += PARKED_AT_ONCE) {
    await park(owner, n, callbackIds.slice(n, n + PARKED_AT_ONCE));
  }
  // As autovacuum would have left them, and counted: what comes after is the load's.
  await owner.query("VACUUM ANALYZE awa_edge.jobs, awa_edge.callbacks");
  await owner.query("SELECT pg_stat_force_next_flush()");

  const faults = new Faults(options.faults);
  neon.resetStatements(DATABASE);
  neon.fault(DATABASE, (request) => faults.of(request));
  return {
    scope,
    options,
    owner,
    faults,
    jobs,
    callbackIds,
    webhooks: isWebhook.filter(Boolean).length,
    workerUrl: worker.url,
    memoryMib: () => Math.round(memoryKib(worker.pid) / 1024),
    tick: () => fireScheduled(scope, worker.triggerUrl, "* * * * *"),
    counted: () => ({ statements: neon.statements(DATABASE), requests: neon.requests(DATABASE) }),

    /** The n-th request; the same each time but for the time in a webhook's signature. */
    async prepare(n: number): Promise<Prepared> {
      const callbackId = callbackIds[n] ?? "";
      if (isWebhook[n] !== true) {
        return {
          path: `/api/callbacks/${callbackId}/complete`,
          headers: {
            "Content-Type": "application/json",
            "X-Awa-Signature": signCallbackId(secret, callbackId),
          },
          body: utf8({ payload: { chargeId: `ch_${n}` } }),
        };
      }
      const id = `evt_${n}`;
      const path = "/webhooks/stripe";
      const event = {
        id,
        type: "payment_intent.succeeded",
        data: { object: { id: `ch_${n}`, metadata: { callback_id: callbackId } } },
      };
      const signed = await signWebhook(
        scheme,
        {
          method: "POST",
          url: `${worker.url}${path}`,
          headers: new Headers({ "Content-Type": "application/json" }),
          body: utf8(event),
        },
        { now: new Date(), id },
      );
      if (signed === null) throw new Error("a webhook of the source stripe can't be signed here");
      return { path, headers: Object.fromEntries(signed.headers), body: signed.body };
    },
  };
}

function utf8(json: unknown): Uint8Array<ArrayBuffer> {
  return new TextEncoder().encode(JSON.stringify(json));
}

/** Parks many jobs in one statement, as `client.park` would each. */
async function park(owner: pg.Pool, first: number, callbackIds: readonly string[]): Promise<void> {
  await owner.query(
    `WITH parked AS (
       INSERT INTO awa_edge.jobs (kind, args, state, attempt, run_lease, attempted_at, callback_id)
       SELECT 'charge_card',
         jsonb_build_object('orderId', 'order-' || ($1 + n - 1), 'email', 'ada@example.com', 'amountCents', 4200),
         'waiting_external', 1, 1, now(), id
       FROM unnest($2::uuid[]) WITH ORDINALITY AS c(id, n)
       RETURNING id, callback_id)
     INSERT INTO awa_edge.callbacks (id, job_id, run_lease, timeout_at)
     SELECT callback_id, id, 1, now() + interval '1 day' FROM parked`,
    [first, callbackIds],
  );
}
