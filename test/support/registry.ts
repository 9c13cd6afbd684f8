import * as v from "valibot";
import { defineRegistry } from "../../src/shared/registry/define.ts";

/**
 * The registry of the tests: `order` is followed by two follow-ups on each outcome, the second with a unique key on `order`'s
 * number; `poison` by one that always throws; `plain` by nothing.
 */
export function testRegistry() {
  const registry = defineRegistry({
    order: v.object({ n: v.number() }),
    poison: v.object({ n: v.number() }),
    plain: v.object({ n: v.number() }),
    after: v.object({ of: v.string(), detail: v.unknown() }),
    once: v.object({ n: v.number() }),
  });
  const { enqueue } = registry;
  const after = (of: string, detail: unknown) => enqueue("after", { of, detail }, { queue: "follow-ups" });
  registry
    .onCompletedEnqueue("order", (_, job) => after("completed", job.result))
    .onCompletedEnqueue("order", ({ n }) => enqueue("once", { n }, { priority: 1, unique: true }))
    .onExhaustedEnqueue("order", (_, _job, { error, attempt }) => after("exhausted", { error, attempt }))
    .onRetriedEnqueue("order", (_, _job, { error, attempt }) => after("retried", { error, attempt }))
    .onCancelledEnqueue("order", (_, _job, { reason }) => after("cancelled", reason))
    .onWaitingForCallbackEnqueue("order", (_, job) => after("waiting_for_callback", job.callbackId))
    .onRescuedEnqueue("order", (_, job, { reason }) => after("rescued", { reason, state: job.state }))
    .onCompletedEnqueue("poison", () => after("completed", "the first is fine"))
    .onCompletedEnqueue("poison", () => {
      throw new Error("poison-message");
    })
    .onCancelledEnqueue("poison", () => {
      throw new Error("poison-message");
    })
    .onRescuedEnqueue("poison", () => {
      throw new Error("poison-message");
    });
  return registry;
}
