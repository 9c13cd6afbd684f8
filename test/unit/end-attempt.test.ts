import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { backoffSeconds, MAX_BACKOFF_SECONDS } from "../../src/shared/backoff.ts";
import { type AttemptEnd, applyAttemptEnd } from "../../src/shared/end-attempt.ts";
import type { CallbackId } from "../../src/shared/ids.ts";
import { NOW, runningJob } from "../support/jobs.ts";

const callbackId = "00000000-0000-4000-8000-000000000002" as CallbackId;
const text = fc.string({ maxLength: 20 });
const seconds = fc.double({ min: 0, max: 31_536_000, noNaN: true });
const anyEnd: fc.Arbitrary<AttemptEnd> = fc.oneof(
  fc.record({ type: fc.constant("complete" as const), result: fc.constantFrom(null, 1, "x", { a: [1] }) }),
  fc.record({ type: fc.constant("retry_after" as const), seconds, error: text }),
  fc.record({ type: fc.constant("fail" as const), error: text }),
  fc.record({
    type: fc.constant("fail_terminally" as const),
    error: text,
    reason: fc.constant("terminal_error" as const),
  }),
  fc.record({ type: fc.constant("snooze" as const), seconds }),
  fc.record({ type: fc.constant("cancel" as const), reason: text }),
  fc.record({ type: fc.constant("wait" as const), callbackId: fc.constant(callbackId) }),
  fc.record({ type: fc.constant("hand_back" as const) }),
);
const circumstances = (keepsDeadLetters: boolean, chance = 0) => ({
  now: NOW,
  keepsDeadLetters,
  progress: { percent: 5 },
  chance,
});

const STATES_OF = {
  completed: ["completed"],
  retried: ["retryable"],
  exhausted: ["failed"],
  cancelled: ["cancelled"],
  waiting_for_callback: ["waiting_external"],
  rescued: [],
};

describe("every end of every attempt", () => {
  test("fits the table's constraints, its outcome and the bound of attempts", () => {
    fc.assert(
      fc.property(
        anyEnd,
        fc.integer({ min: 1, max: 1000 }),
        fc.integer({ min: 0, max: 3 }),
        fc.boolean(),
        (end, attempt, left, keepsDeadLetters) => {
          const running = runningJob({ attempt, maxAttempts: attempt + left });
          const { job, ended, error } = applyAttemptEnd(running, end, circumstances(keepsDeadLetters, 0.5));
          expect(job.id).toBe(running.id);
          expect(job.runLease).toBe(running.runLease);
          expect(job.state).not.toBe("running");
          expect([job.heartbeatAt, job.deadlineAt]).toEqual([null, null]);
          expect(job.callbackId).toBe(job.state === "waiting_external" ? callbackId : null);
          expect(job.finalizedAt !== null).toBe(
            ["retryable", "completed", "failed", "cancelled"].includes(job.state),
          );
          expect(job.deadLetter !== null).toBe(job.state === "failed" && keepsDeadLetters);
          expect(job.progress).toEqual(job.state === "completed" ? null : { percent: 5 });
          // Another attempt only where one is left; one that isn't spent is given back.
          if (job.state === "retryable") expect(job.attempt).toBeLessThan(job.maxAttempts);
          const isGivenBack = end.type === "snooze" || end.type === "hand_back";
          expect(job.attempt).toBe(isGivenBack ? attempt - 1 : attempt);
          expect(ended === null).toBe(isGivenBack);
          if (ended !== null) expect(STATES_OF[ended.outcome]).toContain(job.state);
          expect(job.errors).toEqual(error === null ? [] : [error]);
          expect(error === null).toBe(
            isGivenBack ||
              end.type === "complete" ||
              end.type === "wait" ||
              (end.type === "retry_after" && end.error === "" && left > 0) ||
              (end.type === "fail" && end.error === "" && left > 0),
          );
        },
      ),
    );
  });
});

describe("back-off", () => {
  test("2^attempt seconds, up to a quarter more by chance, a day at most; the next is never shorter without chance", () => {
    expect([1, 2, 3].map((attempt) => backoffSeconds(attempt, 0))).toEqual([2, 4, 8]);
    fc.assert(
      fc.property(
        fc.integer({ min: 0, max: 1000 }),
        fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true }),
        (attempt, chance) => {
          const without = backoffSeconds(attempt, 0);
          const pause = backoffSeconds(attempt, chance);
          expect(pause).toBeGreaterThanOrEqual(without);
          expect(pause).toBeLessThanOrEqual(Math.min(without * 1.25, MAX_BACKOFF_SECONDS));
          expect(backoffSeconds(attempt + 1, 0)).toBeGreaterThanOrEqual(without);
        },
      ),
    );
  });
});
