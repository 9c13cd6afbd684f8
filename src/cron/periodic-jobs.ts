import { DatabaseError } from "../shared/db/errors.ts";
import {
  type Advance,
  advanceIfUnmoved,
  defineIfChanged,
  type ScheduleReading,
} from "../shared/db/statements/schedules.ts";
import { jobOfFire, type RegisteredSchedule } from "../shared/registry/periodic.ts";
import { nameOf } from "../shared/thrown.ts";
import { type DueFires, dueFires, MAX_FIRES } from "./fires.ts";
import { paged, type Task, type TickDeps } from "./task.ts";

/**
 * Enqueues the jobs of the schedules whose fires are overdue: each fire once, however many ticks overlap, come late or never come. What
 * a tick that died has committed, the next one finds done.
 *
 * Takes no statement where the build has no schedules, one where nothing is due, two where something is; more where Postgres refuses
 * something, or thousands are caught up with. A schedule whose job can't be enqueued stays where it is and is tried by each tick.
 */
export const enqueuePeriodicJobs: Task = {
  name: "enqueue_periodic_jobs",
  async runOnce(deps) {
    const schedules = deps.registry.schedules();
    const counts = {
      schedules: schedules.length,
      enqueued: 0,
      deduplicated: 0,
      passedOver: 0,
      stale: 0,
      failed: 0,
    };
    if (schedules.length === 0) return { counts, exhausted: false };

    const readings = new Map(
      (await deps.database.query(defineIfChanged(schedules))).map((reading) => [reading.name, reading]),
    );
    const left = [...schedules];
    let isBehind = false;
    const outOfBudget = await paged(deps, async () => {
      const page: Planned[] = [];
      for (let jobs = 0; jobs < MAX_FIRES; ) {
        const schedule = left.shift();
        if (schedule === undefined) break;
        const planned = plan(deps, schedule, readings.get(schedule.name), counts);
        if (planned === null) continue;
        page.push(planned);
        jobs += planned.advance.jobs.length;
        isBehind ||= planned.more;
      }
      if (page.length > 0) await advance(deps, page, counts);
      return left.length > 0;
    });
    return { counts, exhausted: outOfBudget || isBehind };
  },
};

type Counts = { enqueued: number; deduplicated: number; passedOver: number; stale: number; failed: number };

/** A schedule that is due, with what its next statement takes. */
interface Planned extends Omit<DueFires, "due"> {
  readonly schedule: RegisteredSchedule;
  readonly advance: Advance;
}

/** `null` where nothing is due, or where the schedule failed, which harms no other. */
function plan(
  deps: TickDeps,
  schedule: RegisteredSchedule,
  reading: ScheduleReading | undefined,
  counts: Counts,
): Planned | null {
  if (reading === undefined || reading.isPaused) return null;
  try {
    const { due, ...rest } = dueFires(schedule, reading);
    const newestFire = due.at(-1);
    if (newestFire === undefined) return null;
    const jobs = [];
    for (const fire of due) {
      const job = jobOfFire(deps.registry.kinds, schedule, fire);
      if (!job.ok) return fail(deps, schedule, job.error, counts);
      jobs.push(job.value);
    }
    const { name } = schedule;
    return { schedule, advance: { name, lastFireAt: reading.lastFireAt, newestFire, jobs }, ...rest };
  } catch (thrown) {
    // Its schema, or a zone that this runtime doesn't know any more.
    return fail(deps, schedule, `threw ${nameOf(thrown)}`, counts);
  }
}

async function advance(deps: TickDeps, page: readonly Planned[], counts: Counts): Promise<void> {
  try {
    const done = await deps.database.query(advanceIfUnmoved(page.map((planned) => planned.advance)));
    const advanced = new Set(done.advanced);
    let jobs = 0;
    for (const { schedule, advance: planned, passedOver } of page) {
      if (!advanced.has(schedule.name)) {
        counts.stale++;
        continue;
      }
      jobs += planned.jobs.length;
      counts.passedOver += passedOver;
    }
    counts.enqueued += done.enqueued;
    counts.deduplicated += jobs - done.enqueued;
  } catch (error) {
    // Postgres refused some job and with it the whole statement. Halve, until its schedule stands alone.
    if (!(error instanceof DatabaseError) || (error.kind !== "rejected" && error.kind !== "unique_violation"))
      throw error;
    const [only, second] = page;
    if (only !== undefined && second === undefined) {
      fail(deps, only.schedule, error.message, counts);
      return;
    }
    const half = Math.ceil(page.length / 2);
    await advance(deps, page.slice(0, half), counts);
    await advance(deps, page.slice(half), counts);
  }
}

function fail(
  { log }: TickDeps,
  { name, followUp }: RegisteredSchedule,
  reason: string,
  counts: Counts,
): null {
  counts.failed++;
  log({ level: "error", event: "periodic_job_failed", schedule: name, kind: followUp.kind, reason });
  return null;
}
