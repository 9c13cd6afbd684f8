import * as v from "valibot";
import { defineRegistry } from "../../src/shared/registry/define.ts";
import type { Handler } from "../../src/shared/registry/handler.ts";
import {
  complete,
  fail,
  heartbeat,
  ignore,
  resolve,
  resume,
  retry,
} from "../../src/shared/registry/source.ts";
import { trustingScheme } from "../support/sources.ts";

/** The queue of the jobs. Their follow-ups are in another one, where nobody runs them. */
export const QUEUE = "model";
export const FOLLOW_UPS = "follow-ups";

const Told = v.object({
  does: v.picklist(["complete", "resolve", "resume", "fail", "retry", "heartbeat", "ignore"]),
  to: v.union([v.object({ key: v.string() }), v.object({ callback: v.string() })]),
});

/**
 * The registry of the model: `order` is followed by something on each outcome, `brittle` too, unless its closures are broken, `plain` by
 * nothing; a source of webhooks that says what it means.
 *
 * @param isBroken whether the closures of `brittle` throw
 */
export function modelRegistry(handler: Handler, isBroken: boolean) {
  const Args = v.object({ n: v.number() });
  const registry = defineRegistry({
    order: Args,
    brittle: Args,
    plain: Args,
    after: v.object({}),
    once: Args,
  });
  const after = () => {
    return registry.enqueue("after", {}, { queue: FOLLOW_UPS });
  };
  const brittle = () => {
    if (isBroken) throw new Error("broken");
    return after();
  };
  for (const [kind, closure] of [
    ["order", after],
    ["brittle", brittle],
  ] as const) {
    registry
      .onCompletedEnqueue(kind, closure)
      .onRetriedEnqueue(kind, closure)
      .onExhaustedEnqueue(kind, closure)
      .onCancelledEnqueue(kind, closure)
      .onWaitingForCallbackEnqueue(kind, closure)
      .onRescuedEnqueue(kind, closure);
  }
  registry.onCompletedEnqueue("order", ({ n }) =>
    registry.enqueue("once", { n }, { queue: FOLLOW_UPS, unique: true }),
  );
  registry.queue(QUEUE).handle("order", handler).handle("brittle", handler).handle("plain", handler);
  return registry.webhook("shop", {
    scheme: trustingScheme(),
    payload: Told,
    callback: ({ payload: { to } }) => ("key" in to ? { correlationKey: to.key } : { id: to.callback }),
    meaning: ({ payload: { does } }) => {
      switch (does) {
        case "complete":
          return complete(2);
        case "resolve":
          return resolve(2);
        case "resume":
          return resume(2);
        case "fail":
          return fail("declined");
        case "retry":
          return retry();
        case "heartbeat":
          return heartbeat(3600);
        case "ignore":
          return ignore("not of interest");
      }
    },
  });
}
