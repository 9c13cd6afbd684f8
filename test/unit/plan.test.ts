import * as v from "valibot";
import { describe, expect, test } from "vitest";
import { defineRegistry, type Hook } from "../../src/shared/registry/define.ts";
import type { EnqueueOptions, FollowUp } from "../../src/shared/registry/follow-up.ts";
import { inFull } from "../../src/shared/registry/job-insert.ts";
import { type Ended, planFollowUps, runHooks } from "../../src/shared/registry/plan.ts";
import { completedJob, NOW } from "../support/jobs.ts";

const kinds = {
  order: v.object({ n: v.number() }),
  after: v.object({ text: v.string() }),
  anything: v.unknown(),
  asynchronous: v.pipeAsync(
    v.object({ n: v.number() }),
    v.checkAsync(async () => true),
  ),
};
const completed = (other: Parameters<typeof completedJob>[0] = {}): Ended => ({
  outcome: "completed",
  job: completedJob(other),
  context: {},
});
/** Plans with one closure, whatever it returns. */
function planOne(closure: (enqueue: ReturnType<typeof fresh>["enqueue"]) => unknown) {
  const registry = fresh();
  registry.onCompletedEnqueue("order", () => closure(registry.enqueue) as FollowUp);
  return planFollowUps(registry, completed(), NOW);
}
const fresh = () => defineRegistry(kinds);
const deep = () => {
  let value: unknown = 1;
  for (let i = 0; i < 200; i++) value = [value];
  return value;
};

describe("planFollowUps", () => {
  test("all closures of (kind, outcome), in the order of their registration", () => {
    const registry = fresh();
    registry
      .onCompletedEnqueue("order", ({ n }) => registry.enqueue("after", { text: `first ${n}` }))
      .onExhaustedEnqueue("order", () => registry.enqueue("after", { text: "another outcome" }))
      .onCompletedEnqueue("after", () => registry.enqueue("after", { text: "another kind" }))
      .onCompletedEnqueue("order", (_, job) =>
        registry.enqueue("after", { text: job.state }, { queue: "q", priority: 1 }),
      );
    expect(planFollowUps(registry, completed(), NOW)).toMatchObject({
      ok: true,
      value: [
        { kind: "after", args: { text: "first 1" }, queue: "default", priority: 2, maxAttempts: 25 },
        { kind: "after", args: { text: "completed" }, queue: "q", priority: 1 },
      ],
    });
  });

  test("a kind that the build doesn't know: none", () => {
    expect(planFollowUps(fresh(), completed({ kind: "unknown" }), NOW)).toEqual({ ok: true, value: [] });
  });

  test("a closure that writes to its arguments changes nothing for the next", () => {
    const registry = fresh();
    const job = completedJob({ args: { n: 1 } });
    registry
      .onCompletedEnqueue("order", (args, given) => {
        args.n = 99;
        Object.assign(given, { state: "failed" });
        return registry.enqueue("after", { text: "" });
      })
      .onCompletedEnqueue("order", (args, given) =>
        registry.enqueue("after", { text: `${args.n} ${given.state}` }),
      );
    const planned = planFollowUps(registry, { outcome: "completed", job, context: {} }, NOW);
    expect(planned).toMatchObject({ value: [{}, { args: { text: "1 completed" } }] });
    expect(job).toEqual(completedJob({ args: { n: 1 } }));
  });

  test("properties that are undefined are absent, as in JSON", () => {
    expect(planOne((enqueue) => enqueue("anything", { a: undefined, b: 1 }))).toMatchObject({
      value: [{ args: { b: 1 } }],
    });
  });

  test.each<[string, (enqueue: ReturnType<typeof fresh>["enqueue"]) => unknown, RegExp]>([
    [
      "throws",
      () => {
        throw new TypeError("SECRET");
      },
      /threw TypeError$/,
    ],
    [
      "throws what is no Error",
      () => {
        throw "SECRET";
      },
      /threw string$/,
    ],
    [
      "throws what can't be made text",
      () => {
        throw Object.create(null);
      },
      /threw object$/,
    ],
    [
      "is asynchronous",
      async (enqueue) => enqueue("after", { text: "" }),
      /returned a promise instead of enqueue/,
    ],
    ["returns nothing", () => undefined, /returned undefined/],
    ["returns null", () => null, /returned null/],
    [
      "returns a look-alike",
      () => ({ kind: "after", args: { text: "" }, options: {} }),
      /something of type object/,
    ],
    [
      "another registry's kind",
      () => defineRegistry({ other: v.unknown() }).enqueue("other", 1),
      /kind isn't in the registry/,
    ],
    [
      "args that don't fit",
      (enqueue) => enqueue("after", { text: 5 } as never),
      /args don't fit the kind's schema$/,
    ],
    ["an asynchronous schema", (enqueue) => enqueue("asynchronous", { n: 1 }), /asynchronous/],
    ["NUL in args", (enqueue) => enqueue("anything", { a: ["SECRET\0"] }), /NUL/],
    ["half a surrogate pair in args", (enqueue) => enqueue("anything", "\ud800"), /surrogate/],
    ["NUL in a key", (enqueue) => enqueue("anything", { "\0": 1 }), /NUL/],
    ["a number that isn't finite", (enqueue) => enqueue("anything", [Number.POSITIVE_INFINITY]), /finite/],
    ["a Date", (enqueue) => enqueue("anything", { at: new Date() }), /plain data/],
    ["a promise in args", (enqueue) => enqueue("anything", { p: Promise.resolve(1) }), /plain data/],
    ["a bigint", (enqueue) => enqueue("anything", { n: 1n }), /bigint/],
    ["a function", (enqueue) => enqueue("anything", () => 1), /function/],
    ["no args", (enqueue) => enqueue("anything", undefined), /undefined/],
    ["too deep", (enqueue) => enqueue("anything", deep()), /deeper than 128/],
  ])("a plan failure: %s", (_, closure, reason) => {
    const planned = planOne(closure);
    if (planned.ok) expect.fail("was planned");
    expect(planned.error.reason).toMatch(/^follow-up 1 of order, completed: /);
    expect(planned.error.reason).toMatch(reason);
    expect(planned.error.reason).not.toContain("SECRET");
  });

  test.each<[EnqueueOptions | Record<string, unknown>, RegExp]>([
    [{ queue: "" }, /queue/],
    [{ queue: "q".repeat(201) }, /queue/],
    [{ queue: "\0" }, /queue/],
    [{ priority: 0 }, /priority/],
    [{ priority: 1.5 }, /priority/],
    [{ maxAttempts: 0 }, /maxAttempts/],
    [{ maxAttempts: 1001 }, /maxAttempts/],
    [{ metadata: [] }, /metadata/],
    [{ metadata: { a: "\0" } }, /metadata/],
    [{ tags: Array(21).fill("a") }, /tags/],
    [{ tags: [1] }, /tags/],
    [{ tags: ["\0"] }, /tags/],
    [{ runAt: new Date(Number.NaN) }, /runAt/],
    [{ runAt: "2026-01-01" }, /runAt/],
    [{ runAt: new Date(8.64e15) }, /runAt/],
    [{ deadlineSeconds: 0 }, /deadlineSeconds/],
    [{ deadlineSeconds: Number.POSITIVE_INFINITY }, /deadlineSeconds/],
    [{ orderingKey: "" }, /orderingKey/],
    [{ unique: { byPeriodSeconds: 0 } }, /byPeriodSeconds/],
    [{ unique: { states: [] } }, /unique.states/],
    [{ unique: { states: ["done"] } }, /unique.states/],
    [{ unique: "yes" }, /unique/],
  ])("a plan failure: options %j", (options, reason) => {
    const planned = planOne((enqueue) => enqueue("after", { text: "" }, options as EnqueueOptions));
    expect(planned).toMatchObject({
      ok: false,
      error: { reason: expect.stringMatching(reason), detail: null },
    });
  });

  test("the limits themselves are fine", () => {
    const options: EnqueueOptions = {
      queue: "💶".repeat(200),
      priority: 4,
      maxAttempts: 1000,
      tags: Array(20).fill("t"),
      deadlineSeconds: 31_536_000,
    };
    expect(planOne((enqueue) => enqueue("after", { text: "" }, options))).toMatchObject({ ok: true });
  });

  test("one of several fails: none counts; the job's own args don't fit: the same", () => {
    const registry = fresh();
    registry
      .onCompletedEnqueue("order", () => registry.enqueue("after", { text: "" }))
      .onCompletedEnqueue("order", () => registry.enqueue("after", { text: 1 } as never));
    expect(planFollowUps(registry, completed(), NOW)).toMatchObject({ ok: false });
    expect(planFollowUps(registry, completed({ args: { n: "SECRET" } }), NOW)).toEqual({
      ok: false,
      error: {
        reason: "follow-up 1 of order, completed: the job itself: its args don't fit the kind's schema",
        detail: "at n",
      },
    });
  });
});

