// What must hold whatever the rules say: of each view, and of each pair of views with one call between them.

import type { JobState } from "../../src/shared/job.ts";
import type { View } from "./view.ts";

const LEGAL: Readonly<Record<JobState, readonly JobState[]>> = {
  scheduled: ["running", "cancelled"],
  available: ["running", "cancelled"],
  retryable: ["running", "cancelled"],
  running: ["waiting_external", "available", "scheduled", "retryable", "completed", "failed", "cancelled"],
  waiting_external: ["available", "retryable", "completed", "failed", "cancelled"],
  completed: [],
  failed: ["available"],
  cancelled: ["available"],
};

export function brokenLaws(before: View, after: View): string[] {
  const broken: string[] = [];
  const must = (holds: boolean, law: string) => {
    if (!holds) broken.push(`broken law: ${law}`);
  };
  for (const [name, job] of Object.entries(after.jobs)) {
    const was = before.jobs[name];
    const pending = Object.entries(after.callbacks).filter(
      ([, callback]) => callback.job === name && callback.state === "pending",
    );
    must(
      pending.length <= 1 && (pending[0]?.[0] ?? null) === job.callback,
      `${name} has the callback that is pending, and no other is`,
    );
    must(
      pending.every(([, { lease }]) => lease === job.lease),
      `the pending callback of ${name} is of its attempt`,
    );
    if (was === undefined) continue;
    must(
      was.state === job.state || LEGAL[was.state].includes(job.state),
      `${name} doesn't go from ${was.state} to ${job.state}`,
    );
    const isClaimed = was.state !== "running" && job.state === "running";
    must(job.lease === was.lease + (isClaimed ? 1 : 0), `${name} has one lease for each claim`);
    must(
      was.errors.every((error, i) => job.errors[i] === error),
      `${name} keeps its errors`,
    );
    must(job.errors.length <= was.errors.length + 1, `${name} has one error more at the most`);
  }
  const live = Object.values(after.jobs).filter(({ state }) => LEGAL[state].includes("cancelled"));
  const held = live.filter(({ isUnique }) => isUnique).map(({ kind, n }) => `${kind} ${n}`);
  must(new Set(held).size === held.length, "a unique key has one live job");
  const lines = live
    .filter(({ line, state }) => line !== null && (state === "running" || state === "waiting_external"))
    .map(({ line }) => line);
  must(new Set(lines).size === lines.length, "of a line one job is under way");
  const keys = Object.values(after.callbacks).flatMap(({ state, key }) =>
    state === "pending" ? (key ?? []) : [],
  );
  must(new Set(keys).size === keys.length, "a correlation key has one pending callback");
  for (const [id, { state, again, key }] of Object.entries(after.deliveries)) {
    const isForgotten = state === "parked" && again === null && key !== null && keys.includes(key);
    must(!isForgotten, `${id} isn't put away while its callback waits`);
  }
  for (const [name, callback] of Object.entries(after.callbacks)) {
    const was = before.callbacks[name];
    const isTold = was?.state === "expired" && callback.state === "superseded" && was.awaitedIn !== null;
    must(
      was === undefined || was.state === "pending" || was.state === callback.state || isTold,
      `${name} isn't resolved twice`,
    );
  }
  const finals = new Map<string, number>();
  for (const [followUp, count] of Object.entries(after.followUps)) {
    must(count >= (before.followUps[followUp] ?? 0), `${followUp} stays`);
    const [, outcome = "", attempt = ""] = /^after (\w+) of (.*)$/.exec(followUp) ?? [];
    // A job may be cancelled, started afresh by hand, and cancelled again, all under one lease.
    if (!["", "cancelled", "waiting_for_callback"].includes(outcome)) {
      finals.set(attempt, (finals.get(attempt) ?? 0) + count);
    }
    if (outcome === "waiting_for_callback") must(count === 1, `${followUp} once`);
  }
  for (const [attempt, count] of finals) must(count === 1, `${attempt} has one end, and not ${count}`);
  for (const [followUp, count] of Object.entries(before.followUps)) {
    must((after.followUps[followUp] ?? 0) >= count, `${followUp} stays`);
  }
  return broken;
}
