// npm run demo: the whole story, unattended, on real parts: Postgres, the development server, the Worker in workerd, HTTP.
// Exit code 0 only if every step was seen. Uses a database of its own and leaves nothing behind.

import { deepEqual } from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { createClient, type Parked, pgDatabase } from "../src/client.ts";
import { registry } from "../src/registry.ts";
import type { JobRow } from "../src/shared/job.ts";
import { fireScheduled } from "./lib/cron.ts";
import { runToEnd, type Scope } from "./lib/lifecycle.ts";
import { migrate } from "./lib/migrate.ts";
import { startNeonServer } from "./lib/neon-server.ts";
import { startTemporaryPostgres } from "./lib/temporary-postgres.ts";
import { startWrangler } from "./lib/wrangler.ts";

const SECRET = randomBytes(32).toString("hex");
const ORDER = { orderId: "order-1", amountCents: 4200, email: "ada@example.com" };
const PAYLOAD = { chargeId: "ch_1" };

let startedAt = performance.now();
let steps = 0;

/** One line of the timeline. */
function tell(text: string, ...details: string[]): void {
  const seconds = ((performance.now() - startedAt) / 1000).toFixed(2).padStart(6);
  console.log(`${seconds} s  ${text}${details.map((detail) => `\n            ${detail}`).join("")}`);
}

/** A step of the story: says what was seen, or ends the demo with what was expected instead. */
function see(step: string, seen: unknown, expected: unknown, ...details: string[]): void {
  try {
    deepEqual(seen, expected);
  } catch {
    throw new Error(
      `The demo expected something else at "${step}".\n  expected  ${JSON.stringify(expected)}\n  seen      ${JSON.stringify(seen)}`,
    );
  }
  steps++;
  tell(`✓ ${step}`, ...details);
}

await runToEnd(async (scope) => {
  const { databaseUrl, workerUrl } = await startEverything(scope);
  const pool = new pg.Pool({ connectionString: databaseUrl });
  scope.defer(() => pool.end());
  const client = createClient({
    database: pgDatabase(pool),
    registry,
    callbacks: { baseUrl: workerUrl, secrets: [SECRET] },
  });
  const jobOf = async (parked: Parked) => {
    const job = await client.getJob(parked.jobId);
    if (job === null) throw new Error(`job ${parked.jobId} is gone`);
    return job;
  };
  /** The follow-ups of an outcome, which parking has one of as well. */
  const followUpsOf = async (parked: Parked, outcome: string) =>
    (await client.getFollowUps(parked.jobId)).filter((job) => job.trigger?.outcome === outcome);

  startedAt = performance.now();
  console.log("\nA payment: parked, forged, completed, repeated\n");

  const payment = await client.park("charge_card", ORDER, { timeoutSeconds: 3600 });
  see(
    "a job is parked and waits for its callback",
    (await jobOf(payment)).state,
    "waiting_external",
    show(await jobOf(payment)),
  );

  const forged = await call(payment, "0".repeat(64), { payload: PAYLOAD });
  see("a forged callback is refused", [forged.status, forged.body.code], [401, "unauthorized"], forged.text);
  see("… and changed nothing", (await jobOf(payment)).state, "waiting_external");

  const completed = await call(payment, payment.signature, { payload: PAYLOAD });
  see(
    "the signed callback completes the job over HTTP",
    [completed.status, completed.body],
    [200, { id: payment.jobId, state: "Completed" }],
    completed.text,
  );
  const done = await jobOf(payment);
  see("the job carries the payload", [done.state, done.result], ["completed", PAYLOAD], show(done));
  const followUps = await followUpsOf(payment, "completed");
  see(
    "its follow-ups are in the queue, linked to what triggered them",
    followUps.map(({ kind, state, trigger }) => [kind, state, trigger?.jobId, trigger?.runLease]),
    [
      ["send_receipt", "available", payment.jobId, "1"],
      ["ship_order", "available", payment.jobId, "1"],
    ],
    ...followUps.map(show),
  );

  const repeated = await call(payment, payment.signature, { payload: PAYLOAD });
  see(
    "the same callback again gets the same answer, as a duplicate",
    [repeated.status, repeated.body],
    [200, { id: payment.jobId, state: "Completed", duplicate: true }],
    repeated.text,
  );
  see("… and enqueued nothing more", (await followUpsOf(payment, "completed")).length, 2);

  console.log("\nAnother one, that nobody calls back for: expired, rescued\n");

  const silent = await client.park("charge_card", { ...ORDER, orderId: "order-2" }, { timeoutSeconds: 1 });
  see(
    "a job is parked for one second",
    (await jobOf(silent)).state,
    "waiting_external",
    show(await jobOf(silent)),
  );
  await sleep(1_200);
  await fireScheduled(scope, workerUrl, "* * * * *");
  const rescued = await jobOf(silent);
  see(
    "the scheduled trigger rescues it: due again after a pause",
    [rescued.state, rescued.errors.map(({ error }) => error)],
    ["retryable", ["callback timed out"]],
    show(rescued),
  );
  const rescueFollowUps = await followUpsOf(silent, "rescued");
  see(
    "the rescue's follow-up was dispatched, in a transaction of its own",
    rescueFollowUps.map(({ kind, trigger }) => [kind, trigger?.jobId]),
    [["tell_support", silent.jobId]],
    ...rescueFollowUps.map(show),
  );
  const late = await call(silent, silent.signature, { payload: PAYLOAD });
  see(
    "a callback that comes too late is told so",
    [late.status, late.body.code],
    [410, "callback_expired"],
    late.text,
  );

  console.log(`\nAll ${steps} steps were seen.`);
});

async function startEverything(scope: Scope): Promise<{ databaseUrl: string; workerUrl: string }> {
  tell("starting Postgres, the development server and the Worker …");
  const postgres = await startTemporaryPostgres();
  scope.defer(() => postgres.stop());
  const databaseUrl = postgres.url();
  await migrate({ databaseUrl });
  const neon = await startNeonServer({ upstream: databaseUrl });
  scope.defer(() => neon.close());
  const workerUrl = await startWrangler(scope, {
    name: "wrangler-demo",
    prints: false,
    vars: {
      DATABASE_URL: databaseUrl,
      NEON_FETCH_ENDPOINT: neon.endpoint,
      AWA_CALLBACK_HMAC_SECRET: SECRET,
      AWA_CALLBACK_ALLOW_UNSIGNED: "false",
      AWA_CALLBACK_PATH_PREFIX: "",
    },
  });
  tell(`the Worker answers at ${workerUrl}`);
  return { databaseUrl, workerUrl };
}

interface Answer {
  readonly status: number;
  readonly body: { readonly state?: string; readonly code?: string };
  readonly text: string;
}

async function call({ callbackUrl }: Parked, signature: string | null, body: unknown): Promise<Answer> {
  if (callbackUrl === null || signature === null)
    throw new Error("the parked job came without a callback URL");
  const response = await fetch(callbackUrl, {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Awa-Signature": signature },
    body: JSON.stringify(body),
  });
  const text = await response.text();
  return { status: response.status, body: JSON.parse(text), text: `HTTP ${response.status} ${text}` };
}

/** A job in one line. */
function show(job: JobRow): string {
  const link = job.trigger === null ? "" : `  ← ${job.trigger.outcome} of job ${job.trigger.jobId}`;
  return `job ${job.id}  ${job.kind}  ${job.state}  attempt ${job.attempt}/${job.maxAttempts}  queue ${job.queue}${link}`;
}
