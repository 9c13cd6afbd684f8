// What is promised of webhooks: each delivery once, an early one consumed, a late one kept.

import { canFollow, resolve } from "./job-rules.ts";
import { type Callback, type Delivery, isTerminal, jobOf, type Model } from "./state.ts";

/** The callback that a delivery is for: the pending one, else the newest. */
function targetOf(model: Model, { to }: Pick<Delivery, "to">): Callback | undefined {
  if ("callback" in to) return model.callbacks.find(({ id }) => id === to.callback);
  const mine = model.callbacks.filter(({ key }) => key === to.key);
  return mine.find(({ state }) => state === "pending") ?? mine.at(-1);
}

/** Does what a delivery means, whether it came now or is tried again. @returns what its sender hears of it */
export function settle(model: Model, delivery: Delivery): string {
  const become = (state: Delivery["state"], job: string | null = null) => {
    Object.assign(delivery, { state, job, dueAt: null });
  };
  const { does, to } = delivery;
  const callback = targetOf(model, delivery);
  const isPending = callback?.state === "pending";
  if (does === "ignore") {
    become("ignored");
    return "ignored";
  }
  if (does === "heartbeat") {
    become(isPending ? "resolved" : "ignored", callback?.job ?? null);
    if (callback !== undefined && isPending) callback.expired = false;
    return isPending ? "extended" : "ignored";
  }
  const job = jobOf(model, callback?.job ?? null);
  if (callback === undefined || job === undefined) {
    become("parked");
    return "parked";
  }
  if (!isPending) {
    const isOver = "callback" in to || isTerminal(job);
    become(isOver ? "late" : "parked", isOver ? job.id : null);
    return isOver ? "late" : "parked";
  }
  switch (resolve(model, callback, does, 2)) {
    case "moved":
      become("resolved", job.id);
      return "moved";
    case "still_running":
      // A retry is for a job that is parked: the tick looks again.
      become("parked");
      delivery.dueAt = Number.POSITIVE_INFINITY;
      return "parked";
    default:
      become("failed");
      delivery.attempts++;
      delivery.dueAt = Number.POSITIVE_INFINITY;
      return "failed";
  }
}

/** A webhook comes in. */
export function receive(model: Model, id: string): string {
  const told = model.told[id];
  if (told === undefined) throw new Error(`nobody knows what ${id} says`);
  const known = model.deliveries.find((delivery) => delivery.id === id);
  if (known !== undefined) return known.state === "failed" ? settle(model, known) : "duplicate";
  const delivery: Delivery = {
    ...told,
    id,
    state: "parked",
    job: null,
    attempts: 0,
    dueAt: null,
    old: false,
  };
  model.deliveries.push(delivery);
  const status = settle(model, delivery);
  delivery.attempts = 1;
  return status;
}

/** A callback is registered: what came early for its key does its work now. */
export function consumeEarly(model: Model, callback: Callback): void {
  const early = model.deliveries.filter(
    ({ state, to }) => state === "parked" && "key" in to && to.key === callback.key && callback.key !== null,
  );
  let resolved = false;
  for (const [i, delivery] of early.entries()) {
    const job = jobOf(model, callback.job);
    if (job === undefined) throw new Error("the model registered a callback without a job");
    const become = (state: Delivery["state"]) =>
      Object.assign(delivery, { state, job: callback.job, dueAt: null });
    if (resolved) {
      become("late");
      continue;
    }
    const { does } = delivery;
    if (does === "heartbeat" || does === "ignore") {
      become("ignored");
      continue;
    }
    const mustWait =
      (does === "retry" && job.state === "running") || (does !== "resume" && !canFollow(model, job));
    if (mustWait) {
      // The tick does it. Nothing overtakes it.
      model.clock++;
      for (const left of early.slice(i)) left.dueAt = model.clock;
      return;
    }
    resolve(model, callback, does, 2);
    become("resolved");
    resolved = true;
  }
}

/** The tick tries again what is due, in the order in which it became due. */
export function retryDue(model: Model): number {
  const due = model.deliveries
    .filter(({ dueAt }) => dueAt !== null && dueAt < Number.POSITIVE_INFINITY)
    .toSorted((a, b) => (a.dueAt ?? 0) - (b.dueAt ?? 0));
  for (const delivery of due) settle(model, delivery);
  return due.length;
}
