import * as v from "valibot";
import { beforeEach, describe, expect, test } from "vitest";
import { createClient } from "../../src/client.ts";
import { enqueuePeriodicJobs } from "../../src/cron/periodic-jobs.ts";
import { DatabaseError } from "../../src/shared/db/errors.ts";
import type { Database } from "../../src/shared/db/port.ts";
import {
  advanceIfUnmoved,
  defineIfChanged,
  type ScheduleReading,
} from "../../src/shared/db/statements/schedules.ts";
import { defineRegistry, type RegistryView } from "../../src/shared/registry/define.ts";
import type { EnqueueOptions } from "../../src/shared/registry/follow-up.ts";
import { jobOfFire, type PeriodicOptions } from "../../src/shared/registry/periodic.ts";
import { useTestDatabase } from "../support/database.ts";
import { emptyTables } from "../support/empty-tables.ts";
import { holdTransaction, interrupt, untilBlocked } from "../support/races.ts";
import { tick } from "../support/tick.ts";

const { db, database } = useTestDatabase();

beforeEach(async () => {
  await emptyTables(db.pool);
});

const kinds = {
  report: v.object({ n: v.number() }),
  digest: v.object({}),
};

/** A build with one schedule, every hour where the test doesn't say. */
function buildWith(
  name: string,
  expression = "0 * * * *",
  options: PeriodicOptions = {},
  job: EnqueueOptions = {},
) {
  const registry = defineRegistry(kinds);
  return registry.periodic(name, expression, registry.enqueue("report", { n: 1 }, job), options);
}

const isAdvance = (text: string) => text.includes("SET last_fire_at = held.newest_fire");

/** The database with its clock at `now`, as far as periodic jobs look at it. */
function at(now: string, base: Database = database): Database {
  return {
    query: (statement) =>
      base.query({
        ...statement,
        decode: (rows) =>
          statement.decode(rows.map((row) => ("starts_after" in row ? { ...row, now: new Date(now) } : row))),
      }),
    batch: (statements) => base.batch(statements),
  };
}

/** A tick of this task alone: what it counted, its round trips, and the lines beside. */
async function periodicTick(base: Database, registry: RegistryView) {
  const { lines, results } = await tick(base, registry, { tasks: [enqueuePeriodicJobs] });
  const line = lines.find(({ event }) => event === "tick_task");
  return { counts: line?.counts, roundTrips: line?.roundTrips, ok: results[0]?.ok, lines };
}

/** A schedule that a tick wrote and that has fired last at `lastFireAt`; `null`: never yet, and counting from then on. */
async function standing(
  registry: RegistryView,
  lastFireAt: string | null,
  startsAfter = "2026-01-01T00:00:30Z",
) {
  await database.query(defineIfChanged(registry.schedules()));
  await db.pool.query("UPDATE awa_edge.schedules SET last_fire_at = $1, starts_after = $2", [
    lastFireAt,
    startsAfter,
  ]);
}

const jobs = async () =>
  (await db.pool.query("SELECT *, metadata->>'cron_fire_time' AS fire FROM awa_edge.jobs ORDER BY id")).rows;
const fires = async () => (await jobs()).map((job) => job.fire);
const rows = async () => (await db.pool.query("SELECT * FROM awa_edge.schedules ORDER BY name")).rows;
const lastFires = async () => (await rows()).map((row) => row.last_fire_at?.toISOString() ?? null);
const HOUR = (hour: number) => `2026-01-01T${String(hour).padStart(2, "0")}:00:00.000Z`;

