// What applications, operators and the outside world do.

import { deliver } from "../support/deliver.ts";
import { isTaken, waitOf } from "./actor.ts";
import { park, receive, recorded, settle, settleLate } from "./delivery-rules.ts";
import { cancelByHand, canFollow, enqueue, extend, resolve, retryByHand, startAfresh } from "./job-rules.ts";
import { type Change, each, type Operation, refusal, type Situation } from "./operation.ts";
import { QUEUE } from "./registry.ts";
import {
  type Action,
  type Asked,
  callbackOf,
  type Delivery,
  holderOf,
  isQueued,
  type Job,
  jobOf,
  type Model,
  type Told,
} from "./state.ts";

/** A callback that was never there. */
const NO_CALLBACK = "00000000-0000-4000-8000-000000000000";
const DAY_MS = 86_400_000;

const describe = ({ name, kind, n, maxAttempts, isUnique, line, hasDeadline }: Asked) =>
  `${name}: ${kind}, n ${n}, ${maxAttempts} attempt(s)${isUnique ? ", unique" : ""}` +
  `${line === null ? "" : `, line ${line}`}${hasDeadline ? ", with a deadline" : ""}`;

const optionsOf = ({ name, maxAttempts, isUnique, line, hasDeadline }: Asked) => ({
  queue: QUEUE,
  maxAttempts,
  unique: isUnique,
  metadata: { name },
  ...(line !== null && { orderingKey: line }),
  ...(hasDeadline && { deadlineSeconds: 3600 }),
});

export function enqueues(asked: Asked, isLater: boolean): Operation {
  return {
    kind: "enqueue",
    text: `enqueue ${describe(asked)}${isLater ? ", for later" : ""}`,
    async run(world, database) {
      const options = { ...optionsOf(asked), ...(isLater && { runAt: new Date(Date.now() + DAY_MS) }) };
      const { kind, n } = asked;
      const { jobId, deduplicated } = await world.client(database, false).enqueue(kind, { n }, options);
      return deduplicated ? `deduplicated by #${jobId}` : `enqueued ${asked.name}`;
    },
    changes: () => [(model) => enqueue(model, asked, isLater)],
  };
}

export function parks(given: Asked, key: string | null, isBroken: boolean): Operation {
  // A parked job is under way at once: it has no place in a line.
  const asked = { ...given, line: null };
  return {
    kind: "park",
    text: `park ${describe(asked)}${key === null ? "" : `, for key ${key}`}`,
    isBroken,
    async run(world, database) {
      const { kind, n } = asked;
      try {
        const options = { ...optionsOf(asked), ...waitOf(key) };
        const { jobId, deduplicated } = await world.client(database, isBroken).park(kind, { n }, options);
        return deduplicated ? `deduplicated by #${jobId}` : `parked ${asked.name}`;
      } catch (thrown) {
        if (isTaken(thrown)) return "taken";
        if (thrown instanceof Error && thrown.message.includes("follow-up")) return "can't be planned";
        throw thrown;
      }
    },
    changes: (_, { isAlone }) =>
      (isAlone ? [true] : [true, false]).map((consumes) => (model) => park(model, asked, key, consumes)),
  };
}

export function resolves(callback: string, action: Action, isBroken: boolean): Operation {
  return {
    kind: `callback: ${action}`,
    text: `${action} ${callback}`,
    isBroken,
    async run(world, database) {
      const client = world.client(database, isBroken);
      const id = world.idOf(callback);
      const result = await (() => {
        switch (action) {
          case "complete":
            return client.completeCallback(id, { payload: 1 });
          case "resume":
            return client.completeCallback(id, { payload: 1, resume: true });
          case "fail":
            return client.failCallback(id, "declined");
          case "retry":
            return client.retryCallback(id);
        }
      })();
      if (result.status === "gone") return `gone: ${result.how}`;
      return "state" in result ? `${result.status}: ${result.state}` : result.status;
    },
    changes: () => [(model) => resolve(model, callbackOf(model, callback), action, 1)],
  };
}

export function putsOff(callback: string): Operation {
  return {
    kind: "put off",
    text: `put off the time-out of ${callback}`,
    async run(world, database) {
      const result = await world.client(database, false).heartbeatCallback(world.idOf(callback), 3600);
      return result.status === "gone" ? `gone: ${result.how}` : result.status;
    },
    changes: () => [(model) => extend(model, callback)],
  };
}

const nameOfTarget = ({ to }: Told) =>
  "key" in to ? `key ${to.key}` : (to.callback ?? "an unknown callback");

/** What becomes of a delivery that counts; where others are at it at the same time, also by what its reader saw of the world before. */
function settlings(
  model: Model,
  { isAlone }: Situation,
  told: Told,
): readonly ((model: Model, delivery: Delivery) => string)[] {
  return isAlone ? [settle] : [settle, ...settleLate(model, told)];
}

