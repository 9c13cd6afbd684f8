import { MISSED_FIRES, type MissedFires } from "../../registry/periodic.ts";
import type { Statement } from "../port.ts";
import { date, nullable, oneOf, text } from "../rows.ts";

/** A schedule as the latest tick that changed it wrote it. */
export interface ScheduleRow {
  readonly name: string;
  readonly kind: string;
  readonly queue: string;
  readonly expression: string;
  readonly timezone: string;
  readonly missedFires: MissedFires;
  /** `null`: not paused. */
  readonly pausedAt: Date | null;
  /** The newest fire of this expression that was enqueued, or passed over; `null`: none yet. */
  readonly lastFireAt: Date | null;
  readonly createdAt: Date;
}

/** Reads all schedules that a tick has ever written, by name. */
export function readSchedules(): Statement<readonly ScheduleRow[]> {
  return {
    text: `SELECT name, kind, queue, expression, timezone, missed_fires, paused_at, last_fire_at, created_at
      FROM awa_edge.schedules ORDER BY name`,
    values: [],
    decode: (rows) =>
      rows.map((row) => ({
        name: text(row, "name"),
        kind: text(row, "kind"),
        queue: text(row, "queue"),
        expression: text(row, "expression"),
        timezone: text(row, "timezone"),
        missedFires: oneOf(row, "missed_fires", MISSED_FIRES),
        pausedAt: nullable(row, "paused_at", date),
        lastFireAt: nullable(row, "last_fire_at", date),
        createdAt: date(row, "created_at"),
      })),
  };
}

/** Whether the statement changed the schedule, and whether there is one. */
export interface Switched {
  readonly changed: boolean;
  readonly found: boolean;
}

/** Pauses a schedule. Guard: it isn't paused. */
export function pauseIfActive(name: string): Statement<Switched> {
  return switchSql(name, "paused_at = now()", "paused_at IS NULL");
}

/**
 * Resumes a schedule from now on: the fires of its pause are passed over. Guard: it is paused.
 *
 * Moving last_fire_at also makes what a tick planned before the pause stale.
 */
export function resumeIfPaused(name: string): Statement<Switched> {
  const resumed = "paused_at = NULL, last_fire_at = greatest(last_fire_at, now())";
  return switchSql(name, resumed, "paused_at IS NOT NULL");
}

function switchSql(name: string, set: string, guard: string): Statement<Switched> {
  return {
    text: `
WITH changed AS (
  UPDATE awa_edge.schedules SET ${set} WHERE name = $1::text AND ${guard} RETURNING name
)
SELECT EXISTS (SELECT FROM changed) AS changed,
  EXISTS (SELECT FROM awa_edge.schedules WHERE name = $1::text) AS found`,
    values: [name],
    decode: ([row = {}]) => ({ changed: row.changed === true, found: row.found === true }),
  };
}
