import fc from "fast-check";
import * as v from "valibot";
import { describe, expect, test } from "vitest";
import { dueFires, MAX_FIRES } from "../../src/cron/fires.ts";
import { parseCronExpression } from "../../src/shared/registry/cron-expression.ts";
import { defineRegistry } from "../../src/shared/registry/define.ts";
import type { EnqueueOptions } from "../../src/shared/registry/follow-up.ts";
import { jobOfFire, type MissedFires, type PeriodicOptions } from "../../src/shared/registry/periodic.ts";

const VIENNA = "Europe/Vienna";
const registryOf = () => defineRegistry({ report: v.object({ n: v.number() }) });

function expressionOf(expression: string, timezone = "UTC") {
  const parsed = parseCronExpression(expression, timezone);
  return parsed.ok ? parsed.value : expect.fail(parsed.error);
}

/** Fires after an instant and up to another, in UTC. */
function between(expression: string, timezone: string, from: string, to: string): string[] {
  const { firstAfter } = expressionOf(expression, timezone);
  const fires: string[] = [];
  for (
    let fire = firstAfter(new Date(from));
    fire !== null && fire <= new Date(to);
    fire = firstAfter(fire)
  ) {
    fires.push(fire.toISOString().slice(0, 19));
  }
  return fires;
}

