import type { JobState } from "../shared/job.ts";

/** A state as Awa's receiver spells it. */
export function stateOnTheWire(state: JobState): string {
  return state.replace(/(?:^|_)([a-z])/g, (_, letter: string) => letter.toUpperCase());
}
