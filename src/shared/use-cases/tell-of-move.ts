import type { Log } from "../log.ts";
import type { RegistryView } from "../registry/define.ts";
import { runHooks } from "../registry/plan.ts";
import type { Moved } from "./resolve-callback.ts";

/** Tells of a committed move: the log, where the build doesn't know the kind, and the hooks. None of it can undo the move. */
export function tellOfMove(
  { registry, log }: { readonly registry: RegistryView; readonly log: Log },
  { jobId, kind, ended, knownKind }: Moved,
  defer: (work: Promise<void>) => void,
): void {
  const warn = (event: string, reason: string) => log({ level: "warn", event, jobId, kind, reason });
  if (!knownKind) {
    warn("registry_drift", "this build's registry doesn't know the kind: the job moved without follow-ups");
  }
  if (ended !== null && registry.hooks(kind).length > 0) {
    defer(runHooks(registry, ended, (reason) => warn("hook_failed", reason)));
  }
}
