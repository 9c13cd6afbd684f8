// What docs/webhooks.md promises of deliveries: each counts once, an early one is consumed, a late one is kept.

import { addCallback, canFollow, enqueue, extend, follow, newJob, resolve } from "./job-rules.ts";
import {
  type Asked,
  type Attempt,
  type Callback,
  callbackOf,
  type Delivery,
  heldBy,
  holderOf,
  isTerminal,
  type Job,
  jobOf,
  type Model,
  type Told,
} from "./state.ts";

/** The callback that a delivery is for: the pending one, else the newest. */
export function targetOf(model: Model, { to }: Pick<Told, "to">): Callback | undefined {
  if ("callback" in to) return callbackOf(model, to.callback);
  const mine = model.callbacks.filter(({ key }) => key === to.key);
  return mine.find(({ state }) => state === "pending") ?? mine.at(-1);
}

/** The payload of a webhook; the application's own resolutions have another. */
const PAYLOAD = 2;

function becomes(
  delivery: Delivery,
  state: Delivery["state"],
  { job = null, again = null }: Partial<Pick<Delivery, "job" | "again">> = {},
): Delivery["state"] {
  Object.assign(delivery, { state, job, again, taken: null });
  return state;
}

/** Does what a delivery means, whether it came now or is tried again. @returns what its sender hears of it */
export function settle(model: Model, delivery: Delivery): string {
  const { does, to } = delivery;
  const callback = targetOf(model, delivery);
  if (does === "ignore") return becomes(delivery, "ignored");
  if (does === "heartbeat") {
    if (callback?.state !== "pending") return becomes(delivery, "ignored", { job: callback?.job ?? null });
    extend(model, callback.name);
    becomes(delivery, "resolved", { job: callback.job });
    return "extended";
  }
  const job = jobOf(model, callback?.job ?? null);
  if (callback === undefined || job === undefined) return becomes(delivery, "parked");
  if (callback.state !== "pending") {
    // A job that goes on may register the same key again.
    const isOver = "callback" in to || isTerminal(job);
    return isOver ? becomes(delivery, "late", { job: job.name }) : becomes(delivery, "parked");
  }
  const result = resolve(model, callback, actionOf(does, callback), PAYLOAD);
  switch (result) {
    case "still_running":
      // A retry is for a job that is parked: the tick looks again.
      return becomes(delivery, "parked", { again: "later" });
    case "follow_up_failed":
      return fails(delivery);
    default:
      becomes(delivery, "resolved", { job: job.name });
      return result;
  }
}

/**
 * What else may become of a delivery whose reader looked before others changed the world, and wrote after: what it would have come to
 * then, where that moves no job. It is never put away while its callback is there.
 */
export function settleLate(
  model: Model,
  told: Told,
): readonly ((model: Model, delivery: Delivery) => string)[] {
  const { does, to } = told;
  const jobs = new Set<string>();
  if ("key" in to) for (const { key, job } of model.bearers) if (key === to.key) jobs.add(job);
  if ("callback" in to && to.callback !== null) jobs.add(jobNameOf(to.callback));
  if (does === "ignore") return [];
  if (does === "heartbeat") {
    return [null, ...jobs].map((job) => (_, delivery) => becomes(delivery, "ignored", { job }));
  }
  const isThere = targetOf(model, told)?.state === "pending";
  const putAway = [
    (_: Model, delivery: Delivery) => becomes(delivery, "parked"),
    ...[...jobs].map((job) => (_: Model, delivery: Delivery) => becomes(delivery, "late", { job })),
  ];
  return [
    ...(isThere ? [] : putAway),
    (_, delivery) => becomes(delivery, "parked", { again: "later" }),
    ...(model.broken ? [(_: Model, delivery: Delivery) => fails(delivery)] : []),
  ];
}

const jobNameOf = (callback: string) => callback.slice(0, callback.indexOf("'"));

export function fails(delivery: Delivery): string {
  delivery.attempts++;
  return becomes(delivery, "failed", { again: delivery.attempts < 12 ? "later" : null });
}

