import { DatabaseError } from "../shared/db/errors.ts";
import {
  RESCUE_PAGE_ROWS,
  type Rescued,
  type RescuePage,
  rescueIfLost,
} from "../shared/db/statements/rescue-jobs.ts";
import type { RescueReason } from "../shared/outcome.ts";
import { type Ended, runHooks } from "../shared/registry/plan.ts";
import { paged, type Task, type TickDeps } from "./task.ts";

/** Jobs that get a line of their own in one task: the platform cuts an invocation's log off, and the counts come last. */
const MAX_LINES = 100;
/** A page that a constraint refused is tried again: its new snapshot sees the row it ran into. */
const MAX_TRIES = 3;

/**
 * A rescue sweep: ends the attempts that are lost for this reason, page by page. The follow-ups come later, from the outbox
 * that the sweep's own statement writes, so that no follow-up can hold up a rescue.
 */
export function rescueTask(name: string, reason: RescueReason): Task {
  return {
    name,
    async runOnce(deps) {
      const counts = { rescued: 0, retryable: 0, failed: 0, duplicates: 0, waitsTimedOut: 0 };
      const exhausted = await paged(deps, async () => {
        const { picked, rescued } = await sweepPage(deps, reason);
        for (const job of rescued) {
          if (job.state === "available") {
            counts.waitsTimedOut++;
            continue;
          }
          counts.rescued++;
          if (job.state === "retryable") counts.retryable++;
          if (job.state === "failed") counts.failed++;
          if (job.state === "cancelled") counts.duplicates++;
          if (counts.rescued <= MAX_LINES) note(deps, reason, job);
        }
        deps.defer(observe(deps, reason, rescued));
        return picked >= RESCUE_PAGE_ROWS;
      });
      return { counts, exhausted };
    },
  };
}

async function sweepPage({ database, registry }: TickDeps, reason: RescueReason): Promise<RescuePage> {
  const statement = rescueIfLost(reason, registry.kindsWithFollowUp("rescued"), registry.kindsWithHook());
  for (let tries = 1; ; tries++) {
    try {
      return await database.query(statement);
    } catch (error) {
      const again =
        error instanceof DatabaseError && (error.kind === "unique_violation" || error.kind === "contended");
      if (!again || tries >= MAX_TRIES) throw error;
    }
  }
}

function note({ registry, log }: TickDeps, reason: RescueReason, job: Rescued): void {
  const { jobId, kind, callbackId } = job;
  const outcome = job.state === "cancelled" ? "cancelled" : "rescued";
  log({ level: "warn", event: "rescue", jobId, kind, callbackId: callbackId ?? undefined, outcome, reason });
  if (!registry.knows(kind)) {
    const drift = "this build's registry doesn't know the kind: the job was rescued without follow-ups";
    log({ level: "warn", event: "registry_drift", jobId, kind, reason: drift });
  }
}

/** Hooks of what was rescued; a duplicate is cancelled instead, and its hook says so. */
async function observe(deps: TickDeps, reason: RescueReason, rescued: readonly Rescued[]): Promise<void> {
  const { registry, log } = deps;
  for (const { jobId, kind, state, job } of rescued) {
    if (state === "available" || registry.hooks(kind).length === 0) continue;
    const report = (fault: string) =>
      log({ level: "warn", event: "hook_failed", jobId, kind, reason: fault });
    if (job === null) {
      report("too many large jobs were rescued at once: the hook of this one was left out");
      continue;
    }
    const ended: Ended =
      state === "cancelled"
        ? { outcome: "cancelled", job, context: { reason: job.errors.at(-1)?.error ?? "" } }
        : { outcome: "rescued", job, context: { reason } };
    await runHooks(registry, ended, report);
  }
}