describe("a tick", () => {
  test("no schedules: no statement", async () => {
    expect(await periodicTick(database, defineRegistry(kinds))).toMatchObject({ ok: true, roundTrips: 0 });
  });

  test("the first one writes the schedule and fires nothing; a second one finds nothing to write", async () => {
    const registry = buildWith("hourly", "0 0 1 1 *", { timezone: "Europe/Vienna", missedFires: "catch_up" });
    expect(await periodicTick(database, registry)).toMatchObject({ roundTrips: 1, counts: { schedules: 1 } });
    const [first] = await rows();
    expect(first).toMatchObject({
      name: "hourly",
      kind: "report",
      queue: "default",
      expression: "0 0 1 1 *",
      timezone: "Europe/Vienna",
      missed_fires: "catch_up",
      paused_at: null,
      last_fire_at: null,
    });
    const version = async () => (await db.pool.query("SELECT xmin, xmax, ctid FROM awa_edge.schedules")).rows;
    const before = await version();
    await periodicTick(database, registry);
    expect(await version()).toEqual(before);
    expect(await jobs()).toEqual([]);
  });

  test("a fire that is due: its job with every option, in two statements; then nothing more, in one", async () => {
    const registry = buildWith(
      "hourly",
      "0 * * * *",
      {},
      { queue: "reports", metadata: { team: "a" }, tags: ["x"] },
    );
    await standing(registry, HOUR(3));
    const done = await periodicTick(at("2026-01-01T04:00:20Z"), registry);
    expect(done).toMatchObject({
      ok: true,
      roundTrips: 2,
      counts: {
        schedules: 1,
        enqueued: 1,
        deduplicated: 0,
        passedOver: 0,
        stale: 0,
        failed: 0,
        exhausted: false,
      },
    });
    expect(await jobs()).toMatchObject([
      {
        kind: "report",
        queue: "reports",
        args: { n: 1 },
        state: "available",
        tags: ["x"],
        metadata: { team: "a", cron_name: "hourly", cron_fire_time: HOUR(4) },
        trigger_job_id: null,
      },
    ]);
    expect(await lastFires()).toEqual([HOUR(4)]);
    expect(await periodicTick(at("2026-01-01T04:59:59Z"), registry)).toMatchObject({
      roundTrips: 1,
      counts: { enqueued: 0 },
    });
    expect(await jobs()).toHaveLength(1);
  });

  test("what it enqueues it runs too", async () => {
    const registry = buildWith("hourly");
    registry.queue("default").handle("report", () => undefined);
    await standing(registry, HOUR(3));
    await tick(at("2026-01-01T04:00:20Z"), registry);
    expect(await jobs()).toMatchObject([{ state: "completed", fire: HOUR(4) }]);
  });

  test("its own database's clock decides: the last full minute", async () => {
    const registry = buildWith("often", "* * * * *");
    await standing(registry, HOUR(3));
    await periodicTick(database, registry);
    const { rows: found } = await db.pool.query(
      "SELECT last_fire_at > now() - interval '2 minutes' AND last_fire_at <= now() AS fits FROM awa_edge.schedules",
    );
    expect(found).toEqual([{ fits: true }]);
    expect(await jobs()).toHaveLength(1);
  });

  test("many schedules that are due: two statements; a queue's listeners are woken", async () => {
    const registry = defineRegistry(kinds);
    for (let n = 1; n <= 50; n++) {
      registry.periodic(`s${n}`, "0 * * * *", registry.enqueue("report", { n }, { queue: `q${n % 2}` }));
    }
    await standing(registry, HOUR(3));
    const listener = await db.pool.connect();
    const woken: string[] = [];
    listener.on("notification", ({ payload }) => woken.push(payload ?? ""));
    try {
      await listener.query("LISTEN awa_edge");
      expect(await periodicTick(at(HOUR(4)), registry)).toMatchObject({
        roundTrips: 2,
        counts: { enqueued: 50 },
      });
      await listener.query("UNLISTEN awa_edge");
    } finally {
      listener.release();
    }
    expect(woken.toSorted()).toEqual(["q0", "q1"]);
    expect((await jobs()).map((job) => job.args.n).toSorted((a, b) => a - b)).toEqual(
      Array.from({ length: 50 }, (_, i) => i + 1),
    );
  });
});