const actionOf = (does: Exclude<Told["does"], "heartbeat" | "ignore">, { awaitedIn }: Callback) =>
  does !== "resolve" ? does : awaitedIn === null ? "complete" : "resume";

/** The delivery of that id, as it is recorded now, or as it is recorded for the first time. */
export function recorded(model: Model, told: Told): Delivery {
  const known = model.deliveries.find(({ id }) => id === told.id);
  if (known !== undefined) return known;
  const { id, does, to } = told;
  const delivery: Delivery = {
    ...{ id, does, to, place: Number.POSITIVE_INFINITY, dueSince: 0 },
    ...{ state: "parked", job: null, attempts: 0, again: null, taken: null, old: false },
  };
  model.deliveries.push(delivery);
  return delivery;
}

/** A webhook comes in. @param settles what becomes of it, where it counts */
export function receive(
  model: Model,
  told: Told,
  settles: (model: Model, delivery: Delivery) => string = settle,
): string {
  const known = model.deliveries.find(({ id }) => id === told.id);
  if (known !== undefined && known.state !== "failed") return "duplicate";
  const delivery = recorded(model, told);
  const answer = settles(model, delivery);
  delivery.attempts = Math.max(1, delivery.attempts);
  return answer;
}

/** An attempt registers a callback, and what came early for its key does its work. @param consumes whether that is so, or the tick's */
export function register(
  model: Model,
  attempt: Attempt,
  { label, key, isAwaited }: { label: string; key: string | null; isAwaited: boolean },
  consumes = true,
): string {
  const job = heldBy(model, attempt);
  if (job === undefined) return "stale";
  if (isTaken(model, key, job.name)) return "taken";
  const older = callbackOf(model, job.callback);
  if (older !== undefined) older.state = "superseded";
  const callback = addCallback(model, job, { label, key, awaitedIn: isAwaited ? attempt.number : null });
  consumeEarly(model, job, callback, consumes);
  return "registered";
}

/** An application parks a job. */
export function park(model: Model, asked: Asked, key: string | null, consumes = true): string {
  if (!canFollow(model, asked)) return "can't be planned";
  if (holderOf(model, asked) !== undefined) return enqueue(model, asked, false);
  if (isTaken(model, key, asked.name)) return "taken";
  const job = newJob(asked, { state: "waiting_external", due: false, attempt: 1, lease: 1 });
  model.jobs.push(job);
  const callback = addCallback(model, job, { label: "", key, awaitedIn: null });
  follow(model, job, "waiting_for_callback");
  consumeEarly(model, job, callback, consumes);
  return `parked ${asked.name}`;
}

function isTaken(model: Model, key: string | null, by: string): boolean {
  return model.callbacks.some(
    (other) => key !== null && other.key === key && other.state === "pending" && other.job !== by,
  );
}

function consumeEarly(model: Model, job: Job, callback: Callback, consumes: boolean): void {
  const early = model.deliveries
    .filter(({ state, to }) => state === "parked" && "key" in to && to.key === callback.key)
    .toSorted((a, b) => a.place - b.place);
  let isResolved = false;
  for (const [i, delivery] of early.entries()) {
    if (isResolved) {
      // A job that goes on may register the key again: then it is early still.
      if (isTerminal(job)) becomes(delivery, "late", { job: job.name });
      continue;
    }
    const { does } = delivery;
    const action = does === "heartbeat" || does === "ignore" ? null : actionOf(does, callback);
    const mustWait =
      (action === "retry" && job.state === "running") ||
      (action !== null && action !== "resume" && !canFollow(model, job));
    if (mustWait || !consumes) {
      // The tick does it. Nothing overtakes it.
      for (const left of early.slice(i)) left.again = "now";
      return;
    }
    if (action === null) {
      becomes(delivery, "ignored", { job: job.name });
      continue;
    }
    resolve(model, callback, action, PAYLOAD);
    becomes(delivery, "resolved", { job: job.name });
    isResolved = true;
  }
}
