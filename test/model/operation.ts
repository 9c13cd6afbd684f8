import type { Model } from "./state.ts";
import type { World } from "./world.ts";

/** One step, its actors and jobs chosen: what to do to the real thing, and what the model makes of what came of it. */
export interface Operation {
  /** For the script. */
  readonly text: string;
  /** Who does it: at once with others, each actor does one thing. */
  readonly who: string | null;
  /** Does it for real. @returns how the model follows */
  run(world: World): Promise<Followed>;
}

/** What a step came to. */
export interface Followed {
  /** For the script. */
  readonly seen: string;
  /**
   * Changes the model as the rules say.
   *
   * @param alone nobody else did anything at the same time
   * @returns what is to be counted, or a {@link Disagreement}: the rules say that something else comes of it
   */
  follow(model: Model, alone: boolean): string | Disagreement;
}

export class Disagreement {
  readonly expected: string;
  constructor(expected: string) {
    this.expected = expected;
  }
}

/**
 * A step that has an answer which the rules foretell.
 *
 * @param name what is counted, with the answer
 * @param does the real step, giving its answer
 * @param rule the same of the model
 */
export function step<A extends { readonly answer: string }>(
  name: string,
  text: string,
  who: string | null,
  does: (world: World) => Promise<A>,
  rule: (model: Model, given: A) => string,
): Operation {
  return {
    text,
    who,
    async run(world) {
      const given = await does(world);
      return {
        seen: given.answer,
        follow(model) {
          const expected = rule(model, given);
          return expected === given.answer ? `${name}: ${expected}` : new Disagreement(expected);
        },
      };
    },
  };
}