describe("missed fires", () => {
  // A restart, a deployment or a late tick at the very minute of a fire must not lose it.
  test("timgit/pg-boss#557, #549 no tick in the minute of the fire: the next one, whenever it comes, enqueues it", async () => {
    const registry = buildWith("nightly", "0 3 * * *");
    await standing(registry, "2026-01-01T03:00:00Z");
    await periodicTick(at("2026-01-02T02:59:59Z"), registry);
    expect(await fires()).toEqual([]);
    await periodicTick(at("2026-01-02T07:41:13Z"), registry);
    expect(await fires()).toEqual(["2026-01-02T03:00:00.000Z"]);
  });

  test("a day without ticks, coalesce: the latest fire, and the log says how many were passed over", async () => {
    const registry = buildWith("hourly");
    await standing(registry, HOUR(3));
    const { counts } = await periodicTick(at("2026-01-02T03:30:00Z"), registry);
    expect(counts).toMatchObject({ enqueued: 1, passedOver: 23 });
    expect(await fires()).toEqual(["2026-01-02T03:00:00.000Z"]);
  });

  test("a day without ticks, catch_up: every fire, in order", async () => {
    const registry = buildWith("hourly", "0 * * * *", { missedFires: "catch_up" });
    await standing(registry, HOUR(3));
    const done = await periodicTick(at("2026-01-02T03:30:00Z"), registry);
    expect(done).toMatchObject({ roundTrips: 2, counts: { enqueued: 24, passedOver: 0 } });
    expect(await fires()).toEqual(
      Array.from({ length: 24 }, (_, i) => new Date(Date.parse(HOUR(4)) + i * 3_600_000).toISOString()),
    );
    expect(await lastFires()).toEqual(["2026-01-02T03:00:00.000Z"]);
  });

  test.each(["coalesce", "catch_up"] as const)(
    "%s, before the first: the latest only, and none from before the schedule was there",
    async (missedFires) => {
      const registry = buildWith("hourly", "0 * * * *", { missedFires });
      await standing(registry, null);
      await periodicTick(at("2026-01-01T00:59:59Z"), registry);
      expect(await fires()).toEqual([]);
      await periodicTick(at("2026-01-01T05:30:00Z"), registry);
      expect(await fires()).toEqual([HOUR(5)]);
    },
  );

  test("catch_up takes 1000 a tick of each schedule, keeps its statements small, and says that it is behind", async () => {
    const registry = buildWith("often", "* * * * *", { missedFires: "catch_up" });
    registry.periodic("often too", "* * * * *", registry.enqueue("digest", {}), { missedFires: "catch_up" });
    await standing(registry, HOUR(0));
    const now = at("2026-01-01T20:00:00Z");
    expect(await periodicTick(now, registry)).toMatchObject({
      roundTrips: 3,
      counts: { enqueued: 2000, exhausted: true },
    });
    expect(await periodicTick(now, registry)).toMatchObject({
      roundTrips: 2,
      counts: { enqueued: 400, exhausted: false },
    });
    expect(await periodicTick(now, registry)).toMatchObject({ roundTrips: 1, counts: { enqueued: 0 } });
    for (const kind of ["report", "digest"]) {
      const found = (await jobs()).filter((job) => job.kind === kind).map((job) => job.fire);
      expect(found).toHaveLength(1200);
      expect(found).toEqual([...new Set(found)].toSorted());
      expect(found.at(-1)).toBe(HOUR(20));
    }
  });
});

