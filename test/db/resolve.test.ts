import { describe, expect, test } from "vitest";
import { createClient } from "../../src/client.ts";
import { DatabaseError } from "../../src/shared/db/errors.ts";
import { WAKE_UP_CHANNEL } from "../../src/shared/db/statements/insert-jobs.ts";
import { moveIfUnchanged } from "../../src/shared/db/statements/move-job.ts";
import { readCallback } from "../../src/shared/db/statements/read-callback.ts";
import type { JobInsert } from "../../src/shared/registry/job-insert.ts";
import { planFollowUps } from "../../src/shared/registry/plan.ts";
import { applyCallback, type CallbackAction } from "../../src/shared/transitions.ts";
import { resolveCallback } from "../../src/shared/use-cases/resolve-callback.ts";
import { useTestDatabase } from "../support/database.ts";
import { claim, makeRunning, makeWaiting, park, register, snapshot } from "../support/factory.ts";
import { testRegistry } from "../support/registry.ts";

const { db, database } = useTestDatabase();
const registry = testRegistry();
const client = () => createClient({ database, registry });
const pool = () => db.pool;

const jobOf = async (id: string) => (await client().getJob(id)) ?? expect.fail("no such job");
const callbackOf = async (id: string) =>
  (await client().getCallbacks(id)).at(-1) ?? expect.fail("no callback");
const followUpsOf = async (id: string) =>
  (await client().getFollowUps(id)).map(({ kind, args, trigger }) => ({
    kind,
    args,
    outcome: trigger?.outcome,
  }));

