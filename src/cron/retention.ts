import { deleteIfKeptLongEnough, RETENTION_PAGE_ROWS } from "../shared/db/statements/delete-ended.ts";
import { paged, type Task } from "./task.ts";

/** Deletes ended jobs, abandoned rescue follow-ups and deliveries that have been kept for their time. */
export const retention: Task = {
  name: "retention",
  async runOnce(deps) {
    const counts = {
      completed: 0,
      failedOrCancelled: 0,
      deadLetters: 0,
      abandonedFollowUps: 0,
      doneDeliveries: 0,
      parkedDeliveries: 0,
      lateOrFailedDeliveries: 0,
    };
    const exhausted = await paged(deps, async () => {
      const deleted = await deps.database.query(deleteIfKeptLongEnough(deps.retention));
      counts.completed += deleted.completed;
      counts.failedOrCancelled += deleted.failedOrCancelled;
      counts.deadLetters += deleted.deadLetters;
      counts.abandonedFollowUps += deleted.abandonedFollowUps;
      counts.doneDeliveries += deleted.doneDeliveries;
      counts.parkedDeliveries += deleted.parkedDeliveries;
      counts.lateOrFailedDeliveries += deleted.lateOrFailedDeliveries;
      return Object.values(deleted).some((rows) => rows >= RETENTION_PAGE_ROWS);
    });
    return { counts, exhausted };
  },
};
