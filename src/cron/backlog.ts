import { measureBacklog } from "../shared/db/statements/measure-backlog.ts";
import type { Task } from "./task.ts";

/**
 * Reports what is still overdue after the tasks before it ran: the oldest of each kind. Deliveries and jobs are counted before this tick
 * gets to them, so of theirs only what stays, tick after tick, is left behind.
 */
export const backlog: Task = {
  name: "backlog",
  async runOnce({ database, registry }) {
    const queues = registry.queues().map(({ queue }) => queue);
    const sources = registry.sources().map(({ name }) => name);
    const left = await database.query(measureBacklog(registry.kindsWithFollowUp("rescued"), queues, sources));
    return { counts: { ...left }, exhausted: false };
  },
};
