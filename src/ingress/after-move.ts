import { runHooks } from "../shared/registry/plan.ts";
import type { Moved } from "../shared/use-cases/resolve-callback.ts";
import type { IngressContext, IngressDeps } from "./context.ts";

/** What follows a committed move: the request's log line, the hooks, and running what became due. None of it can undo the move. */
export function afterMove({ registry, log, nudge }: IngressDeps, c: IngressContext, moved: Moved): void {
  const { jobId, kind, ended, followUps, deduplicated, dueIn, knownKind } = moved;
  const followUpIds = followUps.map((followUp) => followUp.id);
  c.set("entry", {
    ...c.get("entry"),
    jobId,
    kind,
    outcome: ended?.outcome ?? null,
    followUpIds,
    deduplicated,
  });
  if (!knownKind) {
    const reason = "this build's registry doesn't know the kind: the job moved without follow-ups";
    log({ level: "warn", event: "registry_drift", jobId, kind, reason });
  }
  if (ended !== null && registry.hooks(kind).length > 0) {
    const report = (reason: string) => log({ level: "warn", event: "hook_failed", jobId, kind, reason });
    c.executionCtx.waitUntil(runHooks(registry, ended, report));
  }
  // The jobs that became due: follow-ups, and the job itself where it goes on.
  if (nudge !== undefined && dueIn.length > 0) {
    c.executionCtx.waitUntil(nudge(dueIn, (work) => c.executionCtx.waitUntil(work)));
  }
}
