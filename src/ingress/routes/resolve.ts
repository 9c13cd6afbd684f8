import { unreachable } from "../../shared/result.ts";
import type { CallbackAction } from "../../shared/transitions.ts";
import { type Resolution, resolveCallback } from "../../shared/use-cases/resolve-callback.ts";
import { afterMove } from "../after-move.ts";
import { type IngressContext, type IngressDeps, refuse, refuseNotPending } from "../context.ts";
import { stateOnTheWire } from "../wire-states.ts";

/** The common end of complete, fail and retry: resolve, log, answer, and observe after the commit. */
export async function resolve(
  deps: IngressDeps,
  c: IngressContext,
  action: CallbackAction,
): Promise<Response> {
  const id = c.get("callbackId");
  const resolution = await resolveCallback(c.get("database"), deps.registry, id, action);
  note(c, action, resolution);
  switch (resolution.status) {
    case "moved":
      afterMove(deps, c, resolution);
      return c.json({ id: resolution.jobId, state: stateOnTheWire(resolution.state) });
    case "duplicate":
      return c.json({ id: resolution.jobId, state: stateOnTheWire(resolution.state), duplicate: true });
    case "not_found":
    case "already_resolved":
    case "gone":
      return refuseNotPending(c, resolution);
    case "still_running":
      return refuse(c, { type: "job_still_running" });
    case "follow_up_failed":
      return refuse(c, { type: "follow_up_failed" });
    default:
      return unreachable(resolution);
  }
}

/** Adds to the request's log line what became of the callback. */
function note(c: IngressContext, action: CallbackAction, resolution: Resolution): void {
  const entry = { ...c.get("entry"), action: action.type };
  c.set("entry", entry);
  if (resolution.status === "not_found") return;
  const { status, jobId, kind } = resolution;
  c.set("entry", {
    ...entry,
    jobId,
    kind,
    ...(status === "duplicate" && { duplicate: true }),
    ...(status === "follow_up_failed" && { reason: resolution.failure.reason }),
  });
}
