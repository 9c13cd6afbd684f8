import * as v from "valibot";
import { defineRegistry } from "./shared/registry/define.ts";

/**
 * The file that you edit: your job kinds, and what follows each of their outcomes.
 *
 * The example is a small shop. `charge_card` is parked while the payment provider works on it; the provider calls back with
 * complete or fail, or never does.
 */
const Order = { orderId: v.string(), email: v.pipe(v.string(), v.email()) };

export const registry = defineRegistry({
  charge_card: v.object({ ...Order, amountCents: v.pipe(v.number(), v.integer(), v.minValue(1)) }),
  send_receipt: v.object({ ...Order, chargeId: v.nullable(v.string()) }),
  ship_order: v.object({ orderId: v.string() }),
  release_stock: v.object({ orderId: v.string(), why: v.string() }),
  tell_support: v.object({ orderId: v.string(), about: v.string() }),
});

const { enqueue } = registry;

/** What the provider completes a charge with: `{"payload": {"chargeId": "ch_1"}}`. */
const Charge = v.object({ chargeId: v.string() });

registry
  // Paid: the receipt and the parcel, both or neither, in the same transaction as the completion.
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
  .onEvent("charge_card", ({ outcome, job }) => {
    console.log(
      JSON.stringify({ level: "info", event: "charge", outcome, jobId: job.id, attempt: job.attempt }),
    );
  });
