import type { JobRow } from "../job.ts";
import type { Outcome, OutcomeContext } from "../outcome.ts";
import { err, ok, type Result } from "../result.ts";
import { nameOf, textOf } from "../thrown.ts";
import type { JobEvent, RegistryView } from "./define.ts";
import { FOLLOW_UP, type FollowUp } from "./follow-up.ts";
import { decodeArgs, examineJobInsert, type Fault, type JobInsert } from "./job-insert.ts";

/** An outcome with its job as it is right after it. */
export type Ended<O extends Outcome = Outcome> = {
  [P in O]: { readonly outcome: P; readonly job: JobRow; readonly context: OutcomeContext[P] };
}[O];

/**
 * Why the follow-ups of a transition can't be planned; nothing of it is written. Its reason names the follow-up and the fault; its detail is
 * what the closure threw, or which fields don't fit.
 */
export type PlanFailure = Fault;

/**
 * Plans the follow-ups of an outcome: runs every closure of (kind, outcome) in the order of registration, given the args through
 * the kind's schema and the job as it will be. All succeed, or none counts. Pure: no I/O, no clock.
 *
 * Each closure gets copies of its own, so that one that writes to its arguments changes nothing for the next.
 *
 * @param now decides the period of unique keys
 * @returns the inserts in order of registration; empty where the build doesn't know the kind (`registry.knows` tells)
 */
export function planFollowUps(
  registry: RegistryView,
  { outcome, job, context }: Ended,
  now: Date,
): Result<readonly JobInsert[], PlanFailure> {
  const closures = registry.closures(job.kind, outcome);
  const schema = registry.kinds[job.kind];
  if (closures.length === 0 || schema === undefined) return ok([]);

  const inserts: JobInsert[] = [];
  for (const [i, closure] of closures.entries()) {
    const failure = (reason: string, detail: string | null = null) =>
      err({ reason: `follow-up ${i + 1} of ${job.kind}, ${outcome}: ${reason}`, detail });
    let followUp: unknown;
    try {
      const args = decodeArgs(schema, structuredClone(job.args));
      if (!args.ok) return failure(`the job itself: ${args.error.reason}`, args.error.detail);
      followUp = closure(args.value, structuredClone(job), structuredClone(context));
    } catch (thrown) {
      return failure(`threw ${nameOf(thrown)}`, textOf(thrown));
    }
    if (!isFollowUp(followUp)) return failure(`returned ${describe(followUp)} instead of enqueue(…)`);
    const insert = checkSafely(registry, followUp, now);
    if (!insert.ok) return failure(insert.error.reason, insert.error.detail);
    inserts.push(insert.value);
  }
  return ok(inserts);
}

/** Like examineJobInsert, for what came from a closure: a schema that throws is a plan failure as well. */
function checkSafely(registry: RegistryView, followUp: FollowUp, now: Date): Result<JobInsert, Fault> {
  try {
    return examineJobInsert(registry.kinds, followUp, now);
  } catch (thrown) {
    return err({ reason: `its check threw ${nameOf(thrown)}`, detail: textOf(thrown) });
  }
}

/**
 * Runs the hooks of a committed outcome, one after the other. Never rejects: a hook that throws is reported and the next one
 * runs; where the args don't fit the schema no hook runs, as a hook is promised typed args.
 *
 * @param report is told of each hook that failed, with the name of what was thrown
 * @param durationMs how long the handler ran, in milliseconds; 0 where something else completed the job
 */
export function runHooks(
  registry: RegistryView,
  { outcome, job, context }: Ended,
  report: (fault: string) => void,
  durationMs = 0,
): Promise<void> {
  const duration = outcome === "completed" ? { durationMs } : {};
  return runEach(registry, { ...context, ...duration, type: outcome, job }, report);
}

/** Runs the hooks of an attempt that starts, as {@link runHooks} does. */
export function runStartedHooks(
  registry: RegistryView,
  job: JobRow<"running">,
  report: (fault: string) => void,
): Promise<void> {
  return runEach(registry, { type: "started", job }, report);
}

async function runEach(
  registry: RegistryView,
  event: { readonly type: JobEvent["type"]; readonly job: JobRow },
  report: (fault: string) => void,
): Promise<void> {
  const { job } = event;
  const schema = registry.kinds[job.kind];
  if (schema === undefined) return;
  for (const [i, hook] of registry.hooks(job.kind).entries()) {
    try {
      const args = decodeArgs(schema, structuredClone(job.args));
      if (!args.ok) return report(args.error.reason);
      await hook({ ...event, args: args.value } as JobEvent);
    } catch (thrown) {
      report(`hook ${i + 1} of ${job.kind} threw ${nameOf(thrown)}`);
    }
  }
}

function isFollowUp(value: unknown): value is FollowUp {
  return typeof value === "object" && value !== null && FOLLOW_UP in value;
}

function describe(value: unknown): string {
  if (value === null || value === undefined) return String(value);
  return value instanceof Promise ? "a promise" : `something of type ${typeof value}`;
}
