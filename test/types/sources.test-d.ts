import * as v from "valibot";
import { describe, expectTypeOf, test } from "vitest";
import type { Client } from "../../src/client.ts";
import { celRules } from "../../src/shared/cel-rules.ts";
import type { DeliveryRow, Meaning } from "../../src/shared/delivery.ts";
import type { CallbackId } from "../../src/shared/ids.ts";
import type { Json } from "../../src/shared/json.ts";
import { defineRegistry } from "../../src/shared/registry/define.ts";
import type { RegisteredSource } from "../../src/shared/registry/source.ts";
import type { Rules } from "../../src/shared/rules.ts";
import {
  complete,
  defineSource,
  fail,
  github,
  heartbeat,
  hmac,
  ignore,
  resolve,
  resume,
  retry,
  type SourceOptions,
  stripe,
  type WebhookScheme,
} from "../../src/webhooks.ts";

const registry = defineRegistry({ order: v.object({ n: v.number() }) });
const Event = v.object({ type: v.picklist(["paid", "lost"]), n: v.optional(v.number(), 0) });
const base = { scheme: stripe(), secret: "SECRET", payload: Event } as const;

describe("what a source's code is given", () => {
  test("the payload as its schema puts it out, and what stands around it", () => {
    const source = defineSource({
      ...base,
      callback: ({ payload }) => {
        expectTypeOf(payload).toEqualTypeOf<{ type: "paid" | "lost"; n: number }>();
        return { correlationKey: String(payload.n) };
      },
      meaning: (event) => {
        expectTypeOf(event.payload).toEqualTypeOf<{ type: "paid" | "lost"; n: number }>();
        expectTypeOf(event.headers).toEqualTypeOf<Readonly<Record<string, string>>>();
        expectTypeOf(event.callbackId).toEqualTypeOf<CallbackId | null>();
        expectTypeOf(event.deliveryId).toEqualTypeOf<string>();
        expectTypeOf(event.receivedAt).toEqualTypeOf<Date>();
        return complete(event.payload.n);
      },
    });
    expectTypeOf(source).toEqualTypeOf<SourceOptions<typeof Event>>();
    registry.webhook("shop", source);
  });
  test("the same in the registry, without defineSource", () => {
    registry.webhook("shop", {
      ...base,
      meaning: ({ payload }) => {
        expectTypeOf(payload.type).toEqualTypeOf<"paid" | "lost">();
        return ignore(payload.type);
      },
    });
  });
  test("a payload that its schema leaves open is unknown, and not any", () => {
    registry.webhook("open", {
      scheme: github(),
      secret: "SECRET",
      payload: v.unknown(),
      meaning: ({ payload }) => {
        expectTypeOf(payload).toBeUnknown();
        return resolve();
      },
    });
  });
  test("what isn't there can't be read", () => {
    // @ts-expect-error the schema has no such field
    defineSource({ ...base, meaning: ({ payload }) => complete(payload.amount) });
    // @ts-expect-error a header may be missing, and is read by its name
    defineSource({ ...base, meaning: ({ headers }) => ignore(headers.get("x-kind")) });
    // @ts-expect-error its code gets no database, no secret and no request
    defineSource({ ...base, meaning: ({ request }) => complete(request) });
  });
});

describe("what a source's code returns", () => {
  test("each meaning", () => {
    for (const meaning of [complete(), resume({ a: [1] }), resolve(null), fail("why"), retry()])
      expectTypeOf(meaning).toEqualTypeOf<Meaning>();
    expectTypeOf([heartbeat(), heartbeat(60), ignore("why")]).toEqualTypeOf<Meaning[]>();
    expectTypeOf(complete).parameter(0).toEqualTypeOf<Json | undefined>();
  });
  test("meanings that can't be", () => {
    // @ts-expect-error a payload is JSON
    complete(new Date());
    // @ts-expect-error a payload is JSON, all of it
    resolve({ at: undefined });
    // @ts-expect-error a failure has a text
    fail();
    // @ts-expect-error what isn't of interest has its reason
    ignore();
    // @ts-expect-error seconds are a number
    heartbeat("60");
    // @ts-expect-error a retry takes nothing along
    retry("why");
  });
  test("whatever else doesn't compile", () => {
    // @ts-expect-error nothing
    defineSource({ ...base, meaning: () => {} });
    // @ts-expect-error nothing in one case
    defineSource({ ...base, meaning: ({ payload }) => (payload.n > 1 ? complete() : undefined) });
    // @ts-expect-error asynchronous
    defineSource({ ...base, meaning: async () => complete() });
    // @ts-expect-error several
    defineSource({ ...base, meaning: () => [complete()] });
    // @ts-expect-error no such meaning
    defineSource({ ...base, meaning: () => ({ type: "done" }) });
    // @ts-expect-error the outcome of a handler is none
    defineSource({ ...base, meaning: () => true });
  });
  test("which callback: its id, its correlation key, or none", () => {
    const meaning = () => complete();
    defineSource({ ...base, meaning, callback: () => null });
    defineSource({ ...base, meaning, callback: ({ payload }) => ({ id: payload.type }) });
    defineSource({ ...base, meaning, callback: ({ deliveryId }) => ({ correlationKey: deliveryId }) });
    // @ts-expect-error none is null
    defineSource({ ...base, meaning, callback: () => undefined });
    // @ts-expect-error a bare text is neither of the two
    defineSource({ ...base, meaning, callback: ({ deliveryId }) => deliveryId });
    // @ts-expect-error a number is no key: say how it is written
    defineSource({ ...base, meaning, callback: ({ payload }) => ({ correlationKey: payload.n }) });
    // @ts-expect-error no such reference
    defineSource({ ...base, meaning, callback: () => ({ jobId: "7" }) });
    // @ts-expect-error asynchronous
    defineSource({ ...base, meaning, callback: async () => null });
  });
});

