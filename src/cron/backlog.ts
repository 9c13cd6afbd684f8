import { measureBacklog } from "../shared/db/statements/measure-backlog.ts";
import type { Task } from "./task.ts";

/** Reports what is still overdue after the others ran: the oldest of each kind. All should be null or zero. */
export const backlog: Task = {
  name: "backlog",
  async runOnce({ database, registry }) {
    const queues = registry.queues().map(({ queue }) => queue);
    const sources = registry.sources().map(({ name }) => name);
    const left = await database.query(measureBacklog(registry.kindsWithFollowUp("rescued"), queues, sources));
    return { counts: { ...left }, exhausted: false };
  },
};
