import type { ExecutorDeps } from "./deps.ts";
import { finishAttempt } from "./finish-attempt.ts";
import type { Heart } from "./heart.ts";
import { sleep } from "./sleep.ts";

/** Time for handlers that listen to their signal, in milliseconds: they come to an end by themselves, with what they know. */
const LISTENING_MS = 2_000;
const POLL_MS = 20;

/**
 * Gives back the jobs that this process still runs, because it is about to end: available again, at once and for whoever comes, with
 * their attempts not spent. Handlers are told through their signals first; what one does that doesn't listen counts for nothing any
 * more.
 *
 * @returns how many were handed back while their handlers went on
 */
export async function handBackAll(
  deps: ExecutorDeps,
  heart: Heart,
  listeningMs: number = LISTENING_MS,
): Promise<number> {
  for (const attempt of heart.attempts) attempt.abort("shutdown");
  const untilMs = deps.clock() + listeningMs;
  while (heart.attempts.size > 0 && deps.clock() < untilMs) await sleep(POLL_MS);
  const deaf = [...heart.attempts];
  await Promise.all(
    deaf.map(async (attempt) => {
      const { status } = await finishAttempt(deps, attempt, { type: "hand_back" });
      const { id: jobId, kind, queue, attempt: number } = attempt.job;
      const reason =
        status === "moved"
          ? "handed back: its handler didn't end in time"
          : "couldn't be handed back: somebody else has it, or it will be rescued";
      deps.log({ level: "warn", event: "attempt", jobId, kind, queue, attempt: number, reason });
      heart.delete(attempt);
    }),
  );
  return deaf.length;
}
