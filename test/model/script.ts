// What a script may consist of: steps by chance, each with its choices. Whom a choice means is found when its turn comes, so that a
// script stays one when steps are left out of it.

import fc from "fast-check";
import { RESCUE_REASONS } from "../../src/shared/outcome.ts";
import { ENDS } from "./attempt-rules.ts";
import * as by from "./handler-operations.ts";
import { claimable, lost } from "./job-rules.ts";
import type { Operation, Passing } from "./operation.ts";
import * as outside from "./outside-operations.ts";
import { PASSINGS } from "./passings.ts";
import { type Asked, type Attempt, isQueued, isTerminal, type Job, type Model, type Told } from "./state.ts";
import * as tick from "./tick-operations.ts";

/** Who and what there is to choose from. */
export interface Cast {
  readonly model: Model;
  /** Names the next job. */
  nextJob(): string;
  /** All names that there ever were, the newest first. */
  readonly jobs: readonly string[];
  readonly callbacks: readonly string[];
  readonly told: readonly Told[];
  /** Attempts whose handlers do nothing at the moment, the newest first. */
  readonly idle: readonly Attempt[];
}

/** At once; call by call of the database, as others go on; or statement by statement, and then the commit. */
export type Pace = "whole" | "by call" | "slow";

export type Step =
  /** Somebody does something. */
  | { readonly type: "do"; readonly pace: Pace; cast(cast: Cast): Operation | Passing | null }
  /** One of those who have begun makes their next call. */
  | { readonly type: "go on"; readonly who: number }
  /** Several of them do, all at once. */
  | { readonly type: "together"; readonly who: readonly number[] };

/** Prefers what is new: 0 means the newest. */
const pick = fc.constantFrom(0, 1, 2, 3, 4, 6, 8, 0, 0, 0, 1, 1);
const chosen = <T>(from: readonly T[], choice: number): T | undefined => from[choice % (from.length || 1)];

const rarely = fc.integer({ min: 0, max: 9 }).map((n) => n === 9);
const sometimes = fc.integer({ min: 0, max: 3 }).map((n) => n === 3);
const aKey = fc.constantFrom(null, "a", "b", "a");

const asked = fc.record({
  kind: fc.constantFrom("order" as const, "order" as const, "brittle" as const, "plain" as const),
  n: fc.constantFrom(1, 1, 1, 2),
  maxAttempts: fc.constantFrom(2, 1, 3),
  isUnique: fc.boolean(),
  line: fc.constantFrom(null, null, "x"),
  hasDeadline: sometimes,
});
const named = (given: Omit<Asked, "name">, { nextJob }: Cast): Asked => ({ name: nextJob(), ...given });

/** What finds something to do only now and then is done mostly then. */
function whereOfUse<T>(
  choices: fc.Arbitrary<T>,
  isOfUse: (model: Model, given: T) => boolean,
  does: (given: T, cast: Cast) => Operation,
): Choice {
  return fc.tuple(choices, rarely).map(([given, isAnyway]) => {
    return (cast) => (isAnyway || isOfUse(cast.model, given) ? does(given, cast) : null);
  });
}

/** Few jobs at a time: they are to get into each other's way. */
const isCrowded = ({ model }: Cast): boolean => model.jobs.filter((job) => !isTerminal(job)).length >= 4;

type Choice = fc.Arbitrary<(cast: Cast) => Operation | Passing | null>;

/** Something that an attempt's handler does. @param goesOn only where its handler hasn't come to its end */
function handler<T>(
  choices: fc.Arbitrary<T>,
  does: (attempt: Attempt, given: T) => Operation | null,
  goesOn = true,
): Choice {
  return fc.tuple(pick, choices).map(([who, given]) => {
    return ({ idle }) => {
      const attempt = chosen(
        idle.filter(({ over }) => over !== goesOn),
        who,
      );
      return attempt === undefined ? null : does(attempt, given);
    };
  });
}

/** Something that is done to one of those that there are. */
function to<S, T>(
  from: (cast: Cast) => readonly S[],
  choices: fc.Arbitrary<T>,
  does: (target: S, given: T, cast: Cast) => Operation | Passing | null,
): Choice {
  return fc.tuple(pick, choices).map(([which, given]) => {
    return (cast) => {
      const target = chosen(from(cast), which);
      return target === undefined ? null : does(target, given, cast);
    };
  });
}

const nothing = fc.constant(null);
const callbacksOf = ({ callbacks }: Cast) => callbacks;
const jobsWhere =
  (fits: (job: Job) => boolean) =>
  ({ model }: Cast) =>
    model.jobs
      .filter(fits)
      .map(({ name }) => name)
      .toReversed();
const isDead = ({ deadLetter }: Job) => deadLetter !== null;
const jobsOf = ({ jobs }: Cast) => jobs;

