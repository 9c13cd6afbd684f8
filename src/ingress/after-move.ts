import type { Moved } from "../shared/use-cases/resolve-callback.ts";
import { tellOfMove } from "../shared/use-cases/tell-of-move.ts";
import type { IngressContext, IngressDeps } from "./context.ts";

/** What follows a committed move: the request's log line, the hooks, and running what became due. None of it can undo the move. */
export function afterMove(deps: IngressDeps, c: IngressContext, moved: Moved): void {
  const { nudge } = deps;
  const { jobId, kind, ended, followUps, deduplicated, dueIn } = moved;
  const followUpIds = followUps.map((followUp) => followUp.id);
  c.set("entry", {
    ...c.get("entry"),
    jobId,
    kind,
    outcome: ended?.outcome ?? null,
    followUpIds,
    deduplicated,
  });
  tellOfMove(deps, moved, (work) => c.executionCtx.waitUntil(work));
  // The jobs that became due: follow-ups, and the job itself where it goes on.
  if (nudge !== undefined && dueIn.length > 0) {
    c.executionCtx.waitUntil(nudge(dueIn, (work) => c.executionCtx.waitUntil(work)));
  }
}
