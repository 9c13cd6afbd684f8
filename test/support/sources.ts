import * as v from "valibot";
import { celRules } from "../../src/shared/cel-rules.ts";
import {
  complete,
  fail,
  heartbeat,
  ignore,
  resolve,
  resume,
  retry,
} from "../../src/shared/registry/source.ts";
import { ok } from "../../src/shared/result.ts";
import type { RuleEngine } from "../../src/shared/rules.ts";
import { accept, type WebhookScheme } from "../../src/shared/webhooks/scheme.ts";
import { testRegistry } from "./registry.ts";

/** A scheme that takes every request for genuine, and its delivery's id from a header. */
export function trustingScheme(): WebhookScheme {
  return {
    name: "trusting",
    secrets: "none",
    variables: [],
    deliveryId: ({ headers }) => headers.get("x-delivery") ?? undefined,
    ready: () => ok({ verify: async (request) => ok(accept(request)) }),
  };
}

/** What the test's source understands. */
export const Told = v.object({
  key: v.optional(v.string()),
  callback: v.optional(v.string()),
  does: v.picklist([
    "complete",
    "resume",
    "resolve",
    "fail",
    "retry",
    "heartbeat",
    "ignore",
    "throw",
    "nonsense",
  ]),
  payload: v.optional(v.unknown()),
});

/** The registry of the tests with a source `shop`, whose events say what they mean, and `bank`, a second one of the same kind. */
export function registryWithSources(
  hooks: { readonly broken?: () => boolean; readonly rules?: RuleEngine } = {},
) {
  const registry = testRegistry().withRules(hooks.rules ?? celRules);
  for (const name of ["shop", "bank"]) {
    registry.webhook(name, {
      scheme: trustingScheme(),
      payload: Told,
      headers: ["x-kind"],
      callback: ({ payload: { key, callback } }) =>
        key !== undefined ? { correlationKey: key } : callback !== undefined ? { id: callback } : null,
      meaning: ({ payload: { does, payload } }) => {
        if (hooks.broken?.()) throw new Error("broken-by-deploy");
        const json = JSON.parse(JSON.stringify(payload ?? null));
        switch (does) {
          case "complete":
            return complete(json);
          case "resume":
            return resume(json);
          case "resolve":
            return resolve(json);
          case "fail":
            return fail(String(payload));
          case "retry":
            return retry();
          case "heartbeat":
            return heartbeat(Number(payload));
          case "ignore":
            return ignore("not of interest");
          case "throw":
            throw new Error("source-message");
          case "nonsense":
            return JSON.parse("{}");
        }
      },
    });
  }
  return registry;
}
