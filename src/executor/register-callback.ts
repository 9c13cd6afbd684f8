import { type NewCallback, registerIfRunning } from "../shared/db/statements/attempt-callbacks.ts";
import { NOTHING_EARLY } from "../shared/db/statements/early-deliveries.ts";
import { ok } from "../shared/result.ts";
import { registerWithEarly } from "../shared/use-cases/early-deliveries.ts";
import { tellOfMove } from "../shared/use-cases/tell-of-move.ts";
import type { Attempt } from "./attempt.ts";
import type { ExecutorDeps } from "./deps.ts";

/**
 * Registers a callback for an attempt, and consumes what came early for its correlation key.
 *
 * @returns whether the attempt still had its job
 * @throws Error where another callback waits for the correlation key
 */
export async function registerCallback(
  deps: ExecutorDeps,
  attempt: Attempt,
  callback: NewCallback,
): Promise<boolean> {
  const { database, registry, log, defer } = deps;
  const { job, keepsDeadLetters, progress } = attempt;
  const guard = { jobId: job.id, runLease: job.runLease };
  const { source, correlationKey } = callback;
  if (source === null || correlationKey === null) {
    return (await database.query(registerIfRunning(guard, callback, NOTHING_EARLY))) === "registered";
  }
  const about = { job: { ...job, progress, callbackId: callback.id }, keepsDeadLetters };
  const registered = await registerWithEarly(
    database,
    registry,
    { ...callback, source, correlationKey },
    async () => ok({ statement: (look) => registerIfRunning(guard, callback, look), about }),
    (result) => result === "early",
  );
  if (!registered.ok) throw new Error(registered.error);
  const { result, moved } = registered.value;
  if (moved !== null) {
    const { jobId, kind, state, ended, followUps, deduplicated } = moved;
    const line = {
      level: "info",
      event: "early_delivery",
      jobId,
      kind,
      state,
      source,
      deduplicated,
    } as const;
    log({ ...line, outcome: ended?.outcome ?? null, followUpIds: followUps.map(({ id }) => id) });
    tellOfMove({ registry, log }, moved, defer);
  }
  return result === "registered";
}