describe("what a source consists of", () => {
  const meaning = () => complete();
  test("each part is of its type", () => {
    // @ts-expect-error a scheme is made: stripe()
    defineSource({ ...base, meaning, scheme: stripe });
    // @ts-expect-error nor is its name one
    defineSource({ ...base, meaning, scheme: "stripe" });
    // @ts-expect-error a schema, not an example
    defineSource({ ...base, meaning, payload: { type: "paid" } });
    // @ts-expect-error one text: several secrets stand in one variable
    defineSource({ ...base, meaning, secret: ["A", "B"] });
    // @ts-expect-error the headers' names
    defineSource({ ...base, meaning, headers: "x-kind" });
    // @ts-expect-error no meaning at all
    defineSource({ ...base });
    // @ts-expect-error no such part
    defineSource({ ...base, meaning, retries: 3 });
  });
  test("in the registry its name is a text, and it is registered under one", () => {
    expectTypeOf(registry.webhook("shop", { ...base, meaning })).toEqualTypeOf(registry);
    expectTypeOf(registry.source("shop")).toEqualTypeOf<RegisteredSource | undefined>();
    // @ts-expect-error a name is a text
    registry.webhook(7, { ...base, meaning });
    // @ts-expect-error and comes first
    registry.webhook({ ...base, meaning });
  });
  test("a scheme of one's own is described with what the engine knows", () => {
    const described = { name: "own", algorithm: "hmac-sha256", key: "utf8", content: "{body}" } as const;
    const signature = { from: "header:x-signature", encoding: "hex" } as const;
    expectTypeOf(hmac({ ...described, signature })).toEqualTypeOf<WebhookScheme>();
    // @ts-expect-error no such algorithm
    hmac({ ...described, signature, algorithm: "hmac-md5" });
    // @ts-expect-error a public key is no key of an HMAC
    hmac({ ...described, signature, key: "spki" });
    // @ts-expect-error no such encoding
    hmac({ ...described, signature: { ...signature, encoding: "base32" } });
    // @ts-expect-error its name is missing
    hmac({ algorithm: "hmac-sha256", key: "utf8", content: "{body}", signature });
  });
});

describe("waits for a source", () => {
  test("the client's and the handler's", () => {
    const park = (client: Client<typeof registry.kinds>) => {
      client.park("order", { n: 1 }, { source: "shop", correlationKey: "7", rules: { onFail: "false" } });
      // @ts-expect-error a source is named
      client.park("order", { n: 1 }, { source: defineSource });
      // @ts-expect-error a key is a text
      client.park("order", { n: 1 }, { source: "shop", correlationKey: 7 });
      // @ts-expect-error no such option
      client.park("order", { n: 1 }, { source: "shop", correlation: "7" });
    };
    expectTypeOf(park).toBeFunction();
    registry.handle("order", async (ctx) => {
      await ctx.waitForCallback("paid", { source: "shop", correlationKey: "7" });
      // @ts-expect-error its name stands before its options
      await ctx.waitForCallback("paid", { name: "paid", source: "shop" });
      const registered = await ctx.registerCallback({ source: "shop" });
      expectTypeOf(registered.webhookUrl).toEqualTypeOf<string | null>();
      // @ts-expect-error a key is a text
      await ctx.registerCallback({ source: "shop", correlationKey: 7 });
    });
  });
  test("rules: conditions in CEL, and one of three defaults", () => {
    expectTypeOf<{ filter: string; onComplete: string; default: "ignore" }>().toExtend<Rules>();
    expectTypeOf<{ default: "retry" }>().not.toExtend<Rules>();
    expectTypeOf<{ onFail: boolean }>().not.toExtend<Rules>();
    registry.withRules(celRules);
    registry.handle("order", async (ctx) => {
      await ctx.waitForCallback("paid", { rules: { onComplete: 'payload.state == "paid"' } });
      // @ts-expect-error a condition is a text, and no function
      await ctx.waitForCallback("paid", { rules: { onComplete: (payload) => payload.state === "paid" } });
      // @ts-expect-error no such rule
      await ctx.waitForCallback("paid", { rules: { onRetry: "true" } });
    });
    // @ts-expect-error what evaluates them, not what they are
    registry.withRules({ onFail: "true" });
  });
  test("deliveries: their states are a closed set, and a resolved one isn't replayed with others", () => {
    const use = async ({ deliveries }: Client<typeof registry.kinds>) => {
      const { deliveries: rows } = await deliveries.list({ state: "parked", source: "shop", limit: 10 });
      expectTypeOf(rows).toEqualTypeOf<readonly DeliveryRow[]>();
      expectTypeOf(await deliveries.get("shop", "evt_1")).toEqualTypeOf<DeliveryRow | null>();
      // @ts-expect-error no such state
      await deliveries.list({ state: "done" });
      // @ts-expect-error had its effect
      await deliveries.replayAll({ state: "resolved" });
      // @ts-expect-error say which
      await deliveries.replayAll({ source: "shop" });
    };
    expectTypeOf(use).toBeFunction();
  });
});
