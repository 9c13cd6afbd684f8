import { DatabaseError } from "../shared/db/errors.ts";
import { takeDueDeliveries } from "../shared/db/statements/manage-deliveries.ts";
import type { DeliveryRow } from "../shared/delivery.ts";
import { nameOf } from "../shared/thrown.ts";
import { receiveAgain, receiveParked } from "../shared/use-cases/receive-again.ts";
import type { Receipt } from "../shared/use-cases/receive-delivery.ts";
import { tellOfMove } from "../shared/use-cases/tell-of-move.ts";
import { paged, type Task, type TickDeps } from "./task.ts";

/**
 * Tries deliveries again: those whose source's code or follow-up failed, with back-off, and parked ones whose callback was registered
 * without looking for them. One that fails unexpectedly is tried again soon, and its neighbours go through.
 *
 * The backlog, measured before, says whether there are any: an idle tick spends no statement on them.
 */
export const retryDeliveries: Task = {
  name: "retry_deliveries",
  async runOnce(deps, before) {
    const counts = { resolved: 0, failed: 0, settled: 0, unexpected: 0 };
    if (before.backlog?.dueDeliveries === 0) return { counts, exhausted: false };
    const sources = deps.registry.sources().map(({ name }) => name);
    const exhausted = await paged(deps, async () => {
      const { deliveries, more } = await deps.database.query(takeDueDeliveries(sources));
      for (const delivery of deliveries) {
        const status = await tryAgain(deps, delivery);
        if (status === "moved" || status === "extended") counts.resolved++;
        else if (status === "failed") counts.failed++;
        else if (status === "unexpected") counts.unexpected++;
        else counts.settled++;
      }
      return more;
    });
    return { counts, exhausted };
  },
};

async function tryAgain(deps: TickDeps, delivery: DeliveryRow): Promise<Receipt["status"] | "unexpected"> {
  const { database, registry, log } = deps;
  const { source, state, attempts } = delivery;
  try {
    const receive = state === "parked" ? receiveParked : receiveAgain;
    const receipt = await receive(database, registry, delivery);
    const line = { event: "delivery_retried", source, delivery: receipt.status, attempt: attempts } as const;
    if (receipt.status === "failed") log({ ...line, level: "warn", reason: receipt.reason });
    else
      log({
        ...line,
        level: "info",
        ...("jobId" in receipt && { jobId: receipt.jobId, kind: receipt.kind }),
      });
    if (receipt.status === "moved") tellOfMove(deps, receipt, deps.defer);
    return receipt.status;
  } catch (thrown) {
    // An outage is the task's, and all of the rest waits. Anything else is this delivery's.
    const isOutage =
      thrown instanceof DatabaseError && (thrown.kind === "unavailable" || thrown.kind === "schema_mismatch");
    if (isOutage) throw thrown;
    const reason = nameOf(thrown);
    log({ level: "error", event: "delivery_retry_failed", source, attempt: attempts, reason });
    return "unexpected";
  }
}