describe("runHooks", () => {
  test("one after the other; one that throws is reported and the next runs; typed args or nothing", async () => {
    const registry = fresh();
    const seen: string[] = [];
    const slow: Hook = async () => {
      await new Promise((resolve) => setTimeout(resolve, 5));
      seen.push("slow");
    };
    registry
      .onEvent("order", slow)
      .onEvent("order", async () => {
        throw new RangeError("SECRET");
      })
      .onEvent("order", ({ type, args }) => {
        seen.push(`${type} ${args.n}`);
      });
    const faults: string[] = [];
    await runHooks(registry, completed(), (fault) => faults.push(fault));
    expect(seen).toEqual(["slow", "completed 1"]);
    expect(faults).toEqual(["hook 2 of order threw RangeError"]);
    await runHooks(registry, completed({ args: {} }), (fault) => faults.push(fault));
    expect(seen).toHaveLength(2);
    expect(faults).toHaveLength(2);
  });
});

test("a registry refuses kinds and registrations that can't be", () => {
  expect(() => defineRegistry({ "": v.unknown() })).toThrow(/1 to 200/);
  expect(() => defineRegistry({ ["k".repeat(201)]: v.unknown() })).toThrow(/1 to 200/);
  expect(() => fresh().onEvent("nope" as never, () => undefined)).toThrow(/no such job kind/);
});

test("a fault in full can be stored, whatever a schema calls its fields", () => {
  expect(inFull({ reason: "its args don't fit", detail: "at \0\ud800" })).toBe(
    "its args don't fit: at \ufffd",
  );
});
