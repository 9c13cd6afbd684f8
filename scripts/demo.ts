// npm run demo: the whole story, unattended, on real parts: Postgres, the development server, the Worker in workerd, HTTP.
// Exit code 0 only if every step was seen. Uses a database of its own and leaves nothing behind.

import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { release } from "./demo/release.ts";
import { call, type Stage, setUp } from "./demo/stage.ts";
import { show, Timeline } from "./demo/timeline.ts";
import { runToEnd } from "./lib/lifecycle.ts";

const SECRET = randomBytes(32).toString("hex");
const ORDER = { orderId: "order-1", amountCents: 4200, email: "ada@example.com" };
const PAYLOAD = { chargeId: "ch_1" };
/** From the callback's answer to the first line of its follow-up's handler. */
const MAX_PICKUP_MS = 50;
const PICKUPS = 21;

const story = new Timeline();

await runToEnd(async (scope) => {
  story.tell("starting Postgres, the development server and the Worker …");
  const stage = await setUp(scope, SECRET);
  story.tell(`the Worker answers at ${stage.workerUrl}`);
  story.restart();
  const shipping = await payment(stage);
  await shipment(stage, shipping);
  await release(story, stage);
  await silence(stage);
  await pickup(stage);
  console.log(`\nAll ${story.steps} steps were seen.`);
});

/** @returns the id of the shipping job that follows the payment */
async function payment({ client, jobOf, followUpsOf }: Stage): Promise<string> {
  story.chapter("A payment: parked, forged, completed, repeated");
  const parked = await client.park("charge_card", ORDER, { timeoutSeconds: 3600 });
  const { jobId, callbackUrl, signature } = parked;
  const waiting = await jobOf(jobId);
  story.see("a job is parked and waits for its callback", waiting.state, "waiting_external", show(waiting));

  const forged = await call(callbackUrl, "0".repeat(64), { payload: PAYLOAD });
  story.see(
    "a forged callback is refused",
    [forged.status, forged.body.code],
    [401, "unauthorized"],
    forged.text,
  );
  story.see("… and changed nothing", (await jobOf(jobId)).state, "waiting_external");

  const completed = await call(callbackUrl, signature, { payload: PAYLOAD });
  const expected = { id: jobId, state: "Completed" };
  story.see(
    "the signed callback completes the job over HTTP",
    [completed.status, completed.body],
    [200, expected],
    completed.text,
  );
  const done = await jobOf(jobId);
  story.see("the job carries the payload", [done.state, done.result], ["completed", PAYLOAD], show(done));
  const followUps = await followUpsOf(jobId, "completed");
  story.see(
    "its follow-ups were enqueued with it, linked to what triggered them",
    followUps.map(({ kind, trigger }) => [kind, trigger?.jobId, trigger?.runLease]),
    [
      ["send_receipt", jobId, "1"],
      ["ship_order", jobId, "1"],
    ],
    ...followUps.map(show),
  );
  const [receipt, shipping] = followUps;
  await story.seeSoon(
    "the receipt is sent: the Worker ran the follow-up right after its answer",
    () => jobOf(receipt?.id ?? ""),
    ({ state, attempt }) => [state, attempt],
    ["completed", 1],
    (job) => [show(job), JSON.stringify(job.result)],
  );

  const repeated = await call(callbackUrl, signature, { payload: PAYLOAD });
  story.see(
    "the same callback again gets the same answer, as a duplicate",
    [repeated.status, repeated.body],
    [200, { ...expected, duplicate: true }],
    repeated.text,
  );
  story.see("… and enqueued nothing more", (await followUpsOf(jobId, "completed")).length, 2);
  return shipping?.id ?? "";
}