describe("ticks at once", () => {
  test("another tick comes between reading and writing: each fire once, and the late one says so", async () => {
    const registry = buildWith("hourly", "0 * * * *", { missedFires: "catch_up" });
    await standing(registry, HOUR(3));
    const now = at("2026-01-01T06:30:00Z");
    const late = interrupt(now, isAdvance, async () => {
      expect((await periodicTick(now, registry)).counts).toMatchObject({ enqueued: 3, stale: 0 });
    });
    expect(await periodicTick(late, registry)).toMatchObject({
      ok: true,
      counts: { enqueued: 0, deduplicated: 0, stale: 1 },
    });
    expect(await fires()).toEqual([HOUR(4), HOUR(5), HOUR(6)]);
  });

  test("the other one was ahead by one fire only: the late one adds nothing, the next tick the rest", async () => {
    const registry = buildWith("hourly", "0 * * * *", { missedFires: "catch_up" });
    await standing(registry, HOUR(3));
    const late = interrupt(at(HOUR(6)), isAdvance, () => periodicTick(at(HOUR(4)), registry));
    await periodicTick(late, registry);
    expect(await fires()).toEqual([HOUR(4)]);
    await periodicTick(at(HOUR(6)), registry);
    expect(await fires()).toEqual([HOUR(4), HOUR(5), HOUR(6)]);
  });

  async function advanceOf(registry: RegistryView, fire: string) {
    const [schedule = expect.fail()] = registry.schedules();
    const [reading = expect.fail()]: readonly ScheduleReading[] = await database.query(
      defineIfChanged(registry.schedules()),
    );
    const job = jobOfFire(registry.kinds, schedule, new Date(fire));
    if (!job.ok) return expect.fail(job.error);
    const { name } = schedule;
    return advanceIfUnmoved([
      { name, lastFireAt: reading.lastFireAt, newestFire: new Date(fire), jobs: [job.value] },
    ]);
  }

  test("two connections, one not committed yet: the other passes it over, and finds it done afterwards", async () => {
    const registry = buildWith("hourly");
    await standing(registry, HOUR(3));
    const first = await holdTransaction(db.pool);
    expect(await first.run(await advanceOf(registry, HOUR(4)))).toEqual({
      advanced: ["hourly"],
      enqueued: 1,
    });
    expect((await periodicTick(at(HOUR(4)), registry)).counts).toMatchObject({ enqueued: 0, stale: 1 });
    await first.commit();
    await periodicTick(at(HOUR(4)), registry);
    expect(await fires()).toEqual([HOUR(4)]);
  });

  test("two connections, the first rolls back: nothing is lost, the next tick enqueues", async () => {
    const registry = buildWith("hourly");
    await standing(registry, HOUR(3));
    const first = await holdTransaction(db.pool);
    await first.run(await advanceOf(registry, HOUR(4)));
    await periodicTick(at(HOUR(4)), registry);
    await first.query("ROLLBACK");
    await first.commit();
    expect(await fires()).toEqual([]);
    await periodicTick(at(HOUR(4)), registry);
    expect(await fires()).toEqual([HOUR(4)]);
  });

  test("ten on ten connections: one set of jobs", async () => {
    const registry = buildWith("hourly", "0 * * * *", { missedFires: "catch_up" });
    for (const n of [2, 3]) registry.periodic(`hourly ${n}`, "0 * * * *", registry.enqueue("report", { n }));
    await standing(registry, HOUR(3));
    const now = at("2026-01-01T06:30:00Z");
    const done = await Promise.all(Array.from({ length: 10 }, () => periodicTick(now, registry)));
    expect(done.map(({ ok }) => ok)).toEqual(Array(10).fill(true));
    expect((await fires()).toSorted()).toEqual([HOUR(4), HOUR(5), HOUR(6), HOUR(6), HOUR(6)]);
  });

  test("two first ticks at once: one row, and the second has nothing to go by yet", async () => {
    const registry = buildWith("hourly");
    const first = await holdTransaction(db.pool);
    await first.run(defineIfChanged(registry.schedules()));
    const second = periodicTick(database, registry);
    await untilBlocked(db.pool);
    await first.commit();
    expect(await second).toMatchObject({ ok: true, roundTrips: 1 });
    expect(await rows()).toHaveLength(1);
    expect(await database.query(defineIfChanged(registry.schedules()))).toHaveLength(1);
  });

  test("a tick that died after its statement had committed: the next one adds nothing", async () => {
    const registry = buildWith("hourly", "0 * * * *", { missedFires: "catch_up" });
    await standing(registry, HOUR(3));
    const now = at("2026-01-01T06:30:00Z");
    const cutOff: Database = {
      ...now,
      async query(statement) {
        const result = await now.query(statement);
        if (isAdvance(statement.text)) throw new DatabaseError("unavailable", null);
        return result;
      },
    };
    expect(await periodicTick(cutOff, registry)).toMatchObject({ ok: false });
    expect(await periodicTick(now, registry)).toMatchObject({
      ok: true,
      roundTrips: 1,
      counts: { enqueued: 0 },
    });
    expect(await fires()).toEqual([HOUR(4), HOUR(5), HOUR(6)]);
  });
});

