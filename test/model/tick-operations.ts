// What the tick does.

import { dispatchRescueFollowUps } from "../../src/cron/dispatch-rescue-follow-ups.ts";
import { rescueTask } from "../../src/cron/rescue.ts";
import { retention } from "../../src/cron/retention.ts";
import { retryDeliveries } from "../../src/cron/retry-deliveries.ts";
import type { Task } from "../../src/cron/task.ts";
import type { RescueReason } from "../../src/shared/outcome.ts";
import { recorded, settle, settleLate } from "./delivery-rules.ts";
import { dispatch, lost, rescue } from "./job-rules.ts";
import { type Change, each, type Operation, type Situation } from "./operation.ts";
import { remove } from "./outside-operations.ts";
import { cloneOf, type Delivery, isTerminal, jobOf, type Model } from "./state.ts";
import { isSame, viewOf } from "./view.ts";

function ticks(
  text: string,
  task: Task,
  changes: Operation["changes"],
  { isBroken = false, maxCommits = 1 }: { isBroken?: boolean; maxCommits?: number } = {},
): Operation {
  return {
    text,
    kind: text,
    isBroken,
    maxCommits,
    async run(world, database) {
      await world.tick(database, isBroken, task);
      return "done";
    },
    changes,
  };
}

export function rescues(reason: RescueReason): Operation {
  return ticks(`tick: rescue, ${reason}`, rescueTask("rescue", reason), (model, situation) => {
    const names = lost(model, reason).map(({ name }) => name);
    return each(names, situation, (next, name) => {
      const job = jobOf(next, name);
      if (job !== undefined) rescue(next, job, reason);
    });
  });
}

export function dispatches(isBroken: boolean): Operation {
  const changes = (model: Model, situation: Situation) => {
    const due = model.outbox.filter((row) => row.due && !row.abandoned);
    return each(due, situation, dispatch);
  };
  return ticks("tick: follow-ups of rescues", dispatchRescueFollowUps, changes, { isBroken });
}

/** The deliveries that are due are taken, and then tried again one after the other, the longest overdue first. */
export function triesDeliveriesAgain(isBroken: boolean): Operation {
  const changes = (model: Model, situation: Situation): readonly Change[] => {
    if (situation.commits === 0) return takesDeliveries(model, situation);
    const isLater = model.deliveries.filter(({ again }) => again === "later");
    if (!situation.isAlone)
      return [
        ...isLater.flatMap((told) => [settle, ...settleLate(model, told)].map((how) => tries(told, how))),
        () => "done",
      ];
    const next = isLater
      .filter(({ taken }) => taken !== null)
      .toSorted((a, b) => (a.taken ?? 0) - (b.taken ?? 0))
      .find((told) => changesSomething(model, tries(told, settle)));
    return [next === undefined ? () => "done" : tries(next, settle)];
  };
  return ticks("tick: deliveries again", retryDeliveries, changes, {
    isBroken,
    maxCommits: Number.POSITIVE_INFINITY,
  });
}

/** Those that are due are due again later, whatever becomes of this try. */
function takesDeliveries(model: Model, situation: Situation): readonly Change[] {
  const due = model.deliveries
    .filter(({ again }) => again === "now")
    .toSorted((a, b) => a.dueSince - b.dueSince || a.place - b.place);
  return each([...due.entries()], situation, (next, [taken, told]) => {
    Object.assign(recorded(next, told), { again: "later", taken });
  });
}

/** One is tried, and with it all that were taken before it have been. */
function tries(told: Delivery, settles: (model: Model, delivery: Delivery) => string): Change {
  return (next) => {
    for (const before of next.deliveries) {
      if (before.taken !== null && told.taken !== null && before.taken < told.taken) before.taken = null;
    }
    settles(next, recorded(next, told));
    return "done";
  };
}

function changesSomething(model: Model, change: Change): boolean {
  const after = cloneOf(model);
  change(after);
  return !isSame(viewOf(after), viewOf(model));
}

export function deletesTheOld(): Operation {
  return ticks("tick: retention", retention, (model, situation) => {
    const jobs = model.jobs.filter((job) => isTerminal(job) && job.old).map(({ name }) => ({ job: name }));
    const rows = model.outbox.filter(({ abandoned, old }) => abandoned && old).map((row) => ({ row }));
    const deliveries = model.deliveries
      .filter(({ state, again, old }) => old && (state !== "parked" || again === null))
      .map(({ id }) => ({ delivery: id }));
    return each([...jobs, ...rows, ...deliveries], situation, (next, gone) => {
      if ("job" in gone) remove(next, gone.job);
      else if ("delivery" in gone) next.deliveries = next.deliveries.filter(({ id }) => id !== gone.delivery);
      else
        next.outbox = next.outbox.filter(
          ({ job, lease }) => job !== gone.row.job || lease !== gone.row.lease,
        );
    });
  });
}
