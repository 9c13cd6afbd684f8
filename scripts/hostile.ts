// npm run hostile: what no Request object can express, sent to the Worker in workerd over raw connections: bad request lines, floods of
// headers, lengths that are lies, bodies that break off. After each it has to answer the next good request; in the end the callback that all
// of it was aimed at still waits, and the runtime holds no more memory. Uses a database of its own and leaves nothing behind.

import { randomBytes } from "node:crypto";
import net from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { createClient, pgDatabase } from "../src/client.ts";
import { registry } from "../src/registry.ts";
import { call } from "./demo/stage.ts";
import { CANARY, type RawRequest, rawRequests } from "./hostile/raw-requests.ts";
import { runToEnd } from "./lib/lifecycle.ts";
import { startOwnDatabase } from "./lib/own-database.ts";
import { memoryKib, startWorkerd } from "./lib/workerd.ts";

const ROUNDS = 16;
/** By then the runtime's heap is as large as it may get. */
const WARM_UP_ROUNDS = 10;
const MAX_GROWTH_KIB = 16_384;
const PAUSE_MS = 5;
/** How long an answer is waited for, and how long its rest. */
const ANSWER_MS = 1_000;
const REST_MS = 20;

await runToEnd(async (scope) => {
  const secret = randomBytes(32).toString("hex");
  const { workerUrl: databaseUrl, neon } = await startOwnDatabase(scope);
  const { url: workerUrl, pid } = await startWorkerd(scope, {
    vars: {
      DATABASE_URL: databaseUrl,
      NEON_FETCH_ENDPOINT: neon.endpoint,
      AWA_CALLBACK_HMAC_SECRET: secret,
      STRIPE_WEBHOOK_SECRET: "whsec_hostile",
    },
    maxHeapMib: 32,
  });
  const pool = new pg.Pool({ connectionString: databaseUrl });
  scope.defer(() => pool.end());
  const client = createClient({
    database: pgDatabase(pool),
    registry,
    callbacks: { baseUrl: workerUrl, secrets: [secret] },
  });
  const { jobId, callbackUrl, signature } = await client.park(
    "charge_card",
    { orderId: "order-1", amountCents: 1, email: "a@b.example" },
    { timeoutSeconds: 3600 },
  );
  if (callbackUrl === null || signature === null)
    throw new Error("the parked job came without a callback URL");
  const requests = rawRequests({ path: new URL(callbackUrl).pathname, signature });
  const before = JSON.stringify(await client.getJob(jobId));
  const counts: Record<string, number> = {};
  const wrong = new Set<string>();
  let early = 0;
  for (let round = 0; round < ROUNDS; round++) {
    if (round === WARM_UP_ROUNDS) early = memoryKib(pid);
    for (const request of requests) {
      const answer = await exchange(workerUrl, request);
      const status = Number(/^HTTP\/1\.1 (\d{3})/.exec(answer)?.[1] ?? 0);
      const said = status === 0 ? "no answer" : String(status);
      counts[said] = (counts[said] ?? 0) + 1;
      if (status !== 0 && !request.statuses.includes(status))
        wrong.add(`${request.about}: ${answer.slice(0, 300)}`);
      if (answer.includes(CANARY) || answer.includes(signature) || /\bat .+:\d+|awa_edge|SELECT/.test(answer))
        wrong.add(`${request.about} shows what it mustn't: ${answer.slice(0, 2_000)}`);
      const good = await fetch(`${workerUrl}/healthz`, { signal: scope.signal });
      if (good.status !== 200)
        wrong.add(`${request.about}: the next good request is answered ${good.status}`);
      await good.body?.cancel();
    }
  }
  const grownKib = memoryKib(pid) - early;
  console.log(`${requests.length * ROUNDS} hostile connections; answers: ${JSON.stringify(counts)}`);
  console.log(
    `workerd holds ${early} KiB after ${WARM_UP_ROUNDS} rounds, and ${grownKib} KiB more after ${ROUNDS}`,
  );
  if (grownKib > MAX_GROWTH_KIB) wrong.add("workerd's memory grew");
  if (JSON.stringify(await client.getJob(jobId)) !== before) wrong.add("the job was changed");
  const { status, body } = await call(callbackUrl, signature, { payload: { chargeId: "ch_1" } });
  if (status !== 200 || body.state !== "Completed")
    wrong.add(`in the end the callback is answered ${status}`);
  if (wrong.size > 0) throw new Error([...wrong].join("\n"));
});

/** Opens a connection, sends, and returns what came back, as far as it came soon. */
async function exchange(workerUrl: string, { pieces, end }: RawRequest): Promise<string> {
  const { hostname, port } = new URL(workerUrl);
  const socket = net.connect({ host: hostname, port: Number(port), allowHalfOpen: true });
  let received = "";
  socket.setEncoding("latin1");
  const closed = new Promise<void>((resolve) => {
    socket.on("end", resolve).on("close", () => resolve());
    // A connection that is refused further bytes is as good as an answer.
    socket.on("error", () => resolve());
  });
  const answered = new Promise<void>((resolve) => {
    socket.on("data", (text) => {
      received += String(text);
      resolve();
    });
  });
  for (const piece of pieces) {
    if (!socket.destroyed && socket.writable) socket.write(piece);
    await sleep(PAUSE_MS);
  }
  if (end === "half-close") socket.end();
  if (end !== "tear") {
    await Promise.race([
      closed,
      answered.then(() => sleep(REST_MS)),
      sleep(ANSWER_MS, undefined, { ref: false }),
    ]);
  }
  socket.destroy();
  return received;
}
