import * as v from "valibot";
import { expect, test } from "vitest";
import { runTick } from "../../src/cron/scheduled.ts";
import { paged, type Task, type TickDeps } from "../../src/cron/task.ts";
import { DEFAULT_RETENTION } from "../../src/shared/db/statements/delete-ended.ts";
import type { LogEntry } from "../../src/shared/log.ts";
import { defineRegistry } from "../../src/shared/registry/define.ts";
import { fakeDatabase } from "../support/fake-database.ts";

const registry = defineRegistry({ order: v.unknown() });

function deps(clock: () => number): TickDeps {
  return {
    database: fakeDatabase(),
    registry,
    log: () => undefined,
    retention: DEFAULT_RETENTION,
    clock,
    deadlineMs: 100,
    defer: () => undefined,
    env: {},
    callbacks: null,
  };
}

test("pages until one comes back short", async () => {
  let left = 3;
  expect(
    await paged(
      deps(() => 0),
      async () => --left > 0,
    ),
  ).toBe(false);
  expect(left).toBe(0);
});

test.each([
  ["a page budget, so that one task can't take the whole tick", 0, 10],
  ["after the tick's time each task still gets its first page, and no second one", 1000, 1],
])("%s: work is left", async (_, clock, expected) => {
  let pages = 0;
  const endless = async () => {
    pages++;
    return true;
  };
  expect(
    await paged(
      deps(() => clock),
      endless,
    ),
  ).toBe(true);
  expect(pages).toBe(expected);
});

test("a task that throws is reported by its error's name alone; the next one runs", async () => {
  const lines: LogEntry[] = [];
  const broken: Task = {
    name: "broken",
    runOnce: () => Promise.reject(new RangeError("hunter2")),
  };
  const fine: Task = { name: "fine", runOnce: async () => ({ counts: { done: 1 }, exhausted: false }) };
  const results = await runTick(
    { ...deps(() => 0), database: () => fakeDatabase(), log: (line) => lines.push(line) },
    [broken, fine],
  );
  expect(results.map((result) => result.ok)).toEqual([false, true]);
  expect(lines).toMatchObject([
    { event: "tick_task", task: "broken", level: "error", reason: "RangeError" },
    { event: "tick_task", task: "fine", level: "info", counts: { done: 1, exhausted: false } },
  ]);
  expect(JSON.stringify(lines)).not.toContain("hunter2");
});