const CHOICES: readonly { weight: number; arbitrary: Choice }[] = [
  {
    weight: 8,
    arbitrary: fc.tuple(asked, rarely).map(
      ([given, isLater]) =>
        (cast) =>
          isCrowded(cast) ? null : outside.enqueues(named(given, cast), isLater),
    ),
  },
  {
    weight: 4,
    arbitrary: fc.tuple(asked, aKey, rarely).map(
      ([given, key, isBroken]) =>
        (cast) =>
          isCrowded(cast) ? null : outside.parks(named(given, cast), key, isBroken),
    ),
  },
  {
    weight: 24,
    arbitrary: whereOfUse(
      fc.tuple(fc.constantFrom(1, 2), sometimes),
      (model) => claimable(model).length > 0,
      ([most, isBroken]) => by.claims(most, isBroken),
    ),
  },
  { weight: 5, arbitrary: handler(fc.nat({ max: 9 }), by.flushesProgress) },
  { weight: 4, arbitrary: handler(fc.nat({ max: 9 }), by.setsProgress) },
  { weight: 6, arbitrary: handler(nothing, by.beats) },
  { weight: 16, arbitrary: handler(aKey, by.registers) },
  {
    weight: 4,
    arbitrary: handler(nothing, (attempt) =>
      attempt.callback === null ? null : by.takesCallbackBack(attempt),
    ),
  },
  { weight: 5, arbitrary: handler(nothing, by.enqueuesChild) },
  {
    weight: 16,
    arbitrary: handler(
      fc.tuple(fc.constantFrom("payment", "payment", "payment", "review"), aKey),
      (attempt, [label, key]) => by.waits(attempt, label, key),
    ),
  },
  { weight: 4, arbitrary: handler(nothing, by.completesItself) },
  {
    weight: 12,
    arbitrary: handler(fc.constantFrom("wait" as const, ...ENDS, "fail" as const), by.ends),
  },
  { weight: 3, arbitrary: handler(nothing, by.endsAgain, false) },
  {
    weight: 14,
    arbitrary: to(
      callbacksOf,
      fc.tuple(
        fc.constantFrom("complete" as const, "resume" as const, "fail" as const, "retry" as const),
        rarely,
      ),
      (callback, [action, isBroken]) => outside.resolves(callback, action, isBroken),
    ),
  },
  { weight: 3, arbitrary: to(callbacksOf, nothing, outside.putsOff) },
  {
    weight: 9,
    arbitrary: fc
      .tuple(
        fc.constantFrom(
          "complete",
          "resolve",
          "resume",
          "fail",
          "retry",
          "retry",
          "resolve",
          "resume",
          "heartbeat",
          "ignore",
        ),
        fc.constantFrom("a", "b", "the callback", "the callback", "a", "nothing"),
        pick,
        sometimes,
      )
      .map(([does, target, which, isBroken]) => ({ callbacks, told }: Cast) => {
        const callback = target === "nothing" ? null : (chosen(callbacks, which) ?? null);
        const isKey = target === "a" || target === "b";
        const event = {
          id: `d${told.length + 1}`,
          does,
          to: isKey ? { key: target } : { callback },
        } as const;
        return outside.delivers(event, isBroken);
      }),
  },
  { weight: 4, arbitrary: to(({ told }) => told, rarely, outside.delivers) },
  { weight: 4, arbitrary: to(({ told }) => told, rarely, outside.replays) },
  {
    weight: 4,
    arbitrary: to(
      jobsWhere((job) => !isTerminal(job)),
      rarely,
      outside.cancels,
    ),
  },
  { weight: 1, arbitrary: to(jobsOf, rarely, outside.cancels) },
  { weight: 6, arbitrary: to(jobsWhere(isTerminal), nothing, outside.retries) },
  { weight: 2, arbitrary: to(jobsOf, nothing, outside.retries) },
  { weight: 1, arbitrary: whereOfUse(rarely, ({ jobs }) => jobs.some(isQueued), outside.drains) },
  {
    weight: 5,
    arbitrary: to(jobsWhere(isDead), fc.nat({ max: 2 }), (job, more, { jobs }) =>
      outside.retriesDeadLetters([...new Set([job, ...jobs.slice(0, more)])]),
    ),
  },
  { weight: 1, arbitrary: to(jobsWhere(isDead), nothing, outside.purges) },
  { weight: 1, arbitrary: to(jobsOf, nothing, outside.purges) },
  {
    weight: 1,
    arbitrary: whereOfUse(
      nothing,
      ({ paused }) => paused,
      (_, { model }) => outside.pauses(!model.paused),
    ),
  },
  {
    weight: 26,
    arbitrary: whereOfUse(
      fc.constantFrom(...RESCUE_REASONS),
      (model, reason) => lost(model, reason).length > 0,
      tick.rescues,
    ),
  },
  {
    weight: 8,
    arbitrary: whereOfUse(sometimes, ({ outbox }) => outbox.some(({ due }) => due), tick.dispatches),
  },
  {
    weight: 8,
    arbitrary: whereOfUse(
      rarely,
      ({ deliveries }) => deliveries.some(({ again }) => again === "now"),
      tick.triesDeliveriesAgain,
    ),
  },
  {
    weight: 6,
    arbitrary: whereOfUse(
      nothing,
      (model) => JSON.stringify(model).includes('"old":true'),
      tick.deletesTheOld,
    ),
  },
  ...PASSINGS.map(({ weight, from, passes }) => ({
    weight,
    arbitrary: to(
      ({ model }) => from(model),
      nothing,
      (target) => passes(target),
    ),
  })),
];

const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 10,
    arbitrary: fc
      .tuple(
        fc.constantFrom<Pace[]>("whole", "whole", "whole", "by call", "slow", "slow"),
        fc.oneof(...CHOICES),
      )
      .map(([pace, cast]): Step => ({ type: "do", pace, cast })),
  },
  { weight: 4, arbitrary: pick.map((who): Step => ({ type: "go on", who })) },
  {
    weight: 1,
    arbitrary: fc
      .uniqueArray(fc.nat({ max: 3 }), { minLength: 2, maxLength: 3 })
      .map((who): Step => ({ type: "together", who })),
  },
);

/** Scripts of up to so many steps. */
export const scripts = (maxLength: number): fc.Arbitrary<Step[]> =>
  fc.noBias(fc.array(step, { minLength: 1, maxLength, size: "max" }));