describe("a waiting job", () => {
  test("E2 complete: completed with the payload, follow-ups in order of registration, linked to their trigger", async () => {
    const job = await makeWaiting(pool(), {
      args: { n: 2 },
      progress: { percent: 10 },
      metadata: { kept: true },
    });
    const resolution = await client().completeCallback(job.callbackId, { payload: { paid: "ja 💶" } });
    expect(resolution).toMatchObject({
      status: "moved",
      state: "completed",
      deduplicated: 0,
      knownKind: true,
    });
    expect(await jobOf(job.id)).toMatchObject({
      state: "completed",
      result: { paid: "ja 💶" },
      progress: null,
      metadata: { kept: true },
      callbackId: null,
      finalizedAt: expect.any(Date),
    });
    expect(await callbackOf(job.id)).toMatchObject({
      state: "completed",
      payload: { paid: "ja 💶" },
      resolvedTo: "completed",
    });
    expect(await client().getFollowUps(job.id)).toMatchObject([
      {
        kind: "after",
        queue: "follow-ups",
        state: "available",
        args: { of: "completed", detail: { paid: "ja 💶" } },
        trigger: { jobId: job.id, outcome: "completed", runLease: "1" },
      },
      { kind: "once", priority: 1, args: { n: 2 }, trigger: { jobId: job.id } },
    ]);
  });

  test("E3 fail: failed with the error recorded, a dead letter, an exhausted follow-up", async () => {
    const job = await makeWaiting(pool());
    await client().failCallback(job.callbackId, "card declined");
    expect(await jobOf(job.id)).toMatchObject({
      state: "failed",
      errors: [{ error: "card declined", attempt: 1 }],
      deadLetter: { reason: "callback_failed" },
    });
    expect(await callbackOf(job.id)).toMatchObject({ state: "failed", error: "card declined" });
    expect(await followUpsOf(job.id)).toEqual([
      {
        kind: "after",
        outcome: "exhausted",
        args: { of: "exhausted", detail: { error: "card declined", attempt: 1 } },
      },
    ]);
  });

  test("fail on a queue that keeps no dead letters: failed, no dead letter", async () => {
    await client().configureQueue("forgetful", { keepsDeadLetters: false });
    const job = await makeWaiting(pool(), { queue: "forgetful" });
    await client().failCallback(job.callbackId, "no");
    expect(await jobOf(job.id)).toMatchObject({ state: "failed", deadLetter: null });
  });

  // The reference sets attempt 0, so that a sender who keeps asking retries without end. Here max_attempts bounds it.
  test("E4 retry: available with its attempts kept, workable again, a retried follow-up", async () => {
    const job = await makeWaiting(pool(), { attempt: 3, progress: { percent: 50 } });
    expect(await client().retryCallback(job.callbackId)).toMatchObject({
      status: "moved",
      state: "available",
    });
    expect(await jobOf(job.id)).toMatchObject({
      state: "available",
      attempt: 3,
      finalizedAt: null,
      progress: { percent: 50 },
      errors: [{ error: "retry requested by callback", attempt: 3 }],
    });
    expect(await followUpsOf(job.id)).toMatchObject([
      { outcome: "retried", args: { detail: { attempt: 3 } } },
    ]);
    await claim(pool(), job.id);
    expect(await jobOf(job.id)).toMatchObject({ state: "running", attempt: 4, runLease: "2" });
  });

  test("retry at max_attempts: failed, exhausted and not retried", async () => {
    const job = await makeWaiting(pool(), { attempt: 2, maxAttempts: 2 });
    expect(await client().retryCallback(job.callbackId)).toMatchObject({ status: "moved", state: "failed" });
    expect(await jobOf(job.id)).toMatchObject({ deadLetter: { reason: "max_attempts_exhausted" } });
    expect(await followUpsOf(job.id)).toMatchObject([{ outcome: "exhausted" }]);
    expect(await client().retryCallback(job.callbackId)).toMatchObject({
      status: "duplicate",
      state: "failed",
    });
  });

  // The reference moves it to running under the same lease, where nobody may be; here the next claim goes on with it.
  test("resume: available, the attempt given back, payload with the callback, metadata as it was (E27)", async () => {
    const job = await makeWaiting(pool(), { metadata: { mine: 1 } });
    expect(await client().completeCallback(job.callbackId, { payload: 7, resume: true })).toMatchObject({
      state: "available",
      ended: null,
      followUps: [],
    });
    expect(await jobOf(job.id)).toMatchObject({
      state: "available",
      attempt: 0,
      metadata: { mine: 1 },
      result: null,
    });
    expect(await callbackOf(job.id)).toMatchObject({ state: "resumed", payload: 7, resolvedTo: "available" });
  });

  test("E28 a null payload is stored as null, with complete and with resume", async () => {
    const [completed, resumed] = [await makeWaiting(pool()), await makeWaiting(pool())];
    await client().completeCallback(completed.callbackId, { payload: null });
    await client().completeCallback(resumed.callbackId, { payload: null, resume: true });
    const { rows } = await pool().query("SELECT payload::text FROM awa_edge.callbacks WHERE id = ANY ($1)", [
      [completed.callbackId, resumed.callbackId],
    ]);
    expect(rows).toEqual([{ payload: "null" }, { payload: "null" }]);
  });

  test("heartbeat extends the time-out; once completed it is refused", async () => {
    const job = await makeWaiting(pool());
    expect(await client().heartbeatCallback(job.callbackId, 7200)).toMatchObject({
      state: "waiting_external",
    });
    const seconds = ((await callbackOf(job.id)).timeoutAt.getTime() - Date.now()) / 1000;
    expect(seconds).toBeGreaterThan(7100);
    expect(seconds).toBeLessThanOrEqual(7201);
    await client().completeCallback(job.callbackId);
    expect(await client().heartbeatCallback(job.callbackId, 1)).toEqual({ status: "already_resolved" });
  });
});

describe("a running job", () => {
  test("E11 / E15 complete while running: completed", async () => {
    const job = await makeRunning(pool());
    expect(await client().completeCallback(job.callbackId, { payload: 1 })).toMatchObject({
      state: "completed",
    });
    expect(await jobOf(job.id)).toMatchObject({ state: "completed", result: 1, heartbeatAt: null });
  });
  test("fail while running: failed", async () => {
    const job = await makeRunning(pool());
    expect(await client().failCallback(job.callbackId, "x")).toMatchObject({ state: "failed" });
  });
  test("E19b early resume: it runs on, the payload waits with the callback", async () => {
    const job = await makeRunning(pool());
    expect(await client().completeCallback(job.callbackId, { payload: 5, resume: true })).toMatchObject({
      state: "running",
    });
    expect(await jobOf(job.id)).toMatchObject({ state: "running", callbackId: null, attempt: 1 });
    expect(await callbackOf(job.id)).toMatchObject({ state: "resumed", payload: 5, resolvedTo: "running" });
    expect(await client().completeCallback(job.callbackId, { payload: 5, resume: true })).toMatchObject({
      status: "duplicate",
      state: "running",
    });
  });
  test("retry while running: refused, nothing changed", async () => {
    const job = await makeRunning(pool());
    const before = await snapshot(pool());
    expect(await client().retryCallback(job.callbackId)).toMatchObject({ status: "still_running" });
    expect(await snapshot(pool())).toEqual(before);
  });
  test("heartbeat while running extends the time-out as well", async () => {
    const job = await makeRunning(pool());
    expect(await client().heartbeatCallback(job.callbackId, 60)).toMatchObject({ state: "running" });
  });
});