describe("registration", () => {
  test("what a schedule is, with its defaults", () => {
    const registry = registryOf();
    registry
      .periodic("hourly", "0 * * * *", registry.enqueue("report", { n: 1 }))
      .periodic("nightly", "30 0 3 * * *", registry.enqueue("report", { n: 2 }, { queue: "reports" }), {
        timezone: VIENNA,
        missedFires: "catch_up",
      });
    expect(registry.schedules()).toMatchObject([
      { name: "hourly", expression: "0 * * * *", timezone: "UTC", missedFires: "coalesce", queue: "default" },
      {
        name: "nightly",
        expression: "30 0 3 * * *",
        timezone: VIENNA,
        missedFires: "catch_up",
        queue: "reports",
      },
    ]);
  });

  test.each([
    ["no expression", "", /periodic job job: the expression is wrong/],
    ["four parts", "* * * *", /the expression is wrong/],
    ["seven parts", "0 0 3 * * * 2030", /the expression is wrong/],
    ["a minute that isn't there", "60 * * * *", /the expression is wrong/],
    ["another language", "every day", /the expression is wrong/],
    ["a date", "2030-01-01T00:00:00", /the expression is a date/],
    ["a day that never comes", "0 0 30 2 *", /the expression never fires/],
  ])("an expression that can't be: %s", (_, expression, message) => {
    const registry = registryOf();
    expect(() => registry.periodic("job", expression, registry.enqueue("report", { n: 1 }))).toThrow(message);
    expect(registry.schedules()).toEqual([]);
  });

  test.each([
    ["an unknown zone", { timezone: "Europe/Atlantis" }, /timezone isn't an IANA zone/],
    ["an empty zone, which would be the machine's own", { timezone: "" }, /timezone must have 1 to 200/],
    ["an unknown rule", { missedFires: "skip" as MissedFires }, /missedFires is none of coalesce, catch_up/],
  ])("options that can't be: %s", (_, options: PeriodicOptions, message) => {
    const registry = registryOf();
    const followUp = registry.enqueue("report", { n: 1 });
    expect(() => registry.periodic("job", "0 3 * * *", followUp, options)).toThrow(message);
  });

  test.each([
    ["args", { n: "1" as unknown as number }, {}, /its job: its args don't fit the kind's schema: at n/],
    ["options", { n: 1 }, { queue: "" }, /its job: queue must have 1 to 200 characters/],
    ["runAt", { n: 1 }, { runAt: new Date(0) }, /runAt isn't possible/],
  ])("a job that can't be enqueued: %s", (_, args, options: EnqueueOptions, message) => {
    const registry = registryOf();
    const followUp = registry.enqueue("report", args, options);
    expect(() => registry.periodic("job", "0 3 * * *", followUp)).toThrow(message);
  });

  test("a kind of another registry, a name twice, a name that can't be", () => {
    const registry = registryOf();
    const other = defineRegistry({ other: v.object({}) });
    const followUp = registry.enqueue("report", { n: 1 });
    expect(() => registry.periodic("job", "0 3 * * *", other.enqueue("other", {}))).toThrow(
      "its kind isn't in the registry",
    );
    registry.periodic("job", "0 3 * * *", followUp);
    expect(() => registry.periodic("job", "0 4 * * *", followUp)).toThrow("registered already: job");
    for (const name of ["", "x".repeat(201), "a\0b"]) {
      expect(() => registry.periodic(name, "0 3 * * *", followUp)).toThrow("its name");
    }
    registry.periodic("💶".repeat(200), "0 3 * * *", followUp);
    expect(registry.schedules()).toHaveLength(2);
  });
});

describe("the job of a fire", () => {
  test("its metadata says which, over what the registration says", () => {
    const registry = registryOf();
    const metadata = { team: "finance", cron_name: "mine" };
    registry.periodic("nightly", "0 3 * * *", registry.enqueue("report", { n: 1 }, { metadata }));
    const [schedule = expect.fail()] = registry.schedules();
    const at = new Date("2026-01-02T03:00:00Z");
    expect(jobOfFire(registry.kinds, schedule, at)).toMatchObject({
      ok: true,
      value: {
        metadata: { team: "finance", cron_name: "nightly", cron_fire_time: "2026-01-02T03:00:00.000Z" },
        runAt: null,
      },
    });
    expect(jobOfFire(registry.kinds, schedule, at, { triggeredManually: true })).toMatchObject({
      value: { metadata: { cron_name: "nightly", triggered_manually: true } },
    });
    expect(metadata).toEqual({ team: "finance", cron_name: "mine" });
  });

  test("the fire decides the period of a unique key", () => {
    const registry = registryOf();
    const unique = { byPeriodSeconds: 3600 };
    registry.periodic("often", "* * * * *", registry.enqueue("report", { n: 1 }, { unique }));
    const [schedule = expect.fail()] = registry.schedules();
    const keyAt = (at: string) => {
      const job = jobOfFire(registry.kinds, schedule, new Date(at));
      return job.ok ? job.value.uniqueKey : expect.fail(job.error);
    };
    expect(keyAt("2026-01-02T03:00:00Z")).toBe(keyAt("2026-01-02T03:59:59Z"));
    expect(keyAt("2026-01-02T03:00:00Z")).not.toBe(keyAt("2026-01-02T04:00:00Z"));
  });
});

describe("when an expression fires", () => {
  test("in the local time of its zone", () => {
    const day = ["2026-01-01T12:00:00Z", "2026-01-02T12:00:00Z"] as const;
    expect(between("0 3 * * *", "UTC", ...day)).toEqual(["2026-01-02T03:00:00"]);
    expect(between("0 3 * * *", VIENNA, ...day)).toEqual(["2026-01-02T02:00:00"]);
    expect(between("0 3 * * *", "America/St_Johns", ...day)).toEqual(["2026-01-02T06:30:00"]);
  });

  test("with seconds, and after an instant but not at it", () => {
    expect(between("*/20 * * * * *", "UTC", "2026-01-01T00:00:00.000Z", "2026-01-01T00:01:00.000Z")).toEqual([
      "2026-01-01T00:00:20",
      "2026-01-01T00:00:40",
      "2026-01-01T00:01:00",
    ]);
    const { firstAfter, lastUpTo } = expressionOf("0 * * * * *");
    expect(firstAfter(new Date("2026-01-01T00:00:59.999Z"))).toEqual(new Date("2026-01-01T00:01:00Z"));
    expect(firstAfter(new Date("2026-01-01T00:01:00.001Z"))).toEqual(new Date("2026-01-01T00:02:00Z"));
    expect(lastUpTo(new Date("2026-01-01T00:01:00.000Z"))).toEqual(new Date("2026-01-01T00:01:00Z"));
    expect(lastUpTo(new Date("2026-01-01T00:00:59.999Z"))).toEqual(new Date("2026-01-01T00:00:00Z"));
  });

  // Vienna's clock goes from 02:00 to 03:00 at 01:00 UTC.
  test("the clock jumps forward: a time of day in the gap fires right after it, other expressions leave the gap out", () => {
    const night = ["2026-03-28T22:00:00Z", "2026-03-29T03:00:00Z"] as const;
    expect(between("30 2 * * *", VIENNA, ...night)).toEqual(["2026-03-29T01:00:00"]);
    expect(between("30 * * * *", VIENNA, ...night)).toEqual([
      "2026-03-28T22:30:00",
      "2026-03-28T23:30:00",
      "2026-03-29T00:30:00",
      "2026-03-29T01:30:00",
      "2026-03-29T02:30:00",
    ]);
    expect(between("30 2,4 * * *", VIENNA, ...night)).toEqual(["2026-03-29T02:30:00"]);
  });

  // Vienna's clock goes from 03:00 to 02:00 at 01:00 UTC.
  test("the clock goes back: a time of day fires at the first occurrence only, other expressions at both", () => {
    const night = ["2026-10-24T23:00:00Z", "2026-10-25T03:00:00Z"] as const;
    expect(between("30 2 * * *", VIENNA, ...night)).toEqual(["2026-10-25T00:30:00"]);
    expect(between("30 * * * *", VIENNA, ...night)).toEqual([
      "2026-10-24T23:30:00",
      "2026-10-25T00:30:00",
      "2026-10-25T01:30:00",
      "2026-10-25T02:30:00",
    ]);
  });

  test("looking back finds the same fires as going forward, over both changes of the clock", () => {
    const expressions = [
      "30 2 * * *",
      "0 3 * * *",
      "30 2,3 * * *",
      "*/20 * * * *",
      "15 * * * *",
      "0 0 2 29 * *",
    ];
    fc.assert(
      fc.property(
        fc.constantFrom(...expressions),
        fc.constantFrom("2026-03-27T00:00:00Z", "2026-10-23T00:00:00Z"),
        fc.integer({ min: 0, max: 5 * 86_400_000 }),
        (expression, from, laterMs) => {
          const { firstAfter, lastUpTo } = expressionOf(expression, VIENNA);
          const upTo = new Date(Date.parse(from) + laterMs);
          let last: Date | null = null;
          for (
            let fire = firstAfter(new Date(from));
            fire !== null && fire <= upTo;
            fire = firstAfter(fire)
          ) {
            last = fire;
          }
          if (last !== null) expect(lastUpTo(upTo)).toEqual(last);
        },
      ),
      { numRuns: 300 },
    );
  });
});

describe("which fires are due", () => {
  const reading = (lastFireAt: string | null, now: string) => ({
    lastFireAt,
    startsAfter: new Date("2026-01-01T00:00:30Z"),
    now: new Date(now),
  });
  const due = (
    missedFires: MissedFires,
    lastFireAt: string | null,
    now: string,
    expression = "0 * * * *",
  ) => {
    const found = dueFires({ fires: expressionOf(expression), missedFires }, reading(lastFireAt, now));
    return { ...found, due: found.due.map((fire) => fire.toISOString().slice(0, 19)) };
  };
  const NOTHING = { due: [], passedOver: 0, more: false };

  test.each(["coalesce", "catch_up"] as const)("%s: one that is due, once, at its second", (missedFires) => {
    expect(due(missedFires, "2026-01-01T03:00:00Z", "2026-01-01T03:59:59.999Z")).toEqual(NOTHING);
    expect(due(missedFires, "2026-01-01T03:00:00Z", "2026-01-01T04:00:00.000Z")).toEqual({
      ...NOTHING,
      due: ["2026-01-01T04:00:00"],
    });
    expect(due(missedFires, "2026-01-01T04:00:00Z", "2026-01-01T04:00:00.000Z")).toEqual(NOTHING);
  });

  test("coalesce: the latest; how many were passed over", () => {
    expect(due("coalesce", "2026-01-01T03:00:00Z", "2026-01-02T03:30:00Z")).toEqual({
      due: ["2026-01-02T03:00:00"],
      passedOver: 23,
      more: false,
    });
  });

  test("catch_up: every one, in order", () => {
    expect(due("catch_up", "2026-01-01T03:00:00Z", "2026-01-01T06:30:00Z")).toEqual({
      ...NOTHING,
      due: ["2026-01-01T04:00:00", "2026-01-01T05:00:00", "2026-01-01T06:00:00"],
    });
  });

  test.each(["coalesce", "catch_up"] as const)(
    "%s: before the first, the latest only, and none from before the start",
    (missedFires) => {
      expect(due(missedFires, null, "2026-01-01T00:59:59Z")).toEqual(NOTHING);
      expect(due(missedFires, null, "2026-01-01T06:30:00Z")).toEqual({
        due: ["2026-01-01T06:00:00"],
        passedOver: 5,
        more: false,
      });
    },
  );

  test("catch_up: 1000 in one pass, the rest in the next ones", () => {
    const now = "2026-01-01T01:00:00Z";
    const first = due("catch_up", "2026-01-01T00:00:00Z", now, "*/2 * * * * *");
    expect(first).toMatchObject({ passedOver: 0, more: true });
    expect(first.due).toHaveLength(MAX_FIRES);
    expect(first.due[0]).toBe("2026-01-01T00:00:02");
    const second = due("catch_up", `${first.due.at(-1)}Z`, now, "*/2 * * * * *");
    expect(second).toMatchObject({ passedOver: 0, more: false });
    expect(second.due).toHaveLength(800);
    expect(second.due.at(-1)).toBe("2026-01-01T01:00:00");
  });

  test("coalesce: the latest, however many were missed", () => {
    expect(due("coalesce", "2026-01-01T00:00:00Z", "2026-06-01T00:00:00.500Z", "* * * * * *")).toEqual({
      due: ["2026-06-01T00:00:00"],
      passedOver: MAX_FIRES,
      more: false,
    });
  });

  test("a database clock behind the last fire: nothing is fired twice", () => {
    expect(due("catch_up", "2026-01-01T04:00:00Z", "2026-01-01T03:00:00Z")).toEqual(NOTHING);
  });
});
