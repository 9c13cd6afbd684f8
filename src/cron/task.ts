import type { ExecutorDeps } from "../executor/deps.ts";
import type { Retention } from "../shared/db/statements/delete-ended.ts";

/** What the tasks of a tick work with: what running jobs takes, and the budgets. */
export interface TickDeps extends ExecutorDeps {
  readonly retention: Retention;
  /** When the tick's time is spent, on that clock. A task begins no further page after it. */
  readonly deadlineMs: number;
}

/** What a task reports: numbers for one log line. `exhausted`: the budget was spent and work may be left for the next tick. */
export interface TaskReport {
  readonly counts: Readonly<Record<string, number | null>>;
  readonly exhausted: boolean;
}

/** The counts of the tasks that ran before in the same tick, by name; absent where one failed, or didn't run. */
export type CountsBefore = Readonly<Partial<Record<string, TaskReport["counts"]>>>;

/** One job of the tick. Runs once and reports; what it throws ends this task only. */
export interface Task {
  readonly name: string;
  readonly runOnce: (deps: TickDeps, before: CountsBefore) => Promise<TaskReport>;
}

/** Pages that one task takes in one tick at the most. */
const MAX_PAGES = 10;

/**
 * Runs pages until one comes back short, the budget of pages is spent, or the tick's time is.
 *
 * @param page runs one page and says whether there may be more
 * @returns whether work may be left
 */
export async function paged(deps: TickDeps, page: () => Promise<boolean>): Promise<boolean> {
  for (let pages = 0; pages < MAX_PAGES; pages++) {
    if (pages > 0 && deps.clock() >= deps.deadlineMs) return true;
    if (!(await page())) return false;
  }
  return true;
}
