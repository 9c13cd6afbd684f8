import { DatabaseError } from "../../src/shared/db/errors.ts";
import type { Database } from "../../src/shared/db/port.ts";
import type { Model, Told } from "./state.ts";
import type { World } from "./world.ts";

/** One thing that the rules allow to happen. Changes the model. @returns what the one who did it is told */
export type Change = (model: Model) => string;

/** What an operation is done in. */
export interface Situation {
  /** Nobody else has done anything between its first call of the database and its last. */
  readonly isAlone: boolean;
  /** How often it has changed the tables so far. */
  readonly commits: number;
}

/** Something that somebody does: for real, and as the rules have it. */
export interface Operation {
  /** For the script: "complete job 1's callback 1"; and what it is counted as: "complete". */
  readonly text: string;
  readonly kind: string;
  /** The delivery that it brings. */
  readonly told?: Told;
  /** The attempt whose handler does it, which does one thing at a time. */
  readonly attempt?: string;
  /** It is done by the build whose closures of `brittle` throw. */
  readonly isBroken?: boolean;
  /** How often it may change the tables. Default: once. */
  readonly maxCommits?: number;
  /** Does it for real. @returns what came of it */
  run(world: World, database: Database): Promise<string>;
  /** What may become of it where it takes effect now. */
  changes(model: Model, situation: Situation): readonly Change[];
  /** What its process knows from its beginning on, and from its end on. */
  began?(model: Model): void;
  ended?(model: Model, answer: string, commits: number): void;
}

/** Time passes for one thing. */
export interface Passing {
  readonly text: string;
  readonly sql: string;
  readonly values: readonly string[];
  passes(model: Model): void;
}

/** All subsets, the whole first. */
export function subsets<T>(items: readonly T[]): readonly (readonly T[])[] {
  const [first, ...rest] = items;
  if (first === undefined) return [[]];
  const others = subsets(rest);
  return [...others.map((some) => [first, ...some]), ...others];
}

/** What to do with each of several things: with all of them, or, where others are at it at the same time, with some. */
export function each<T>(
  items: readonly T[],
  { isAlone }: Situation,
  change: (model: Model, item: T) => void,
  answer: (count: number) => string = () => "done",
): readonly Change[] {
  return (isAlone ? [items] : subsets(items)).map((some) => (model) => {
    for (const item of some) change(model, item);
    return answer(some.length);
  });
}

/** What was thrown as an answer, where it is one that the database gave. */
export function refusal(thrown: unknown): string {
  if (thrown instanceof DatabaseError) return thrown.kind;
  throw thrown;
}