export function delivers(told: Told, isBroken: boolean): Operation {
  return {
    kind: `delivery: ${told.does}`,
    told,
    text: `delivery ${told.id}: ${told.does}, for ${nameOfTarget(told)}`,
    isBroken,
    async run(world, database) {
      const { id, does, to } = told;
      const target =
        "key" in to ? to : { callback: to.callback === null ? NO_CALLBACK : world.idOf(to.callback) };
      const receipt = await deliver(database, world.registry(isBroken), {
        deliveryId: id,
        told: { does, to: target },
      });
      return receipt.status === "moved" ? `moved: ${receipt.state}` : receipt.status;
    },
    changes: (model, situation) =>
      settlings(model, situation, told).map((settles) => (next) => receive(next, told, settles)),
  };
}

export function replays(told: Told, isBroken: boolean): Operation {
  return {
    kind: "replay",
    text: `replay ${told.id}`,
    isBroken,
    async run(world, database) {
      const replay = await world.client(database, isBroken).deliveries.replay("shop", told.id);
      return replay.status === "moved" ? `moved: ${replay.state}` : replay.status;
    },
    changes(model, situation) {
      const known = model.deliveries.find(({ id }) => id === told.id);
      // Somebody else may have taken it between its reading and its writing.
      const taken = situation.isAlone ? [] : [() => "duplicate"];
      if (known === undefined) return [() => "not_found", ...taken];
      if (known.state === "resolved") return [() => "already_resolved", ...taken];
      const settled = settlings(model, situation, told).map((settles): Change => {
        return (next) => settles(next, recorded(next, told));
      });
      return [...settled, ...taken];
    },
  };
}

export function cancels(job: string, isBroken: boolean): Operation {
  return {
    kind: "cancel",
    text: `cancel ${job}`,
    isBroken,
    async run(world, database) {
      return (await world.client(database, isBroken).cancel(world.idOf(job), { reason: "by hand" })).status;
    },
    changes: () => [(model) => cancelByHand(model, job)],
  };
}

export function drains(isBroken: boolean): Operation {
  return {
    kind: "drain",
    text: "drain the queue",
    isBroken,
    maxCommits: Number.POSITIVE_INFINITY,
    async run(world, database) {
      await world.client(database, isBroken).drain(QUEUE, { reason: "by hand" });
      return "done";
    },
    changes(model, { isAlone }) {
      const left = model.jobs
        .filter((job) => (isQueued(job) || job.state === "waiting_external") && canFollow(model, job))
        .toSorted((a, b) => a.place - b.place);
      const changes = left.map(({ name }): Change => {
        return (next) => {
          cancelByHand(next, name);
          return "done";
        };
      });
      if (isAlone && changes.length > 0) return changes.slice(0, 1);
      return [...changes, () => "done"];
    },
  };
}

export function retries(job: string): Operation {
  return {
    kind: "retry by hand",
    text: `retry ${job} by hand`,
    async run(world, database) {
      return world
        .client(database, false)
        .retry(world.idOf(job))
        .then(({ status }) => status, refusal);
    },
    changes: () => [(model) => retryByHand(model, job)],
  };
}

export function retriesDeadLetters(jobs: readonly string[]): Operation {
  return {
    kind: "retry dead letters",
    text: `retry the dead letters among ${jobs.join(", ")}`,
    async run(world, database) {
      const ids = jobs.map((job) => world.idOf(job));
      const { retried } = await world.client(database, false).deadLetters.retry({ ids });
      return `retried ${retried}`;
    },
    changes(model, situation) {
      const free = model.jobs
        .filter(({ name, deadLetter }) => deadLetter !== null && jobs.includes(name))
        .filter((job) => holderOf(model, job) === undefined)
        .toSorted((a, b) => a.place - b.place);
      // Of several with the same unique key the first is taken.
      const isBehind = (job: Job, i: number) => free.slice(0, i).some((other) => sharesKey(other, job));
      const names = free.filter((job, i) => !isBehind(job, i)).map(({ name }) => name);
      const change = (next: Model, name: string) => {
        const job = jobOf(next, name);
        if (job !== undefined) startAfresh(next, job);
      };
      return each(names, situation, change, (count) => `retried ${count}`);
    },
  };
}

const sharesKey = (a: Job, b: Job) => a.isUnique && b.isUnique && a.kind === b.kind && a.n === b.n;

export function purges(job: string): Operation {
  return {
    kind: "purge",
    text: `purge the dead letter ${job}`,
    async run(world, database) {
      const { purged } = await world.client(database, false).deadLetters.purge({ ids: [world.idOf(job)] });
      return `purged ${purged}`;
    },
    changes(model, situation) {
      const dead = model.jobs.filter(({ name, deadLetter }) => deadLetter !== null && name === job);
      const names = dead.map(({ name }) => name);
      return each(names, situation, remove, (count) => `purged ${count}`);
    },
  };
}

/** Deletes a job with its callbacks. */
export function remove(model: Model, job: string): void {
  model.jobs = model.jobs.filter(({ name }) => name !== job);
  model.callbacks = model.callbacks.filter((callback) => callback.job !== job);
}

export function pauses(paused: boolean): Operation {
  return {
    kind: "pause",
    text: paused ? "pause the queue" : "let the queue go on",
    async run(world, database) {
      await world.client(database, false).configureQueue(QUEUE, { paused });
      return "done";
    },
    changes: () => [
      (model) => {
        model.paused = paused;
        return "done";
      },
    ],
  };
}
