import type { ScheduleReading } from "../shared/db/statements/schedules.ts";
import type { RegisteredSchedule } from "../shared/registry/periodic.ts";

/** Fires of one schedule that one tick looks at, one by one, at the most. */
export const MAX_FIRES = 1000;

/** The fires of one schedule that are overdue. */
export interface DueFires {
  /** Those to enqueue, in order; the last is the newest, where the schedule goes on from. */
  readonly due: readonly Date[];
  /** How many older ones are passed over; counted up to {@link MAX_FIRES}. */
  readonly passedOver: number;
  /** More are overdue, for the next tick. */
  readonly more: boolean;
}

/**
 * The fires of a schedule since it last fired, up to the database's now. What is overdue decides, never the minute in which a tick
 * happens to come. Pure.
 */
export function dueFires(
  { fires, missedFires }: Pick<RegisteredSchedule, "fires" | "missedFires">,
  { lastFireAt, startsAfter, now }: Pick<ScheduleReading, "lastFireAt" | "startsAfter" | "now">,
): DueFires {
  const overdue: Date[] = [];
  let fire = fires.firstAfter(lastFireAt === null ? startsAfter : new Date(lastFireAt));
  while (fire !== null && fire <= now && overdue.length < MAX_FIRES) {
    overdue.push(fire);
    fire = fires.firstAfter(fire);
  }
  const more = fire !== null && fire <= now;
  if (missedFires === "catch_up" && lastFireAt !== null) return { due: overdue, passedOver: 0, more };

  const newest = more ? fires.lastUpTo(now) : (overdue.at(-1) ?? null);
  if (newest === null) return { due: [], passedOver: 0, more: false };
  return { due: [newest], passedOver: more ? MAX_FIRES : overdue.length - 1, more: false };
}
