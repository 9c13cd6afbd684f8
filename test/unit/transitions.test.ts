import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { celRules } from "../../src/shared/cel-rules.ts";
import { NO_RULE_ENGINE } from "../../src/shared/rules.ts";
import {
  applyCallback,
  applyCancel,
  type CallbackAction,
  decideByRules,
} from "../../src/shared/transitions.ts";
import { NOW, runningJob, waitingJob } from "../support/jobs.ts";

const here = { now: NOW, keepsDeadLetters: true };
const actions: CallbackAction[] = [
  { type: "complete", payload: { a: 1 } },
  { type: "resume", payload: 1 },
  { type: "fail", error: "x" },
  { type: "retry" },
];

describe("from waiting_external", () => {
  test("complete → completed, with the payload", () => {
    expect(applyCallback(waitingJob({ progress: 1 }), { type: "complete", payload: 5 }, here)).toMatchObject({
      job: { state: "completed", result: 5, progress: null, finalizedAt: NOW, callbackId: null },
      ended: { outcome: "completed" },
      error: null,
    });
  });
  test("fail → failed, exhausted, a dead letter where the queue keeps them", () => {
    const fail = (keepsDeadLetters: boolean) =>
      applyCallback(
        waitingJob({ attempt: 3 }),
        { type: "fail", error: "no" },
        { now: NOW, keepsDeadLetters },
      );
    expect(fail(true)).toMatchObject({
      job: {
        state: "failed",
        deadLetter: { at: NOW, reason: "callback_failed" },
        errors: [{ error: "no", attempt: 3 }],
      },
      ended: { outcome: "exhausted", context: { error: "no", attempt: 3 } },
    });
    expect(fail(false)?.job.deadLetter).toBeNull();
  });
  // The reference starts at attempt 0 again, without end.
  test("retry → available with the attempt kept; at the last one → failed, exhausted", () => {
    expect(applyCallback(waitingJob({ attempt: 2, maxAttempts: 3 }), { type: "retry" }, here)).toMatchObject({
      job: { state: "available", attempt: 2, runAt: NOW, finalizedAt: null },
      ended: { outcome: "retried", context: { attempt: 2, nextRunAt: NOW } },
    });
    expect(applyCallback(waitingJob({ attempt: 3, maxAttempts: 3 }), { type: "retry" }, here)).toMatchObject({
      job: { state: "failed", deadLetter: { reason: "max_attempts_exhausted" } },
      ended: { outcome: "exhausted" },
    });
  });
  test("resume → available, the attempt given back, no outcome", () => {
    expect(applyCallback(waitingJob({ attempt: 2 }), { type: "resume", payload: 1 }, here)).toMatchObject({
      job: { state: "available", attempt: 1, result: null },
      ended: null,
    });
  });
});

test("a very long error is cut in job.errors, and whole for the follow-ups", () => {
  const long = `${"x".repeat(9_999)}💶${"y".repeat(50_000)}`;
  const move = applyCallback(waitingJob(), { type: "fail", error: long }, here);
  expect(move?.error?.error).toBe(`${"x".repeat(9_999)}\ufffd…`);
  expect(move?.ended).toMatchObject({ context: { error: long } });
});

describe("from running", () => {
  test("complete and fail end it; resume lets it run on; retry isn't for it", () => {
    const states = actions.map((action) => applyCallback(runningJob(), action, here)?.job.state ?? null);
    expect(states).toEqual(["completed", "running", "failed", null]);
  });
});

test("property: whatever is done to a job, the row that comes out is legal", () => {
  const error = fc.record({ error: fc.string(), attempt: fc.nat(), at: fc.constant("") });
  const jobs = fc
    .record({
      attempt: fc.integer({ min: 1, max: 1000 }),
      maxAttempts: fc.integer({ min: 1, max: 1000 }),
      errors: fc.array(error, { maxLength: 100, size: "max" }),
      progress: fc.constantFrom(null, { percent: 1 }),
    })
    .chain((fields) => fc.constantFrom(waitingJob(fields), runningJob(fields)));
  fc.assert(
    fc.property(jobs, fc.constantFrom(...actions), fc.boolean(), (job, action, keepsDeadLetters) => {
      const moves = [
        applyCallback(job, action, { now: NOW, keepsDeadLetters }),
        applyCancel(job, "because", NOW),
      ].filter((move) => move !== null);
      for (const { job: moved, ended, error } of moves) {
        expect(moved.callbackId).toBeNull();
        expect(moved.finalizedAt !== null).toBe(
          ["retryable", "completed", "failed", "cancelled"].includes(moved.state),
        );
        expect(moved.heartbeatAt !== null).toBe(moved.state === "running");
        expect(moved.deadLetter !== null).toBe(moved.state === "failed" && keepsDeadLetters);
        expect(moved.errors).toEqual((error === null ? job.errors : [...job.errors, error]).slice(-100));
        expect(moved.attempt).toBeGreaterThanOrEqual(0);
        expect([moved.id, moved.runLease, moved.args]).toEqual([job.id, job.runLease, job.args]);
        expect(ended === null || ended.job === moved).toBe(true);
      }
    }),
  );
});

describe("what a payload comes to for a callback", () => {
  const none = { rules: null, awaitedInAttempt: null };
  const ruled = { rules: { onFail: "payload.bad", default: "ignore" }, awaitedInAttempt: null };
  test("without rules: complete, or resume where a handler awaits it by its name", () => {
    expect(decideByRules(1, none, null)).toEqual({ type: "complete", payload: 1 });
    expect(decideByRules(1, { ...none, awaitedInAttempt: 2 }, celRules)).toEqual({
      type: "resume",
      payload: 1,
    });
  });
  test("by its rules", () => {
    const failed = {
      type: "fail",
      error: "callback failed: on_fail expression matched",
      expression: "payload.bad",
    };
    expect(decideByRules({ bad: true }, ruled, celRules)).toEqual(failed);
    expect(decideByRules({ bad: false }, ruled, celRules)).toMatchObject({ type: "ignore" });
    const byDefault = { ...none, rules: { default: "fail" } };
    expect(decideByRules(1, byDefault, celRules)).toEqual({
      type: "fail",
      error: "callback failed: default action",
    });
  });
  test("C19 a build that evaluates no rules can't tell", () => {
    expect(decideByRules(1, ruled, null)).toEqual({ type: "undecided", reason: NO_RULE_ENGINE });
  });
});