describe("another build", () => {
  test("without the schedule: leaves it alone; the next one that has it goes on", async () => {
    const registry = buildWith("hourly");
    await standing(registry, HOUR(3));
    const before = await rows();
    const older = buildWith("other", "0 0 1 1 *");
    expect((await periodicTick(database, older)).counts).toMatchObject({ schedules: 1, enqueued: 0 });
    expect((await rows()).filter((row) => row.name === "hourly")).toEqual(before);
    await periodicTick(at("2026-01-01T05:30:00Z"), registry);
    expect(await fires()).toEqual([HOUR(5)]);
  });

  test("with another kind and queue under the name: it goes on from where it stands", async () => {
    await standing(buildWith("hourly"), HOUR(3));
    const newer = defineRegistry(kinds);
    newer.periodic("hourly", "0 * * * *", newer.enqueue("digest", {}, { queue: "mail" }));
    await periodicTick(at("2026-01-01T03:59:00Z"), newer);
    expect(await rows()).toMatchObject([{ name: "hourly", kind: "digest", queue: "mail" }]);
    expect(await lastFires()).toEqual([HOUR(3)]);
    await periodicTick(at(HOUR(4)), newer);
    expect(await jobs()).toMatchObject([{ kind: "digest", queue: "mail", fire: HOUR(4) }]);
  });

  test("with another expression: fires by it from the last fire on; a pause stays", async () => {
    await standing(buildWith("job", "0 * * * *"), HOUR(3));
    const newer = buildWith("job", "30 * * * *");
    await periodicTick(at("2026-01-01T03:20:00Z"), newer);
    expect(await rows()).toMatchObject([{ expression: "30 * * * *" }]);
    expect(await fires()).toEqual([]);
    await periodicTick(at("2026-01-01T04:10:00Z"), newer);
    expect(await fires()).toEqual(["2026-01-01T03:30:00.000Z"]);

    await createClient({ database, registry: newer }).schedules.pause("job");
    await periodicTick(at("2026-01-01T09:00:00Z"), buildWith("job", "0 * * * *"));
    expect(await rows()).toMatchObject([{ expression: "0 * * * *", paused_at: expect.any(Date) }]);
    expect(await fires()).toHaveLength(1);
  });

  // Otherwise a yearly job that becomes an hourly one would catch up with months in which nothing of the kind was asked for.
  test.each([
    ["expression", "0 * * * *", "UTC"],
    ["zone", "0 0 1 1 *", "Europe/Vienna"],
  ])(
    "with another %s and catch_up: what it would have fired before isn't caught up with",
    async (_, expression, timezone) => {
      await standing(buildWith("job", "0 0 1 1 *", { missedFires: "catch_up" }), "2024-01-01T00:00:00Z");
      const newer = buildWith("job", expression, { missedFires: "catch_up", timezone });
      await periodicTick(at("2026-01-01T05:30:00Z"), newer);
      expect(await jobs()).toHaveLength(1);
      await db.pool.query("UPDATE awa_edge.schedules SET last_fire_at = $1", [HOUR(5)]);
      await db.pool.query("DELETE FROM awa_edge.jobs");
      await periodicTick(
        at("2029-01-01T07:30:00Z"),
        buildWith("job", "0 0 1 1 *", { missedFires: "catch_up" }),
      );
      expect(await fires()).toEqual(["2029-01-01T00:00:00.000Z"]);
    },
  );

  test("two builds that alternate, each with its own expression: no fire that both have is lost or doubled", async () => {
    const builds = [buildWith("job", "0 * * * *"), buildWith("job", "0 */1 * * *")];
    await standing(buildWith("job", "0 * * * *"), HOUR(3));
    for (let minute = 0; minute < 300; minute++) {
      const now = new Date(Date.parse(HOUR(3)) + minute * 60_000 + 5000).toISOString();
      await periodicTick(at(now), builds[minute % 2] ?? expect.fail());
    }
    expect(await fires()).toEqual([HOUR(4), HOUR(5), HOUR(6), HOUR(7)]);
  });
});

