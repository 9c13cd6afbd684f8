import { DatabaseError } from "../db/errors.ts";
import type { Database } from "../db/port.ts";
import { insertUnlessDuplicate } from "../db/statements/insert-job.ts";
import {
  pauseIfActive,
  readSchedules,
  resumeIfPaused,
  type ScheduleRow,
} from "../db/statements/manage-schedules.ts";
import type { JobId } from "../ids.ts";
import type { RegistryView } from "../registry/define.ts";
import { jobOfFire } from "../registry/periodic.ts";

/** A schedule, and whether this build has it: one that no build has any more stays, and never fires. */
export interface ListedSchedule extends ScheduleRow {
  readonly isRegistered: boolean;
}

/** What a pause came to. `not_found`: no tick has written such a schedule yet. */
export interface PauseResult {
  readonly status: "paused" | "already_paused" | "not_found";
}

/** What a resume came to. `not_found`: no tick has written such a schedule yet. */
export interface ResumeResult {
  readonly status: "resumed" | "not_paused" | "not_found";
}

/** What a trigger by hand came to. */
export type TriggerResult =
  /** `deduplicated`: a live job with the same unique key was there already, and `jobId` is that one. */
  | { readonly status: "triggered"; readonly jobId: JobId; readonly deduplicated: boolean }
  /** Not in this build, which alone could know its job. */
  | { readonly status: "not_registered" };

const MAX_ROUNDS = 5;

/**
 * What an operator does with periodic jobs. Each method rejects with a DatabaseError where the database failed.
 *
 * @param now the time of a trigger
 * @param nudge told of the queue in which a triggered job is due
 */
export function schedulesOf(
  database: Database,
  registry: RegistryView,
  { now, nudge }: { readonly now: () => Date; readonly nudge: (queues: readonly string[]) => void },
) {
  return {
    /** All schedules that a tick has ever written, by name. */
    async list(): Promise<readonly ListedSchedule[]> {
      const registered = new Set(registry.schedules().map(({ name }) => name));
      const rows = await database.query(readSchedules());
      return rows.map((row) => ({ ...row, isRegistered: registered.has(row.name) }));
    },

    /** Keeps a schedule from enqueueing, over deployments, until it is resumed. Jobs that are there already run. */
    async pause(name: string): Promise<PauseResult> {
      const { changed, found } = await database.query(pauseIfActive(name));
      if (changed) return { status: "paused" };
      return { status: found ? "already_paused" : "not_found" };
    },

    /** Lets a paused schedule go on with its next fire. Those of the pause are passed over, whatever `missedFires` says. */
    async resume(name: string): Promise<ResumeResult> {
      const { changed, found } = await database.query(resumeIfPaused(name));
      if (changed) return { status: "resumed" };
      return { status: found ? "not_paused" : "not_found" };
    },

    /**
     * Enqueues the job of a schedule now, paused or not, and before its first tick as well. Its fires go on as if nothing had been.
     *
     * @throws Error where the job can't be enqueued any more as it was registered
     */
    async trigger(name: string): Promise<TriggerResult> {
      const schedule = registry.schedules().find((candidate) => candidate.name === name);
      if (schedule === undefined) return { status: "not_registered" };
      const job = jobOfFire(registry.kinds, schedule, now(), { triggeredManually: true });
      if (!job.ok) throw new Error(`can't trigger ${name}: ${job.error}`);
      for (let round = 0; round < MAX_ROUNDS; round++) {
        const enqueued = await database.query(insertUnlessDuplicate(job.value));
        if (enqueued === null) continue; // whoever holds the key has only just come: a new statement sees it
        if (!enqueued.deduplicated) nudge([schedule.queue]);
        return { status: "triggered", ...enqueued };
      }
      throw new DatabaseError("contended", null);
    },
  };
}
