import { DatabaseError } from "../shared/db/errors.ts";
import {
  type Dispatch,
  dispatchIfDue,
  type RescueFollowUp,
  readDueRescueFollowUps,
} from "../shared/db/statements/rescue-follow-ups.ts";
import { keptText } from "../shared/json.ts";
import { inFull } from "../shared/registry/job-insert.ts";
import { planFollowUps } from "../shared/registry/plan.ts";
import { paged, type Task, type TickDeps } from "./task.ts";

/**
 * Enqueues the follow-ups of rescues from the outbox: best-effort for each of them, and lossless over time. What a tick that died
 * left behind, the next one finds.
 *
 * A row whose closure throws, or whose follow-up Postgres refuses, is put off with back-off and abandoned in the end; its
 * neighbours go through.
 */
export const dispatchRescueFollowUps: Task = {
  name: "dispatch_rescue_follow_ups",
  async runOnce(deps) {
    const counts = { dispatched: 0, followUps: 0, failed: 0, abandoned: 0 };
    const kinds = deps.registry.kindsWithFollowUp("rescued");
    const exhausted = await paged(deps, async () => {
      const { rows, more } = await deps.database.query(readDueRescueFollowUps(kinds));
      if (rows.length > 0)
        await dispatch(
          deps,
          rows.map((row) => plan(deps, row)),
          counts,
        );
      return more;
    });
    return { counts, exhausted };
  },
};

type Counts = { dispatched: number; followUps: number; failed: number; abandoned: number };

function plan({ registry }: TickDeps, row: RescueFollowUp): Dispatch {
  // The time of the rescue decides the period of a unique key, so that a later try plans the same follow-up.
  const now = row.job.finalizedAt ?? row.job.createdAt;
  const planned = planFollowUps(
    registry,
    { outcome: "rescued", job: row.job, context: { reason: row.reason } },
    now,
  );
  if (planned.ok) return { row, followUps: planned.value, failure: null };
  return { row, followUps: null, failure: keptText(inFull(planned.error)) };
}

async function dispatch(deps: TickDeps, dispatches: readonly Dispatch[], counts: Counts): Promise<void> {
  try {
    const done = await deps.database.query(dispatchIfDue(dispatches));
    counts.dispatched += done.dispatched.length;
    counts.followUps += done.followUps.length;
    counts.failed += done.failed.length;
    for (const { abandoned, rescueId } of done.failed) {
      if (abandoned) counts.abandoned++;
      const failed = dispatches.find(({ row }) => row.id === rescueId);
      deps.log({
        level: abandoned ? "error" : "warn",
        event: abandoned ? "rescue_follow_up_abandoned" : "rescue_follow_up_failed",
        jobId: failed?.row.job.id,
        kind: failed?.row.job.kind,
        outcome: "rescued",
      });
    }
  } catch (error) {
    // Postgres refused some follow-up and with it the whole statement. Halve, until it stands alone.
    if (!(error instanceof DatabaseError) || (error.kind !== "rejected" && error.kind !== "unique_violation"))
      throw error;
    const [only, second] = dispatches;
    if (only !== undefined && second === undefined) {
      if (only.failure !== null) throw error;
      return dispatch(deps, [{ row: only.row, followUps: null, failure: error.message }], counts);
    }
    const half = Math.ceil(dispatches.length / 2);
    await dispatch(deps, dispatches.slice(0, half), counts);
    await dispatch(deps, dispatches.slice(half), counts);
  }
}
