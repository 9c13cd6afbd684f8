import { err, ok, type Result } from "../result.ts";
import { type CronExpression, parseCronExpression } from "./cron-expression.ts";
import type { FollowUp } from "./follow-up.ts";
import { checkJobInsert, type JobInsert } from "./job-insert.ts";
import type { Kinds } from "./kinds.ts";
import { whyNoName } from "./options.ts";

export const MISSED_FIRES = ["coalesce", "catch_up"] as const;

/**
 * What becomes of fires that no tick came for in time: `coalesce` enqueues the latest one, `catch_up` every one in its order. Before
 * the first job of a schedule, and after its expression was changed, both enqueue the latest one only.
 */
export type MissedFires = (typeof MISSED_FIRES)[number];

/** How a periodic job is timed. */
export interface PeriodicOptions {
  /** An IANA zone, in whose local time the expression is. Default "UTC". */
  readonly timezone?: string;
  /** Default "coalesce". */
  readonly missedFires?: MissedFires;
}

/** A periodic job of this build. */
export interface RegisteredSchedule {
  readonly name: string;
  readonly expression: string;
  readonly timezone: string;
  readonly missedFires: MissedFires;
  readonly fires: CronExpression;
  /** What each fire enqueues. */
  readonly followUp: FollowUp;
  readonly queue: string;
}

/**
 * Checks a periodic job, with the very job that its fires will enqueue.
 *
 * @returns the schedule, or why it can't be registered
 */
export function checkPeriodic(
  kinds: Kinds,
  name: string,
  expression: string,
  followUp: FollowUp,
  { timezone = "UTC", missedFires = "coalesce" }: PeriodicOptions,
): Result<RegisteredSchedule, string> {
  const wrong = whyNoName(name, "its name") ?? whyNoName(timezone, "timezone");
  if (wrong !== null) return err(wrong);
  if (!MISSED_FIRES.includes(missedFires)) return err(`missedFires is none of ${MISSED_FIRES.join(", ")}`);
  const fires = parseCronExpression(expression, timezone);
  if (!fires.ok) return fires;
  if (followUp.options.runAt !== undefined) return err("runAt isn't possible: each fire decides the time");
  const job = jobOfFire(kinds, { name, followUp }, new Date(0));
  if (!job.ok) return err(`its job: ${job.error}`);
  const { queue } = job.value;
  return ok({ name, expression, timezone, missedFires, fires: fires.value, followUp, queue });
}

/**
 * The job of one fire. Its metadata says so: `cron_name`, `cron_fire_time` (ISO 8601) and, where an application asked for it,
 * `triggered_manually`.
 *
 * @param at decides the period of a unique key, so that every tick that comes to this fire makes the same job of it
 * @returns the insert, or why it can't be, without quoting any value
 */
export function jobOfFire(
  kinds: Kinds,
  { name, followUp }: Pick<RegisteredSchedule, "name" | "followUp">,
  at: Date,
  { triggeredManually = false } = {},
): Result<JobInsert, string> {
  const metadata = {
    ...followUp.options.metadata,
    cron_name: name,
    cron_fire_time: at.toISOString(),
    ...(triggeredManually && { triggered_manually: true }),
  };
  return checkJobInsert(kinds, { ...followUp, options: { ...followUp.options, metadata } }, at);
}
