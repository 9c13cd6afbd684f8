import { CONTENDED, type Flight } from "./flight.ts";
import type { Situation } from "./operation.ts";
import { cloneOf, type Model } from "./state.ts";
import { isSame, type View, viewOf } from "./view.ts";

/** An order of what happened that the rules allow, and that comes out as the tables are. */
export interface Explanation {
  readonly model: Model;
  /** The tables after each of those who changed them. */
  readonly views: readonly View[];
  /** Who changed the tables, and is to say what. */
  readonly committed: ReadonlyMap<Flight, string>;
  /** What the others may say, by what they may have seen. */
  readonly seen: ReadonlyMap<Flight, ReadonlySet<string>>;
}

/**
 * Looks for an order in which the flights, each of which has just made one call at the same time as the others, changed the tables or
 * didn't, as the rules say.
 *
 * @returns of those that fit the tables and all answers that are known by now the one in which the fewest changed anything; `null`: the
 *   rules have none
 */
export function explain(before: Model, flights: readonly Flight[], found: View): Explanation | null {
  const tries: Explanation[] = [{ model: before, views: [], committed: new Map(), seen: new Map() }];
  for (const tried of tries) {
    const { model, committed } = tried;
    const current = viewOf(model);
    const views = [...tried.views, current];
    const seen = new Map(tried.seen);
    for (const flight of flights) {
      if (flight.commits >= (flight.operation.maxCommits ?? 1)) continue;
      const answers = new Set(seen.get(flight));
      for (const { model: after, answer } of outcomes(model, flight, flights.length === 1)) {
        if (isSame(viewOf(after), current)) answers.add(answer);
        else if (!committed.has(flight) && !flight.holds && !flight.isMoving) {
          // Those in which fewer have come first.
          tries.push({ model: after, views, committed: new Map([...committed, [flight, answer]]), seen });
        }
      }
      seen.set(flight, answers);
    }
    if (isSame(current, found) && flights.every((flight) => isExplained(flight, committed, seen))) {
      return { model, views, committed, seen };
    }
  }
  return null;
}

/** What may become of an operation that takes effect now. */
export function outcomes(
  model: Model,
  { operation, commits, isAlone }: Flight,
  isOnly = true,
): { readonly model: Model; readonly answer: string }[] {
  const now = cloneOf(model);
  now.broken = operation.isBroken ?? false;
  const situation: Situation = { isAlone: isAlone && isOnly, commits };
  return operation.changes(now, situation).map((change) => {
    const after = cloneOf(now);
    const answer = change(after);
    after.broken = false;
    return { model: after, answer };
  });
}

/** Whether what somebody said in the end is what the rules have them say. */
function isExplained(
  flight: Flight,
  committed: ReadonlyMap<Flight, string>,
  seen: ReadonlyMap<Flight, ReadonlySet<string>>,
): boolean {
  if (flight.answer === CONTENDED && !flight.isAlone) return !committed.has(flight);
  const told = committed.get(flight);
  // Who changes the tables once has nothing left to ask for.
  if (flight.answer === null) return told === undefined || (flight.operation.maxCommits ?? 1) > 1;
  if (told !== undefined) return told === flight.answer;
  return flight.possible.has(flight.answer) || seen.get(flight)?.has(flight.answer) === true;
}
