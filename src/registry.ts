import * as v from "valibot";
import { httpFunction } from "./executor/http-function.ts";
import { defineRegistry } from "./shared/registry/define.ts";
import { complete, TerminalError, waitForCallback } from "./shared/registry/handler.ts";
import { carrierParcels, githubDeployments, replicatePredictions, stripePayments } from "./sources.ts";

/**
 * The file that you edit: your job kinds, what runs them, and what follows each of their outcomes.
 *
 * The example is a small shop. `charge_card` is parked while the payment provider works on it; the provider calls back with
 * complete or fail, or never does. What follows is run by the handlers below.
 */
const Order = { orderId: v.string(), email: v.string() };

export const registry = defineRegistry({
  charge_card: v.object({ ...Order, amountCents: v.pipe(v.number(), v.integer(), v.minValue(1)) }),
  send_receipt: v.object({ ...Order, chargeId: v.nullable(v.string()) }),
  ship_order: v.object({ orderId: v.string() }),
  print_label: v.object({ orderId: v.string() }),
  draw_picture: v.object({ orderId: v.string(), prompt: v.string() }),
  release_shop: v.object({ deploymentId: v.pipe(v.number(), v.integer()) }),
  release_stock: v.object({ orderId: v.string(), why: v.string() }),
  tell_support: v.object({ orderId: v.string(), about: v.string() }),
});

const { enqueue } = registry;

/** What the provider completes a charge with: `{"payload": {"chargeId": "ch_1"}}`. */
const Charge = v.object({ chargeId: v.string() });

const DAY_SECONDS = 86_400;

// What follows from what. Each follow-up is enqueued in the same transaction as its outcome.
registry
  // Paid: the receipt and the parcel, both or neither.
  .onCompletedEnqueue("charge_card", ({ orderId, email }, job) => {
    const charge = v.safeParse(Charge, job.result);
    return enqueue("send_receipt", {
      orderId,
      email,
      chargeId: charge.success ? charge.output.chargeId : null,
    });
  })
  .onCompletedEnqueue("charge_card", ({ orderId }) =>
    enqueue("ship_order", { orderId }, { queue: "warehouse", priority: 1, unique: true }),
  )
  // Refused for good.
  .onExhaustedEnqueue("charge_card", ({ orderId }, _job, { error }) =>
    enqueue("release_stock", { orderId, why: error }, { queue: "warehouse" }),
  )
  .onRetriedEnqueue("charge_card", ({ orderId }, _job, { attempt }) =>
    enqueue("tell_support", { orderId, about: `attempt ${attempt} has to be repeated` }, { priority: 4 }),
  )
  .onCancelledEnqueue("charge_card", ({ orderId }, _job, { reason }) =>
    enqueue("release_stock", { orderId, why: reason }, { queue: "warehouse" }),
  )
  // The provider has it: look after an hour's silence, long before the callback times out for good.
  .onWaitingForCallbackEnqueue("charge_card", ({ orderId }, job) =>
    enqueue(
      "tell_support",
      { orderId, about: "no word from the payment provider for an hour" },
      { runAt: new Date(job.runAt.getTime() + 3_600_000), tags: ["reminder"] },
    ),
  )
  // The provider never called back, or a worker died.
  .onRescuedEnqueue("charge_card", ({ orderId }, job, { reason }) =>
    enqueue("tell_support", { orderId, about: `${reason}: the charge is ${job.state} now` }),
  )
  // Observation only; what must happen is a follow-up.
  .onEvent("charge_card", ({ type, job }) => say("charge", { type, jobId: job.id, attempt: job.attempt }));

// What runs the jobs, in the queues that this build runs. A handler may be run again after a crash, so what it does to the world has
// to bear repetition: give the world the order's id as idempotency key.
registry
  .queue("default")
  .queue("warehouse", { concurrency: 5 })
  .handle("charge_card", async (ctx) => {
    const { callbackId } = await ctx.registerCallback({ timeoutSeconds: 900, source: "stripe" });
    // Here the shop would create a PaymentIntent with metadata[callback_id], which Stripe's webhooks bring back.
    say("payment requested", { orderId: ctx.args.orderId, callbackId });
    return waitForCallback();
  })
  .handle("send_receipt", ({ args }) => {
    if (args.email.endsWith(".invalid")) throw new TerminalError("the address can't receive mail");
    return complete({ sentAt: new Date().toISOString() });
  })
  // Two waits in a row. Between them nothing runs: each goes on in whatever process comes to it.
  .handle("ship_order", async (ctx) => {
    const { orderId } = ctx.args;
    const packed = await ctx.waitForCallback("packed", {
      timeoutSeconds: 3 * DAY_SECONDS,
      start: ({ callbackId }) => say("to be packed", { orderId, callbackId }),
    });
    await ctx.enqueue(enqueue("print_label", { orderId }, { queue: "warehouse", unique: true }));
    // The carrier knows the parcel by our order's number, and may well have it before we come to wait.
    const collected = await ctx.waitForCallback("collected", {
      timeoutSeconds: 3 * DAY_SECONDS,
      source: "carrier",
      correlationKey: orderId,
      start: ({ callbackId }) => say("to be collected", { orderId, callbackId }),
    });
    return complete({ packed, collected });
  })
  // Run by a function somewhere else.
  .handle("print_label", httpFunction({ mode: "sync", url: ({ LABEL_SERVICE_URL }) => LABEL_SERVICE_URL }))
  // Replicate is told where to call for this very prediction.
  .handle("draw_picture", async (ctx) => {
    const { webhookUrl } = await ctx.registerCallback({ timeoutSeconds: 900, source: "replicate" });
    say("picture requested", { orderId: ctx.args.orderId, webhookUrl });
    return waitForCallback();
  })
  // GitHub knows nothing of us: the deployment's own id finds the callback.
  .handle("release_shop", async (ctx) => {
    const correlationKey = String(ctx.args.deploymentId);
    await ctx.registerCallback({ timeoutSeconds: 3600, source: "github", correlationKey });
    return waitForCallback();
  })
  .handle("release_stock", ({ args }) => say("stock released", { orderId: args.orderId }))
  .handle("tell_support", ({ args }) => say("support told", args));

// Whose webhooks are accepted, each at /webhooks/<name>: src/sources.ts says what they mean.
registry
  .webhook("stripe", stripePayments)
  .webhook("github", githubDeployments)
  .webhook("carrier", carrierParcels)
  .webhook("replicate", replicatePredictions);

// Every working day at eight in Vienna, summer and winter. Not again while yesterday's is still to be done.
registry.periodic(
  "remind_support",
  "0 8 * * MON-FRI",
  enqueue(
    "tell_support",
    { orderId: "all", about: "look at the dead letters" },
    { priority: 4, unique: true },
  ),
  { timezone: "Europe/Vienna" },
);

/** Stands for the services that a shop would call here. */
function say(event: string, about: Readonly<Record<string, unknown>>): void {
  console.log(JSON.stringify({ level: "info", event, ...about }));
}