async function shipment({ client, jobOf, onlyJob, waitOf, labels, tick }: Stage, id: string): Promise<void> {
  story.chapter("The parcel: two waits in a row, a label printer that fails, a dead letter, its replay");
  labels.answers({ status: 503, headers: { "Retry-After": "1" }, body: "out of paper" });
  const isWaiting = async () => ({ job: await jobOf(id), wait: await waitOf(id) });
  const packing = await story.seeSoon(
    "the handler waits to hear that it is packed; no process is held for it",
    isWaiting,
    ({ job, wait }) => [job.state, wait?.name],
    ["waiting_external", "packed"],
    ({ job }) => [show(job)],
  );
  const packed = await packing.wait?.resume({ boxes: 2 });
  story.see("“packed” resumes the handler", packed?.body.state, "Available", packed?.text ?? "");
  const collecting = await story.seeSoon(
    "it ran again, got the payload at once, and waits to be collected; no attempt was spent",
    isWaiting,
    ({ job, wait }) => [job.state, wait?.name, job.attempt],
    ["waiting_external", "collected", 1],
    ({ job }) => [show(job)],
  );

  const label = () => onlyJob("print_label");
  const firstError = await story.seeSoon(
    "the label's function answered 503: the job is tried again when Retry-After says",
    label,
    ({ state, errors }) => [state, errors.map(({ error }) => error)],
    ["retryable", ['function returned 503: "out of paper"']],
    (job) => [show(job)],
  );
  await sleep(1_100);
  labels.answers({ status: 422, body: "unknown paper size" });
  await tick();
  const dead = await label();
  story.see(
    "a 422 can't be helped by trying again: a dead letter",
    [dead.state, dead.attempt, dead.errors.at(-1)?.error],
    ["failed", firstError.attempt + 1, 'function returned 422: "unknown paper size"'],
    show(dead),
  );
  const { jobs } = await client.deadLetters.list({ kind: "print_label" });
  story.see(
    "it is listed, with its reason",
    jobs.map((job) => [job.id, job.deadLetter?.reason]),
    [[dead.id, "terminal_error"]],
  );
  labels.answers({ status: 200, body: { label: "L-1" } });
  story.see(
    "the printer is repaired, and the dead letter replayed",
    await client.deadLetters.retry({ kind: "print_label" }),
    { retried: 1, skipped: 0 },
  );
  await tick();
  const printed = await label();
  story.see(
    "the trigger ran it",
    [printed.state, printed.attempt, printed.result],
    ["completed", 1, { label: "L-1" }],
    show(printed),
  );

  await collecting.wait?.resume({ by: "courier" });
  await story.seeSoon(
    "“collected” lets the handler end, with what both waits brought",
    () => jobOf(id),
    ({ state, attempt, result }) => [state, attempt, result],
    ["completed", 1, { packed: { boxes: 2 }, collected: { by: "courier" } }],
    (job) => [show(job)],
  );
}

async function silence({ client, jobOf, followUpsOf, tick }: Stage): Promise<void> {
  story.chapter("Another payment, that nobody calls back for: expired, rescued");
  const { jobId, callbackUrl, signature } = await client.park(
    "charge_card",
    { ...ORDER, orderId: "order-2" },
    { timeoutSeconds: 1 },
  );
  const waiting = await jobOf(jobId);
  story.see("a job is parked for one second", waiting.state, "waiting_external", show(waiting));
  await sleep(1_200);
  await tick();
  const rescued = await jobOf(jobId);
  story.see(
    "the scheduled trigger rescues it: due again after a pause",
    [rescued.state, rescued.errors.map(({ error }) => error)],
    ["retryable", ["callback timed out"]],
    show(rescued),
  );
  const followUps = await followUpsOf(jobId, "rescued");
  story.see(
    "the rescue's follow-up was dispatched, in a transaction of its own, and run",
    followUps.map(({ kind, state, trigger }) => [kind, state, trigger?.jobId]),
    [["tell_support", "completed", jobId]],
    ...followUps.map(show),
  );
  const late = await call(callbackUrl, signature, { payload: PAYLOAD });
  story.see(
    "a callback that comes too late is told so",
    [late.status, late.body.code],
    [410, "callback_expired"],
    late.text,
  );
}

async function pickup({ client, jobOf, followUpsOf }: Stage): Promise<void> {
  story.chapter(`${PICKUPS} more payments: how soon does a follow-up start?`);
  const tookMs: number[] = [];
  for (let n = 0; n < PICKUPS; n++) {
    const order = { ...ORDER, orderId: `order-pickup-${n}` };
    const { jobId, callbackUrl, signature } = await client.park("charge_card", order);
    const { at } = await call(callbackUrl, signature, { payload: PAYLOAD });
    const [receipt] = await followUpsOf(jobId, "completed");
    for (let job = await jobOf(receipt?.id ?? ""); ; job = await jobOf(job.id)) {
      if (job.state !== "completed") continue;
      tookMs.push(new Date(sentAtOf(job.result)).getTime() - at);
      break;
    }
  }
  const sorted = tookMs.toSorted((a, b) => a - b);
  const median = sorted[Math.floor(sorted.length / 2)] ?? Number.NaN;
  story.see(
    `from the callback's answer to the handler's first line: under ${MAX_PICKUP_MS} ms, median`,
    median < MAX_PICKUP_MS,
    true,
    `median ${median} ms, fastest ${sorted[0]} ms, slowest ${sorted.at(-1)} ms`,
  );
}

/** What the handler of a receipt returned: when it began. */
function sentAtOf(result: unknown): string {
  const sentAt: unknown = typeof result === "object" && result !== null && Reflect.get(result, "sentAt");
  if (typeof sentAt !== "string") throw new Error("the receipt doesn't say when it was sent");
  return sentAt;
}
