import * as v from "valibot";
import { describe, expectTypeOf, test } from "vitest";
import type { Client } from "../../src/client.ts";
import type { JobRow } from "../../src/shared/job.ts";
import type { Json } from "../../src/shared/json.ts";
import { defineRegistry, type JobEvent } from "../../src/shared/registry/define.ts";
import type { FollowUp } from "../../src/shared/registry/follow-up.ts";
import { complete, retryAfter, snooze } from "../../src/shared/registry/handler.ts";

const registry = defineRegistry({
  order: v.object({ n: v.number(), note: v.optional(v.string(), "none") }),
  after: v.object({ text: v.string() }),
});
const { enqueue } = registry;

describe("what a closure is given", () => {
  test("args as the schema puts them out, the job in the states of its outcome, the outcome's context", () => {
    registry.onCompletedEnqueue("order", (args, job) => {
      expectTypeOf(args).toEqualTypeOf<{ n: number; note: string }>();
      expectTypeOf(job).toEqualTypeOf<JobRow<"completed">>();
      expectTypeOf(job.finalizedAt).toEqualTypeOf<Date>();
      return enqueue("after", { text: "" });
    });
    registry.onRetriedEnqueue("order", (_, job, context) => {
      expectTypeOf(job.state).toEqualTypeOf<"available" | "retryable">();
      expectTypeOf(context).toEqualTypeOf<{
        readonly error: string;
        readonly attempt: number;
        readonly nextRunAt: Date;
      }>();
      return enqueue("after", { text: "" });
    });
    registry.onRescuedEnqueue("order", (_, job, { reason }) => {
      expectTypeOf(job.state).toEqualTypeOf<"retryable" | "failed">();
      expectTypeOf(reason).toEqualTypeOf<"stale_heartbeat" | "deadline_exceeded" | "expired_callback">();
      return enqueue("after", { text: "" });
    });
    registry.onWaitingForCallbackEnqueue("order", (_, job) => enqueue("after", { text: job.callbackId }));
    registry.onCancelledEnqueue("order", (_, _job, { reason }) => enqueue("after", { text: reason }));
    registry.onExhaustedEnqueue("order", (_, job, { error }) =>
      enqueue("after", { text: `${job.deadLetter?.reason} ${error}` }),
    );
    registry.onEvent("order", (event) => {
      expectTypeOf(event).toEqualTypeOf<JobEvent<{ n: number; note: string }>>();
      if (event.type === "cancelled") expectTypeOf(event.reason).toEqualTypeOf<string>();
    });
  });
  test("a follow-up is nothing but what enqueue returns", () => {
    expectTypeOf(enqueue("after", { text: "" })).toEqualTypeOf<FollowUp>();
    expectTypeOf({ kind: "after", args: {}, options: {} }).not.toExtend<FollowUp>();
  });
});

describe("handlers", () => {
  test("get typed args, and may return an outcome, nothing, or now and then one", () => {
    registry.handle("order", (ctx) => {
      expectTypeOf(ctx.args).toEqualTypeOf<{ n: number; note: string }>();
      expectTypeOf(ctx.job.state).toEqualTypeOf<"running">();
    });
    registry.handle("order", async () => {});
    registry.handle("order", async ({ args }) => {
      if (args.n > 1) return complete(args.n);
    });
    registry.handle("order", async ({ args }) => (args.n > 1 ? snooze(1) : undefined));
    registry.handle("order", async (ctx) => {
      expectTypeOf(await ctx.waitForCallback("x")).toEqualTypeOf<Json>();
      await ctx.enqueue(enqueue("after", { text: "" }));
      return retryAfter(1);
    });
  });
  test("whatever else doesn't compile", () => {
    // @ts-expect-error no such kind
    registry.handle("nope", () => undefined);
    // @ts-expect-error a value is no outcome
    registry.handle("order", () => 42);
    // @ts-expect-error nor is a promise of one
    registry.handle("order", async () => "done");
    // @ts-expect-error a result has to be JSON
    registry.handle("order", () => complete(new Date()));
  });
});

describe("what doesn't compile", () => {
  test("kinds that aren't there", () => {
    // @ts-expect-error no such kind
    registry.onCompletedEnqueue("nope", () => enqueue("after", { text: "" }));
    // @ts-expect-error no such kind
    registry.onCompletedEnqueue("order", () => enqueue("nope", {}));
    // @ts-expect-error no such kind
    registry.onEvent("nope", () => undefined);
  });
  test("args that don't fit", () => {
    // @ts-expect-error text is a string
    enqueue("after", { text: 1 });
    // @ts-expect-error text is missing
    enqueue("after", {});
    // @ts-expect-error no such field
    enqueue("after", { text: "", more: 1 });
  });
  test("closures that return something else", () => {
    // @ts-expect-error asynchronous
    registry.onCompletedEnqueue("order", async () => enqueue("after", { text: "" }));
    // @ts-expect-error nothing
    registry.onCompletedEnqueue("order", () => {});
    // @ts-expect-error undefined in one case
    registry.onCompletedEnqueue("order", ({ n }) => (n > 1 ? enqueue("after", { text: "" }) : undefined));
    // @ts-expect-error several
    registry.onCompletedEnqueue("order", () => [enqueue("after", { text: "" })]);
    // @ts-expect-error a look-alike
    registry.onCompletedEnqueue("order", () => ({ kind: "after", args: { text: "" }, options: {} }));
  });
  test("options that can't be", () => {
    // @ts-expect-error 1 to 4
    enqueue("after", { text: "" }, { priority: 5 });
    // @ts-expect-error a Date
    enqueue("after", { text: "" }, { runAt: "tomorrow" });
    // @ts-expect-error no such option
    enqueue("after", { text: "" }, { retries: 3 });
    // @ts-expect-error no such state
    enqueue("after", { text: "" }, { unique: { states: ["done"] } });
  });
  test("the client: kinds, args, and a run_at for a parked job", () => {
    const use = (client: Client<typeof registry.kinds>) => {
      client.enqueue("order", { n: 1 });
      // @ts-expect-error no such kind
      client.enqueue("nope", {});
      // @ts-expect-error n is a number
      client.park("order", { n: "1" });
      // @ts-expect-error a parked job isn't scheduled
      client.park("order", { n: 1 }, { runAt: new Date() });
    };
    expectTypeOf(use).toBeFunction();
  });
});