describe("a pause", () => {
  const client = (registry = buildWith("hourly")) => createClient({ database, registry }).schedules;

  test("nothing is enqueued; what it would have been is passed over, with catch_up as well", async () => {
    const registry = buildWith("yearly", "0 0 1 1 *", { missedFires: "catch_up" });
    await standing(registry, "2020-01-01T00:00:00Z");
    expect(await client().pause("yearly")).toEqual({ status: "paused" });
    expect(await client().pause("yearly")).toEqual({ status: "already_paused" });
    expect(await periodicTick(database, registry)).toMatchObject({ roundTrips: 1, counts: { enqueued: 0 } });
    expect(await client().resume("yearly")).toEqual({ status: "resumed" });
    expect(await client().resume("yearly")).toEqual({ status: "not_paused" });
    expect(await periodicTick(database, registry)).toMatchObject({ roundTrips: 1, counts: { enqueued: 0 } });
    expect(await jobs()).toEqual([]);
    // The time of the resume has microseconds, and the guard still knows it.
    const { rows: resumed } = await db.pool.query(
      "UPDATE awa_edge.schedules SET last_fire_at = last_fire_at + interval '1 microsecond' RETURNING extract(year FROM last_fire_at) AS year",
    );
    const next = `${Number(resumed[0].year) + 1}-01-01T00:00:00.000Z`;
    await periodicTick(at(next), registry);
    expect(await fires()).toEqual([next]);
  });

  test("a resume never moves a schedule back, and a resume of one that isn't paused moves nothing", async () => {
    await standing(buildWith("hourly"), "2999-01-01T00:00:00Z");
    await client().pause("hourly");
    await client().resume("hourly");
    expect(await lastFires()).toEqual(["2999-01-01T00:00:00.000Z"]);
    await db.pool.query("UPDATE awa_edge.schedules SET last_fire_at = $1", [HOUR(3)]);
    await client().resume("hourly");
    expect(await lastFires()).toEqual([HOUR(3)]);
  });

  test.each([
    ["paused", ["pause"]],
    ["paused and resumed", ["pause", "resume"]],
  ] as const)("%s between a tick's reading and its write: nothing is enqueued", async (_, actions) => {
    const registry = buildWith("hourly");
    await standing(registry, HOUR(3));
    const late = interrupt(at(HOUR(4)), isAdvance, async () => {
      for (const action of actions) await client()[action]("hourly");
    });
    expect((await periodicTick(late, registry)).counts).toMatchObject({ enqueued: 0, stale: 1 });
    expect(await jobs()).toEqual([]);
  });

  test("a schedule that no tick has written: said so", async () => {
    expect(await client().pause("hourly")).toEqual({ status: "not_found" });
    expect(await client().resume("hourly")).toEqual({ status: "not_found" });
  });

  test("list: every schedule that was ever written, and whether this build has it", async () => {
    const registry = buildWith("hourly", "0 * * * *", { timezone: "Europe/Vienna" });
    await standing(registry, HOUR(3));
    await database.query(defineIfChanged(buildWith("another", "0 0 1 1 *").schedules()));
    await client().pause("another");
    expect(await client(registry).list()).toEqual([
      {
        name: "another",
        kind: "report",
        queue: "default",
        expression: "0 0 1 1 *",
        timezone: "UTC",
        missedFires: "coalesce",
        pausedAt: expect.any(Date),
        lastFireAt: null,
        createdAt: expect.any(Date),
        isRegistered: false,
      },
      expect.objectContaining({
        name: "hourly",
        timezone: "Europe/Vienna",
        pausedAt: null,
        lastFireAt: new Date(HOUR(3)),
        isRegistered: true,
      }),
    ]);
  });
});