describe("a callback that isn't pending", () => {
  // The reference answers 404 to both, which a sender can't tell from a wrong id.
  test("E6 the same action again: duplicate with the recorded state; another action: already resolved", async () => {
    const job = await makeWaiting(pool());
    await client().completeCallback(job.callbackId, { payload: 1 });
    const before = await snapshot(pool());
    expect(await client().completeCallback(job.callbackId, { payload: 2 })).toMatchObject({
      status: "duplicate",
      state: "completed",
    });
    for (const other of [
      client().failCallback(job.callbackId, "x"),
      client().retryCallback(job.callbackId),
      client().completeCallback(job.callbackId, { resume: true }),
    ]) {
      expect(await other).toMatchObject({ status: "already_resolved" });
    }
    expect(await snapshot(pool())).toEqual(before);
  });
  test("E7 unknown id: not found", async () => {
    expect(await client().completeCallback("00000000-0000-4000-8000-000000000000")).toEqual({
      status: "not_found",
    });
    expect(await client().heartbeatCallback("00000000-0000-4000-8000-000000000000", 1)).toEqual({
      status: "not_found",
    });
  });
  test("E16 / E24 wrong lease: not found, untouched; right lease: works", async () => {
    const job = await makeWaiting(pool(), { runLease: 7 });
    const complete = (lease: string) =>
      resolveCallback(
        database,
        registry,
        job.callbackId,
        { type: "complete", payload: null },
        lease as never,
      );
    expect(await complete("6")).toEqual({ status: "not_found" });
    expect(await complete("7")).toMatchObject({ status: "moved" });
  });
  test("E20 a second callback on the same lease: the first is superseded, the second works (E22, E29)", async () => {
    const job = await makeRunning(pool());
    const second = await register(pool(), job.id);
    await park(pool(), job.id);
    expect(await client().completeCallback(job.callbackId)).toMatchObject({
      status: "gone",
      how: "superseded",
    });
    expect(await client().heartbeatCallback(job.callbackId, 1)).toMatchObject({
      status: "gone",
      how: "superseded",
    });
    expect(await client().heartbeatCallback(second, 60)).toMatchObject({ status: "extended" });
    expect(await client().failCallback(second, "x")).toMatchObject({ state: "failed" });
  });
  test("E31 retry on a second callback: available, workable again", async () => {
    const job = await makeRunning(pool(), { attempt: 2 });
    const second = await register(pool(), job.id);
    await park(pool(), job.id);
    expect(await client().retryCallback(second)).toMatchObject({ state: "available" });
    await claim(pool(), job.id);
    expect(await jobOf(job.id)).toMatchObject({ state: "running", attempt: 3, callbackId: null });
  });
  test("after a resume a second callback completes (resume, then E29); the first stays resumed", async () => {
    const job = await makeWaiting(pool());
    await client().completeCallback(job.callbackId, { payload: 1, resume: true });
    await claim(pool(), job.id);
    const second = await register(pool(), job.id);
    await park(pool(), job.id);
    expect(await jobOf(job.id)).toMatchObject({ attempt: 1, runLease: "2" });
    expect(await client().completeCallback(second, { payload: 2 })).toMatchObject({ state: "completed" });
    expect(await client().completeCallback(job.callbackId, { resume: true })).toMatchObject({
      status: "duplicate",
    });
    expect(await client().completeCallback(job.callbackId)).toMatchObject({ status: "already_resolved" });
  });
});

