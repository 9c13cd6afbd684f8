// What a worker does: it claims, and its handlers call back and end.

import { isTaken, waitOf } from "./actor.ts";
import { type End, endAttempt, looksEnded, RESULTS } from "./attempt-rules.ts";
import { register } from "./delivery-rules.ts";
import { canFollow, claim, claimable, complete } from "./job-rules.ts";
import { type Change, type Operation, refusal, type Situation, subsets } from "./operation.ts";
import { type Attempt, attemptOf, callbackOf, heldBy, isQueued, type Job, type Model } from "./state.ts";

export function claims(most: number, isBroken: boolean): Operation {
  const told = (names: readonly string[]) => `claimed ${names.toSorted().join(", ") || "nothing"}`;
  return {
    text: `claim up to ${most}`,
    kind: "claim",
    isBroken,
    async run(world, database) {
      return told(await world.claim(database, isBroken, most).catch((thrown) => [refusal(thrown)]));
    },
    changes(model, { isAlone }) {
      // One who isn't alone may have looked before the queue was paused, or before another job came to stand ahead; and on a slow
      // machine a back-off of seconds is over before anybody holds it up.
      const isAble = (job: Job) => isQueued(job) && (job.due || job.state === "retryable");
      const able = isAlone ? claimable(model) : model.jobs.filter(isAble);
      const names = able.map(({ name }) => name);
      const count = Math.min(most, names.length);
      // Whoever comes at the same time may have the rows of some, or take a line first.
      const sizeFits = ({ length }: readonly string[]) => (isAlone ? length === count : length <= count);
      const changes = subsets(names)
        .filter(sizeFits)
        .map((some): Change => {
          return (next) => {
            const claimed = next.jobs.filter(({ name }) => some.includes(name));
            for (const job of claimed) claim(next, job);
            return told(claimed.map(({ name, lease }) => `${name}/${lease}`));
          };
        });
      return isAlone ? changes : [...changes, () => told(["unique_violation"]), () => told(["contended"])];
    },
  };
}

/** One call of a handler's: for real, and as the rule of it has it, or the several changes that may come of it. */
function call(
  { name, isBroken }: Attempt,
  text: string,
  parts: Pick<Operation, "run" | "maxCommits"> & {
    began?: (attempt: Attempt) => void;
    ended?: (attempt: Attempt, answer: string, model: Model, commits: number) => void;
  } & ({ rule: (model: Model, attempt: Attempt) => string } | Pick<Operation, "changes">),
): Operation {
  return {
    text: `${name}: ${text}`,
    kind: `handler: ${text.replace(/ \d| for key .*| for (payment|review).*/g, "")}`,
    attempt: name,
    isBroken,
    maxCommits: parts.maxCommits ?? 1,
    run: (world, database) => {
      world.actor(name).database = database;
      return parts.run(world, database);
    },
    changes:
      "changes" in parts ? parts.changes : () => [(model) => parts.rule(model, attemptOf(model, name))],
    began: (model) => parts.began?.(attemptOf(model, name)),
    ended: (model, answer, commits) => parts.ended?.(attemptOf(model, name), answer, model, commits),
  };
}

export function flushesProgress(attempt: Attempt, percent: number): Operation {
  return call(attempt, `progress ${percent}, written`, {
    run: (world) =>
      world.actor(attempt.name).call(async (context) => {
        context.setProgress({ percent });
        await context.flushProgress();
        return "written";
      }),
    rule: (model, mine) => {
      const job = heldBy(model, mine);
      if (job === undefined) return "stale";
      Object.assign(job, { progress: mine.progress, stale: false });
      return "written";
    },
    began: (mine) => Object.assign(mine, { progress: percent, isProgressNew: true }),
    ended: (mine, answer) => {
      mine.isProgressNew = answer === "stale";
    },
  });
}

export function setsProgress(attempt: Attempt, percent: number): Operation {
  return call(attempt, `progress ${percent}, not written`, {
    run: (world) =>
      world.actor(attempt.name).call(async (context) => {
        context.setProgress({ percent });
        return "set";
      }),
    rule: () => "set",
    began: (mine) => Object.assign(mine, { progress: percent, isProgressNew: true }),
  });
}

export function beats(attempt: Attempt): Operation {
  return call(attempt, "heartbeat", {
    run: (world) => world.actor(attempt.name).beat(),
    rule: (model, mine) => {
      const job = heldBy(model, mine);
      if (job === undefined) return "stale";
      job.stale = false;
      if (mine.isProgressNew) job.progress = mine.progress;
      return "alive";
    },
    // What was taken to be written isn't given back where the job is gone.
    ended: (mine) => {
      mine.isProgressNew = false;
    },
  });
}

/** Takes over which callback the attempt has registered. */
const nowHas = (mine: Attempt, model: Model) => {
  const isMine = ({ job, lease }: { job: string; lease: number }) => job === mine.job && lease === mine.lease;
  mine.callback = model.callbacks.findLast(isMine)?.name ?? null;
};

