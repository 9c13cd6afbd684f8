import { describe, expect, test } from "vitest";
import { SILENT_AFTER_MS, whyNotReady } from "../../scripts/lib/health.ts";
import { HEARTBEAT_INTERVAL_MS } from "../../src/executor/heart.ts";
import { SCHEMA_VERSION } from "../../src/shared/db/statements/read-schema-version.ts";

describe("whyNotReady", () => {
  const good = { schemaVersion: SCHEMA_VERSION, lastDoneMs: 1_000, nowMs: 2_000 };

  test("the database answers and does something: ready", () => {
    expect(whyNotReady(good)).toBeNull();
  });

  test("every place is taken, and only heartbeats are written: ready", () => {
    expect(whyNotReady({ ...good, nowMs: good.lastDoneMs + HEARTBEAT_INTERVAL_MS + 5_000 })).toBeNull();
  });

  test.each<[string, Partial<Parameters<typeof whyNotReady>[0]>, RegExp]>([
    ["no answer", { schemaVersion: undefined }, /database unavailable/],
    ["never migrated", { schemaVersion: null }, /npm run migrate/],
    ["newer", { schemaVersion: "9999_newer" }, /newer than this build/],
    ["nothing done yet", { lastDoneMs: null }, /yet/],
    ["nothing done for long", { nowMs: good.lastDoneMs + SILENT_AFTER_MS + 1 }, /any more/],
  ])("%s: not ready", (_, signs, why) => {
    expect(whyNotReady({ ...good, ...signs })).toMatch(why);
  });
});