describe("follow-ups", () => {
  test("complete_external panic: a closure that throws leaves job and callback as they were", async () => {
    const job = await makeWaiting(pool(), { kind: "poison" });
    const before = await snapshot(pool());
    expect(await client().completeCallback(job.callbackId)).toMatchObject({
      status: "follow_up_failed",
      failure: { reason: "follow-up 2 of poison, completed: threw Error" },
    });
    expect(await snapshot(pool())).toEqual(before);
  });
  test("args that don't fit the kind's schema: nothing moves", async () => {
    const job = await makeWaiting(pool(), { args: { n: "not a number" } });
    const before = await snapshot(pool());
    expect(await client().completeCallback(job.callbackId)).toMatchObject({ status: "follow_up_failed" });
    expect(await snapshot(pool())).toEqual(before);
  });
  test("a kind that the build doesn't know: the job moves without follow-ups", async () => {
    const job = await makeWaiting(pool(), { kind: "from_another_build" });
    expect(await client().completeCallback(job.callbackId)).toMatchObject({
      status: "moved",
      knownKind: false,
      followUps: [],
    });
  });
  // The reference's trigger would fail with a unique conflict.
  test("a follow-up whose unique key is held is left out; the trigger moves", async () => {
    const [a, b] = [
      await makeWaiting(pool(), { args: { n: 77 } }),
      await makeWaiting(pool(), { args: { n: 77 } }),
    ];
    expect(await client().completeCallback(a.callbackId)).toMatchObject({ deduplicated: 0 });
    expect(await client().completeCallback(b.callbackId)).toMatchObject({ status: "moved", deduplicated: 1 });
    expect(await followUpsOf(b.id)).toMatchObject([{ kind: "after" }]);
  });
  test("the closure saw the row that was written, for every action", async () => {
    const actions: CallbackAction[] = [
      { type: "complete", payload: { a: [1, null] } },
      { type: "fail", error: "x" },
      { type: "retry" },
      { type: "resume", payload: 1 },
    ];
    for (const action of actions) {
      const made = await makeWaiting(pool(), { attempt: 2, progress: { p: 1 } });
      const reading = await database.query(readCallback(made.callbackId));
      if (reading === null || reading.job.state !== "waiting_external") expect.fail("not waiting");
      const planned = applyCallback(reading.job, action, reading);
      await resolveCallback(database, registry, made.callbackId, action);
      const written = await jobOf(made.id);
      // The time of the plan is that of its own reading, some milliseconds apart.
      const timeless = (job: object | undefined): unknown =>
        JSON.parse(JSON.stringify(job).replaceAll(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, "…"));
      expect(timeless(written)).toEqual(timeless(planned?.job));
    }
  });
  test("wake-ups arrive with the commit, one for each queue with something available", async () => {
    const listener = await pool().connect();
    const woken: string[] = [];
    listener.on("notification", ({ payload }) => woken.push(payload ?? ""));
    await listener.query(`LISTEN ${WAKE_UP_CHANNEL}`);
    const job = await makeWaiting(pool(), { args: { n: 501 } });
    await client().completeCallback(job.callbackId);
    const retried = await makeWaiting(pool(), { kind: "plain", queue: "again" });
    await client().retryCallback(retried.callbackId);
    await listener.query("SELECT 1");
    await listener.query("SELECT 1");
    listener.release(true);
    expect(woken.toSorted()).toEqual(["again", "default", "follow-ups"]);
  });
});

describe("nothing half-done", () => {
  /** A follow-up that no plan lets pass: its priority violates a constraint, as the last part of the statement. */
  const broken: JobInsert = {
    kind: "after",
    queue: "default",
    args: {},
    priority: 9,
    maxAttempts: 1,
    runAt: null,
    metadata: {},
    tags: [],
    uniqueKey: null,
    uniqueStates: null,
    deadlineSeconds: null,
    orderingKey: null,
  };
  test.each<CallbackAction>([
    { type: "complete", payload: 1 },
    { type: "fail", error: "x" },
    { type: "retry" },
    { type: "resume", payload: 1 },
  ])(
    "$type: a follow-up that Postgres refuses undoes job, callback and the other follow-ups",
    async (action) => {
      const made = await makeWaiting(pool());
      const reading = await database.query(readCallback(made.callbackId));
      if (reading === null || reading.job.state !== "waiting_external") expect.fail("not waiting");
      const move = applyCallback(reading.job, action, reading) ?? expect.fail("no move");
      const good = move.ended === null ? null : planFollowUps(registry, move.ended, reading.now);
      const statement = moveIfUnchanged(
        {
          jobId: made.id,
          state: "waiting_external",
          runLease: reading.job.runLease,
          callbackId: made.callbackId,
        },
        // A resume has no outcome, and so no follow-ups of its own: give it one to fail with.
        { ...move, ended: move.ended ?? { outcome: "cancelled", job: move.job, context: { reason: "" } } },
        { state: "completed", payload: 1, error: null },
        [...(good?.ok ? good.value : []), broken],
        reading.now,
      );
      const before = await snapshot(pool());
      await expect(database.query(statement)).rejects.toThrow(DatabaseError);
      await expect(database.query(statement)).rejects.toMatchObject({
        kind: "rejected",
        constraint: "job_priority_is_1_to_4",
      });
      expect(await snapshot(pool())).toEqual(before);
    },
  );
});