export function registers(attempt: Attempt, key: string | null): Operation {
  const given = { label: "", key, isAwaited: false };
  return call(attempt, `register a callback${key === null ? "" : ` for key ${key}`}`, {
    run: (world) =>
      world.actor(attempt.name).call((context) =>
        context.registerCallback(waitOf(key)).then(
          () => "registered",
          (thrown: unknown) => {
            if (isTaken(thrown)) return "taken";
            throw thrown;
          },
        ),
      ),
    changes: (_, situation) => registrations(attempt, given, situation),
    ended: (mine, answer, model) => {
      if (answer === "registered") nowHas(mine, model);
    },
  });
}

/** Who has read what came early, and finds less of it when they write, may have planned to leave it to the tick. */
function registrations(
  { name }: Attempt,
  given: { label: string; key: string | null; isAwaited: boolean },
  { isAlone }: Situation,
): readonly Change[] {
  return (isAlone ? [true] : [true, false]).map(
    (consumes) => (model) => register(model, attemptOf(model, name), given, consumes),
  );
}

export function takesCallbackBack(attempt: Attempt): Operation {
  return call(attempt, "take the callback back", {
    run: (world) => world.actor(attempt.name).call(async (context) => String(await context.cancelCallback())),
    rule: (model, mine) => {
      const job = heldBy(model, mine);
      const callback = callbackOf(model, mine.callback);
      if (job === undefined || callback === undefined || job.callback !== callback.name) return "false";
      Object.assign(callback, { state: "cancelled" });
      job.callback = null;
      return "true";
    },
    ended: (mine) => {
      mine.callback = null;
    },
  });
}

export function enqueuesChild(attempt: Attempt): Operation {
  return call(attempt, "enqueue a child", {
    run: (world) =>
      world.actor(attempt.name).call(async (context) => {
        await context.enqueue(world.registry(false).enqueue("after", {}, { queue: "follow-ups" }));
        return "enqueued";
      }),
    rule: (model, mine) => {
      if (heldBy(model, mine) === undefined) return "stale";
      model.followUps.push("child");
      return "enqueued";
    },
  });
}

/** What its handler hears of a wait that is over. */
function heard(model: Model, { job, number }: Attempt, label: string): string | null {
  const mine = model.callbacks.filter((callback) => callback.job === job && callback.label === label);
  const resumed = mine.findLast(({ state }) => state === "resumed");
  if (resumed !== undefined) return `payload ${resumed.payload}`;
  const isOver = mine.some(({ state, awaitedIn }) => state === "expired" && awaitedIn === number);
  return isOver ? "timed out" : null;
}

export function waits(attempt: Attempt, label: string, key: string | null): Operation {
  const { name } = attempt;
  const wait = `wait for ${label}${key === null ? "" : ` by key ${key}`}`;
  return call(attempt, wait, {
    run: (world) => world.actor(name).wait(label, key),
    ended: (mine, answer, _, commits) => {
      if (answer === "moved") mine.over = true;
      if (commits > 0) mine.callback = null;
    },
    // It registers, and then it parks.
    maxCommits: 2,
    changes(model, situation) {
      const over = heard(model, attempt, label);
      // One who has lost the job may have looked before or after.
      if (heldBy(model, attempt) === undefined) {
        return [() => "stale", () => over ?? "stale", ...endings(model, attempt, "wait")];
      }
      // Where its follow-ups can't be planned the wait fails before it finds its callback resumed.
      if (over !== null && (situation.commits === 0 || canFollow(model, attempt))) return [() => over];
      if (situation.commits === 0) return registrations(attempt, { label, key, isAwaited: true }, situation);
      return [
        (next) => {
          const mine = attemptOf(next, name);
          nowHas(mine, next);
          return endAttempt(next, mine, "wait");
        },
      ];
    },
  });
}

export function completesItself(attempt: Attempt): Operation {
  const { name } = attempt;
  return call(attempt, "complete in a transaction of its own", {
    run: (world, database) =>
      world.actor(name).call(async (context) => {
        let statement: ReturnType<typeof context.completion>;
        try {
          statement = context.completion(RESULTS.prepared);
        } catch {
          return "can't be planned";
        }
        return database.query({ ...statement, decode: () => "moved" }).catch(refusal);
      }),
    rule: (model, mine) => {
      const job = heldBy(model, mine);
      if (!canFollow(model, mine)) return "can't be planned";
      if (job === undefined || job.callback !== mine.callback) return "stale_attempt";
      complete(model, job, RESULTS.prepared, "cancelled");
      return "moved";
    },
    began: (mine) => {
      mine.hasPrepared = true;
    },
    ended: (mine, answer) => {
      if (answer === "moved") mine.hasCompleted = true;
    },
  });
}

export function ends(attempt: Attempt, how: End): Operation {
  return call(attempt, how, {
    run: (world) => world.actor(attempt.name).end(how),
    changes: (model) => endings(model, attempt, how),
    began: (mine) => {
      mine.over = true;
    },
  });
}

function endings(model: Model, { name }: Attempt, how: End): readonly Change[] {
  const ending: Change = (next) => endAttempt(next, attemptOf(next, name), how);
  return looksEnded(model, attemptOf(model, name), how) ? [ending, () => "moved"] : [ending];
}

export function endsAgain(attempt: Attempt): Operation {
  return call(attempt, "ends once more", {
    run: (world) => world.actor(attempt.name).endAgain(),
    changes: (model) => endings(model, attempt, "complete"),
  });
}
