import fc from "fast-check";
import type pg from "pg";
import { Disagreement, type Played, play } from "./play.ts";
import { scripts } from "./script.ts";
import { World } from "./world.ts";

/** Scripts of one seed, and the steps of one script at the most. */
const SCRIPTS = 20;
const MAX_STEPS = 120;
/** How long a failure is made smaller, in milliseconds. */
const SHRINK_MS = 60_000;
/** Seeds are whole numbers below this one. */
export const SEEDS = 2 ** 31;

export const nothingPlayed = (): Played => ({ steps: 0, calls: 0, waits: 0, answers: {} });

/**
 * Plays some scripts by chance, the same for each seed, until one fails.
 *
 * @param played what was done before, which it adds to
 * @throws Error with the seed, and the smallest script that was found to fail
 */
export async function check(
  pools: { readonly pool: pg.Pool; readonly workerPool: pg.Pool },
  seed: number,
  played: Played,
): Promise<void> {
  const world = new World(pools.pool, pools.workerPool);
  const property = fc.asyncProperty(scripts(MAX_STEPS), (script) => play(world, script, played));
  const result = await fc.check(property, {
    seed,
    numRuns: SCRIPTS,
    interruptAfterTimeLimit: SHRINK_MS,
    markInterruptAsFailure: false,
  });
  if (!result.failed) return;
  const { errorInstance: thrown, numShrinks } = result;
  const why =
    thrown instanceof Disagreement ? thrown.message : thrown instanceof Error ? thrown.stack : String(thrown);
  throw new Error(`npm run soak -- --seed ${seed} plays it again. Made smaller ${numShrinks} times:\n${why}`);
}