describe("a trigger by hand", () => {
  const clientOf = (registry: ReturnType<typeof buildWith>, nudged: string[] = []) =>
    createClient({
      database,
      registry,
      now: () => new Date("2026-01-01T03:07:00.500Z"),
      nudge: (queues) => nudged.push(...queues),
    });

  test("the job at once, paused or not; the fires go on as if nothing had been", async () => {
    const registry = buildWith("hourly", "0 * * * *", {}, { queue: "reports" });
    await standing(registry, HOUR(3));
    const nudged: string[] = [];
    const { schedules } = clientOf(registry, nudged);
    await schedules.pause("hourly");
    const before = await rows();
    const triggered = await schedules.trigger("hourly");
    expect(triggered).toMatchObject({ status: "triggered", deduplicated: false });
    expect(await rows()).toEqual(before);
    expect(nudged).toEqual(["reports"]);
    expect(await jobs()).toMatchObject([
      {
        id: triggered.status === "triggered" ? triggered.jobId : "",
        kind: "report",
        state: "available",
        metadata: {
          cron_name: "hourly",
          cron_fire_time: "2026-01-01T03:07:00.500Z",
          triggered_manually: true,
        },
      },
    ]);
  });

  test("before the first tick it works too; a name that this build doesn't have is said so", async () => {
    const { schedules } = clientOf(buildWith("hourly"));
    expect(await schedules.trigger("hourly")).toMatchObject({ status: "triggered" });
    await standing(buildWith("another"), HOUR(3));
    expect(await schedules.trigger("another")).toEqual({ status: "not_registered" });
    expect(await jobs()).toHaveLength(1);
  });

  test("with a unique key: the live job is named, also where it isn't committed yet", async () => {
    const registry = buildWith("hourly", "0 * * * *", {}, { unique: true });
    const { schedules, prepare } = clientOf(registry);
    const holder = await holdTransaction(db.pool);
    const first = await holder.run(prepare.enqueue("report", { n: 1 }, { unique: true }));
    const second = schedules.trigger("hourly");
    await untilBlocked(db.pool);
    await holder.commit();
    expect(await second).toEqual({ status: "triggered", jobId: first?.jobId, deduplicated: true });
  });
});

