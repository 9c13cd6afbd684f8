import type { JobInsert } from "../../registry/job-insert.ts";
import type { RegisteredSchedule } from "../../registry/periodic.ts";
import type { Row, Statement } from "../port.ts";
import { date, nullable, number, text, texts } from "../rows.ts";
import { insertJobsSql, jobRecord, jobRecordsSql, wakeUpSql } from "./insert-jobs.ts";

/** Where a schedule stands. */
export interface ScheduleReading {
  readonly name: string;
  /**
   * The newest fire of this expression that was enqueued or passed over; `null`: none yet. As Postgres wrote it: the guard compares it,
   * and a Date would lose its microseconds.
   */
  readonly lastFireAt: string | null;
  /** Fires count from here on while there was none. */
  readonly startsAfter: Date;
  readonly isPaused: boolean;
  /** The database's clock. */
  readonly now: Date;
}

/**
 * Writes the schedules of this build, where they changed, and reads where each stands. Never deletes: a schedule that isn't in this
 * build may be in another. Pauses stay.
 *
 * A schedule whose expression or zone changed starts afresh from its last fire on: of what the new one would have fired since then
 * the latest may be enqueued, and nothing is caught up with.
 *
 * @returns a reading each; none for a schedule that another tick is writing for the first time right now
 */
export function defineIfChanged(
  schedules: readonly RegisteredSchedule[],
): Statement<readonly ScheduleReading[]> {
  const defined = schedules.map(({ name, followUp, queue, expression, timezone, missedFires }) => ({
    name,
    kind: followUp.kind,
    queue,
    expression,
    timezone,
    missed_fires: missedFires,
  }));
  return { text: DEFINE_SQL, values: [JSON.stringify(defined)], decode: (rows) => rows.map(decodeReading) };
}

function decodeReading(row: Row): ScheduleReading {
  return {
    name: text(row, "name"),
    lastFireAt: nullable(row, "last_fire_at", text),
    startsAfter: date(row, "starts_after"),
    isPaused: row.is_paused === true,
    now: date(row, "now"),
  };
}

const IS_NEW_TIMING = "(s.expression, s.timezone) <> (excluded.expression, excluded.timezone)";
/** The time as ISO 8601, whatever the session's date style. */
const READING = `s.name, to_json(s.last_fire_at)#>>'{}' AS last_fire_at, s.starts_after,
  s.paused_at IS NOT NULL AS is_paused, now() AS now`;

// A row that an ON CONFLICT comes to is locked even where nothing is to be changed: those as they should be are left out before.
const DEFINE_SQL = `
WITH defined AS (
  SELECT * FROM jsonb_to_recordset($1::text::jsonb)
    AS d(name text, kind text, queue text, expression text, timezone text, missed_fires text)
), s AS (
  INSERT INTO awa_edge.schedules AS s (name, kind, queue, expression, timezone, missed_fires)
  SELECT d.name, d.kind, d.queue, d.expression, d.timezone, d.missed_fires FROM defined d
  WHERE NOT EXISTS (
    SELECT FROM awa_edge.schedules o
    WHERE (o.name, o.kind, o.queue, o.expression, o.timezone, o.missed_fires)
      = (d.name, d.kind, d.queue, d.expression, d.timezone, d.missed_fires))
  ORDER BY d.name
  ON CONFLICT (name) DO UPDATE SET
    kind = excluded.kind,
    queue = excluded.queue,
    expression = excluded.expression,
    timezone = excluded.timezone,
    missed_fires = excluded.missed_fires,
    starts_after = CASE WHEN ${IS_NEW_TIMING} THEN coalesce(s.last_fire_at, s.starts_after) ELSE s.starts_after END,
    last_fire_at = CASE WHEN ${IS_NEW_TIMING} THEN NULL ELSE s.last_fire_at END
  WHERE (s.kind, s.queue, s.expression, s.timezone, s.missed_fires)
    <> (excluded.kind, excluded.queue, excluded.expression, excluded.timezone, excluded.missed_fires)
  RETURNING s.*
)
SELECT ${READING} FROM s
UNION ALL
SELECT ${READING} FROM awa_edge.schedules s JOIN defined USING (name)
WHERE NOT EXISTS (SELECT FROM s changed WHERE changed.name = defined.name)`;

/** The due fires of one schedule. */
export interface Advance {
  readonly name: string;
  /** As it was read. */
  readonly lastFireAt: string | null;
  readonly newestFire: Date;
  /** One job for each fire that is to be enqueued, in order. */
  readonly jobs: readonly JobInsert[];
}

/** `advanced`: the names of those that were still where they were read; the others are another tick's. */
export interface Advanced {
  readonly advanced: readonly string[];
  readonly enqueued: number;
}

/**
 * Advances schedules to their newest fires and enqueues the jobs of their due ones, in one statement: each fire is enqueued exactly once,
 * by whichever tick advances the schedule over it. A job whose unique key is taken is left out, and its fire counts as done.
 *
 * Guard: the last fire is still the one that was read, and the schedule isn't paused; held under FOR UPDATE SKIP LOCKED.
 */
export function advanceIfUnmoved(advances: readonly Advance[]): Statement<Advanced> {
  const planned = advances.map(({ name, lastFireAt, newestFire }) => ({
    name,
    last_fire_at: lastFireAt,
    newest_fire: newestFire,
  }));
  const jobs = advances.flatMap(({ name, jobs: ofOne }) => ofOne.map((job) => ({ name, job })));
  return {
    text: ADVANCE_SQL,
    values: [
      JSON.stringify(planned),
      JSON.stringify(jobs.map(({ name, job }, position) => jobRecord(job, position, { schedule: name }))),
    ],
    decode: ([row = {}]) => ({ advanced: texts(row, "advanced"), enqueued: number(row, "enqueued") }),
  };
}

const ADVANCE_SQL = `
WITH held AS MATERIALIZED (
  SELECT s.name, p.newest_fire
  FROM awa_edge.schedules s
  JOIN jsonb_to_recordset($1::text::jsonb) AS p(name text, last_fire_at timestamptz, newest_fire timestamptz) USING (name)
  WHERE s.last_fire_at IS NOT DISTINCT FROM p.last_fire_at AND s.paused_at IS NULL
  FOR UPDATE OF s SKIP LOCKED
), advanced AS (
  UPDATE awa_edge.schedules s SET last_fire_at = held.newest_fire
  FROM held
  WHERE s.name = held.name
  RETURNING s.name
), inserted AS (
  ${insertJobsSql(`${jobRecordsSql("$2", ", schedule text")} JOIN advanced a ON a.name = r.schedule`, null)}
), wake_up AS (
  ${wakeUpSql("inserted")}
)
SELECT (SELECT count(*) FROM wake_up) AS woken, (SELECT count(*) FROM inserted) AS enqueued,
  coalesce((SELECT array_agg(a.name) FROM advanced a), '{}') AS advanced`;