describe("what is enqueued", () => {
  test("a job whose unique key is taken is left out, and its fire counts as done", async () => {
    const registry = buildWith("hourly", "0 * * * *", { missedFires: "catch_up" }, { unique: true });
    await standing(registry, HOUR(3));
    const { counts } = await periodicTick(at("2026-01-01T06:30:00Z"), registry);
    expect(counts).toMatchObject({ enqueued: 1, deduplicated: 2 });
    expect(await lastFires()).toEqual([HOUR(6)]);
    expect((await periodicTick(at(HOUR(7)), registry)).counts).toMatchObject({
      enqueued: 0,
      deduplicated: 1,
    });
    expect(await lastFires()).toEqual([HOUR(7)]);
    await db.pool.query("UPDATE awa_edge.jobs SET state = 'completed', finalized_at = now()");
    await periodicTick(at(HOUR(8)), registry);
    expect(await fires()).toEqual([HOUR(4), HOUR(8)]);
  });

  test("a unique key of a period: the period of the fire, whenever it is caught up with", async () => {
    const unique = { byPeriodSeconds: 7200 };
    const registry = buildWith("hourly", "0 * * * *", { missedFires: "catch_up" }, { unique });
    await standing(registry, HOUR(3));
    await periodicTick(at("2026-01-01T07:30:00Z"), registry);
    expect(await fires()).toEqual([HOUR(4), HOUR(6)]);
  });

  test("a job that Postgres refuses: the other schedules' go through, its own stays and is tried again", async () => {
    const registry = defineRegistry(kinds);
    for (let n = 1; n <= 9; n++) registry.periodic(`s${n}`, "0 * * * *", registry.enqueue("report", { n }));
    await standing(registry, HOUR(3));
    await db.pool.query(
      "ALTER TABLE awa_edge.jobs ADD CONSTRAINT not_today CHECK (kind <> 'report' OR args->>'n' <> '5')",
    );
    try {
      const { counts, lines, ok } = await periodicTick(at(HOUR(4)), registry);
      expect({ counts, ok }).toMatchObject({ ok: true, counts: { enqueued: 8, failed: 1, stale: 0 } });
      expect(lines.filter(({ event }) => event === "periodic_job_failed")).toEqual([
        {
          level: "error",
          event: "periodic_job_failed",
          schedule: "s5",
          kind: "report",
          reason: expect.stringContaining("not_today"),
        },
      ]);
    } finally {
      await db.pool.query("ALTER TABLE awa_edge.jobs DROP CONSTRAINT not_today");
    }
    expect((await rows()).filter((row) => row.last_fire_at.toISOString() === HOUR(3))).toMatchObject([
      { name: "s5" },
    ]);
    expect((await periodicTick(at(HOUR(4)), registry)).counts).toMatchObject({ enqueued: 1, failed: 0 });
    expect((await jobs()).map((job) => job.args.n)).toEqual([1, 2, 3, 4, 6, 7, 8, 9, 5]);
  });

  test("a job whose args don't pass any more, or whose schema throws: the other schedules' go through", async () => {
    let mood: "fine" | "strict" | "broken" = "fine";
    const moody = defineRegistry({
      ...kinds,
      moody: v.pipe(
        v.object({}),
        v.check(() => {
          if (mood === "broken") throw new RangeError("hunter2");
          return mood === "fine";
        }),
      ),
    });
    moody
      .periodic("moody", "0 * * * *", moody.enqueue("moody", {}))
      .periodic("steady", "0 * * * *", moody.enqueue("digest", {}));
    await standing(moody, HOUR(3));
    mood = "strict";
    const strict = await periodicTick(at(HOUR(4)), moody);
    mood = "broken";
    const broken = await periodicTick(at(HOUR(5)), moody);
    for (const { counts } of [strict, broken]) expect(counts).toMatchObject({ enqueued: 1, failed: 1 });
    const reasons = [...strict.lines, ...broken.lines].filter(({ schedule }) => schedule === "moody");
    expect(reasons.map(({ reason }) => reason)).toEqual([
      expect.stringContaining("its args don't fit the kind's schema"),
      "threw RangeError",
    ]);
    mood = "fine";
    await periodicTick(at(HOUR(6)), moody);
    expect((await jobs()).map((job) => [job.kind, job.fire])).toEqual([
      ["digest", HOUR(4)],
      ["digest", HOUR(5)],
      ["moody", HOUR(6)],
      ["digest", HOUR(6)],
    ]);
  });

  test("nothing half-done: where the database fails, the schedule stays where it was", async () => {
    const registry = buildWith("hourly");
    await standing(registry, HOUR(3));
    const down = interrupt(at(HOUR(4)), isAdvance, () =>
      Promise.reject(new DatabaseError("unavailable", null)),
    );
    expect(await periodicTick(down, registry)).toMatchObject({ ok: false });
    expect(await lastFires()).toEqual([HOUR(3)]);
    await periodicTick(down, registry);
    expect(await fires()).toEqual([HOUR(4)]);
  });
});
