import { beforeEach, describe, expect, test } from "vitest";
import { createClient } from "../../src/client.ts";
import type { ExecutorDeps } from "../../src/executor/deps.ts";
import type { CallbackId } from "../../src/shared/ids.ts";
import type { JobRow } from "../../src/shared/job.ts";
import {
  CallbackTimeoutError,
  complete,
  type Handler,
  type HandlerContext,
  type RegisteredCallback,
  StaleAttemptError,
  waitForCallback,
} from "../../src/shared/registry/handler.ts";
import { verifyCallbackId } from "../../src/shared/signature.ts";
import { useTestDatabase } from "../support/database.ts";
import { emptyTables } from "../support/empty-tables.ts";
import { run as runAll } from "../support/executor.ts";
import { interrupt } from "../support/races.ts";
import { testRegistry } from "../support/registry.ts";
import { tick } from "../support/tick.ts";

// Callbacks of handlers: the reference's external_wait_test where a handler takes part, and waits that survive their process.

const { db, database } = useTestDatabase();
const client = createClient({ database, registry: testRegistry() });
const SECRET = "a1".repeat(32);

beforeEach(async () => {
  await emptyTables(db.pool);
});

type Ctx = HandlerContext<{ n: number }>;
const registryWith = (handler: Handler<{ n: number }>) =>
  testRegistry().handle("order", handler).handle("plain", handler).queue("default");
const run = (handler: Handler<{ n: number }>, overrides: Partial<ExecutorDeps> = {}) =>
  runAll(database, registryWith(handler), overrides);
const enqueue = async (kind: "order" | "plain" = "plain", options = {}) =>
  (await client.enqueue(kind, { n: 1 }, options)).jobId;
const jobOf = async (id: string): Promise<JobRow> =>
  (await client.getJob(id)) ?? expect.fail("the job is gone");
const callbackStates = async (id: string) =>
  (await client.getCallbacks(id)).map(({ name, state }) => [name, state]);
async function pendingOf(id: string): Promise<CallbackId> {
  const pending = (await client.getCallbacks(id)).find(({ state }) => state === "pending");
  return pending?.id ?? expect.fail("no callback is pending");
}
const expire = (id: string) =>
  db.pool.query(
    "UPDATE awa_edge.callbacks SET timeout_at = now() - interval '1 second' WHERE job_id = $1 AND state = 'pending'",
    [id],
  );
const goStale = (id: string) =>
  db.pool.query("UPDATE awa_edge.jobs SET heartbeat_at = now() - interval '1 hour' WHERE id = $1", [id]);

describe("registerCallback, and a handler that parks its job", () => {
  test("id, URL and signature are those that the ingress accepts", async () => {
    const got: RegisteredCallback[] = [];
    const callbacks = { baseUrl: "https://edge.example", pathPrefix: "/api/callbacks", secrets: [SECRET] };
    const handler = async (ctx: Ctx) => {
      got.push(await ctx.registerCallback());
      return waitForCallback();
    };
    const id = await enqueue();
    await run(handler, { callbacks });
    const { callbackId, callbackUrl, signature } = got[0] ?? expect.fail("nothing was registered");
    expect(callbackId).toBe(await pendingOf(id));
    expect(callbackUrl).toBe(`https://edge.example/api/callbacks/${callbackId}/complete`);
    expect(verifyCallbackId([SECRET], callbackId, signature ?? "")).toBe(true);
    await enqueue();
    await run(handler);
    expect(got[1]).toMatchObject({ callbackUrl: null, signature: null });
    await enqueue();
    await run(handler, { callbacks: { ...callbacks, baseUrl: null } });
    expect(got[2]).toMatchObject({ callbackUrl: null, signature: expect.any(String) });
  });

  test("E11 E15 complete while the handler still runs: completed, once, with the follow-ups of the callback only", async () => {
    const id = await enqueue("order");
    const { report, lines } = await run(async (ctx) => {
      const { callbackId } = await ctx.registerCallback();
      expect(await client.completeCallback(callbackId, { payload: "early" })).toMatchObject({
        status: "moved",
      });
      return waitForCallback();
    });
    expect(await jobOf(id)).toMatchObject({ state: "completed", result: "early" });
    expect((await client.getFollowUps(id)).map(({ kind }) => kind)).toEqual(["after", "once"]);
    expect(report).toMatchObject({ lost: 1 });
    expect(lines.find((line) => line.event === "attempt" && line.jobId === id)).toMatchObject({
      level: "warn",
      reason: expect.stringContaining("stale"),
    });
  });

  test("early resume of a callback that was about to be parked on: available at once, no attempt spent, no outcome", async () => {
    const id = await enqueue("order");
    let runs = 0;
    await run(async (ctx) => {
      if (++runs === 2) return complete("second run");
      const { callbackId } = await ctx.registerCallback();
      await client.completeCallback(callbackId, { payload: 1, resume: true });
      return waitForCallback();
    });
    expect(await jobOf(id)).toMatchObject({
      state: "completed",
      result: "second run",
      attempt: 1,
      runLease: "2",
    });
    expect((await client.getFollowUps(id)).map(({ trigger }) => trigger?.outcome)).toEqual([
      "completed",
      "completed",
    ]);
  });

  test("E12 a crash after the registration: heartbeat rescue cancels the callback; the old id is gone", async () => {
    const id = await enqueue();
    let registered: CallbackId | undefined;
    const registry = registryWith(async (ctx) => {
      registered ??= (await ctx.registerCallback()).callbackId;
      await goStale(id);
      await tick(database, testRegistry());
      return complete("too late");
    });
    const { report } = await runAll(database, registry);
    expect(report.lost).toBe(1);
    expect(await jobOf(id)).toMatchObject({ state: "retryable", result: null });
    expect(await callbackStates(id)).toEqual([["", "cancelled"]]);
    expect(await client.completeCallback(registered ?? "")).toMatchObject({
      status: "gone",
      how: "cancelled",
    });
  });

  test("E17 cancelCallback takes the callback back; the handler then ends as it likes", async () => {
    const id = await enqueue();
    await run(async (ctx) => {
      const { callbackId } = await ctx.registerCallback();
      expect(await ctx.cancelCallback()).toBe(true);
      expect(await ctx.cancelCallback()).toBe(false);
      expect(await client.completeCallback(callbackId)).toMatchObject({ status: "gone", how: "cancelled" });
      return complete();
    });
    expect(await jobOf(id)).toMatchObject({ state: "completed" });
    expect(await callbackStates(id)).toEqual([["", "cancelled"]]);
  });

  test("E18 cancelCallback of another lease: false, untouched", async () => {
    const id = await enqueue();
    await run(async (ctx) => {
      await ctx.registerCallback();
      await db.pool.query("UPDATE awa_edge.jobs SET run_lease = run_lease + 1 WHERE id = $1", [id]);
      expect(await ctx.cancelCallback()).toBe(false);
      return complete();
    });
    expect(await jobOf(id)).toMatchObject({ state: "running" });
    expect(await callbackStates(id)).toEqual([["", "pending"]]);
  });

  test("E20 a second registration supersedes the first; the first id is dead; E22 heartbeat works on the second", async () => {
    const id = await enqueue();
    const ids: CallbackId[] = [];
    await run(async (ctx) => {
      const both = await Promise.all([ctx.registerCallback(), ctx.registerCallback()]);
      ids.push(...both.map(({ callbackId }) => callbackId));
      return waitForCallback();
    });
    const [first = "", second = ""] = ids;
    expect(await jobOf(id)).toMatchObject({ state: "waiting_external", callbackId: second });
    expect(await client.completeCallback(first)).toMatchObject({ status: "gone", how: "superseded" });
    expect(await client.heartbeatCallback(second, 60)).toMatchObject({ status: "extended" });
    expect(await client.completeCallback(second)).toMatchObject({ status: "moved" });
  });

  test("E5 E21 a callback that isn't awaited by its name times out: attempt 1 of 2 retryable, 2 of 2 failed", async () => {
    const id = await enqueue("plain", { maxAttempts: 2 });
    const handler = async (ctx: Ctx) => {
      await ctx.registerCallback();
      return waitForCallback();
    };
    await run(handler);
    await expire(id);
    await tick(database, testRegistry());
    expect(await jobOf(id)).toMatchObject({ state: "retryable", attempt: 1 });
    await db.pool.query("UPDATE awa_edge.jobs SET run_at = now()");
    await run(handler);
    await expire(id);
    await tick(database, testRegistry());
    expect(await jobOf(id)).toMatchObject({
      state: "failed",
      attempt: 2,
      deadLetter: { reason: "callback_timeout" },
    });
  });

  test("a handler that ends otherwise leaves no callback pending", async () => {
    const id = await enqueue();
    await run(async (ctx) => {
      await ctx.registerCallback();
      throw new Error("x");
    });
    expect(await jobOf(id)).toMatchObject({ state: "retryable" });
    expect(await callbackStates(id)).toEqual([["", "cancelled"]]);
  });

  test("a registration that the handler didn't wait for leaves none pending either", async () => {
    const id = await enqueue();
    await run((ctx) => {
      void ctx.registerCallback().catch(() => undefined);
      return complete();
    });
    await expect.poll(() => jobOf(id)).toMatchObject({ state: "completed" });
    expect((await callbackStates(id)).filter(([, state]) => state === "pending")).toEqual([]);
  });

  test("a name or a time-out that can't be: a clear error", async () => {
    await enqueue();
    const faults: unknown[] = [];
    await run(async (ctx) => {
      for (const options of [{ timeoutSeconds: 0 }, { timeoutSeconds: 1e9 }, { name: "n".repeat(201) }]) {
        faults.push(await ctx.registerCallback(options).catch((thrown: Error) => thrown.message));
      }
      faults.push(await ctx.waitForCallback("").catch((thrown: Error) => thrown.message));
    });
    expect(faults).toEqual([
      "timeoutSeconds must be above 0 and at most 31536000",
      "timeoutSeconds must be above 0 and at most 31536000",
      "name must have 1 to 200 characters",
      "name must have 1 to 200 characters",
    ]);
  });
});

describe("waitForCallback by name", () => {
  const resume = async (id: string, payload: unknown) =>
    client.completeCallback(await pendingOf(id), { payload: payload as never, resume: true });

  /** A handler with two waits; `started` says for which it told the outside world. */
  function twoWaits(started: string[]) {
    return async (ctx: Ctx) => {
      const start = (name: string) => () => {
        started.push(name);
      };
      const packed = await ctx.waitForCallback("packed", { start: start("packed") });
      const collected = await ctx.waitForCallback("collected", { start: start("collected") });
      return complete([packed, collected]);
    };
  }

  test("E19 two waits in a row, each in a process of its own: payloads return at once, no attempt is spent", async () => {
    const started: string[] = [];
    const id = await enqueue("order", { maxAttempts: 1 });
    await run(twoWaits(started));
    expect(await jobOf(id)).toMatchObject({ state: "waiting_external", attempt: 1, runLease: "1" });
    expect(await resume(id, { boxes: 2 })).toMatchObject({ status: "moved", state: "available" });
    await run(twoWaits(started));
    expect(await jobOf(id)).toMatchObject({ state: "waiting_external", attempt: 1, runLease: "2" });
    // E28: null is a payload.
    await resume(id, null);
    await run(twoWaits(started));
    expect(await jobOf(id)).toMatchObject({ state: "completed", result: [{ boxes: 2 }, null], attempt: 1 });
    expect(started).toEqual(["packed", "collected"]);
    expect(await callbackStates(id)).toEqual([
      ["packed", "resumed"],
      ["collected", "resumed"],
    ]);
    expect((await client.getFollowUps(id)).map(({ trigger }) => trigger?.outcome)).toEqual([
      "waiting_for_callback",
      "waiting_for_callback",
      "completed",
      "completed",
    ]);
  });

  test("E19b inngest#1433 an early resume, before the job is parked: the wait returns without parking", async () => {
    const id = await enqueue("order");
    await run(async (ctx) =>
      complete(
        await ctx.waitForCallback("payment", {
          start: async ({ callbackId }) => {
            await client.completeCallback(callbackId, { payload: "early", resume: true });
          },
        }),
      ),
    );
    expect(await jobOf(id)).toMatchObject({ state: "completed", result: "early", attempt: 1, runLease: "1" });
    expect((await client.getFollowUps(id)).map(({ trigger }) => trigger?.outcome)).not.toContain(
      "waiting_for_callback",
    );
  });

  test("E25 a crash after the resume: rescued; the next attempt has the payload", async () => {
    const id = await enqueue();
    const started: string[] = [];
    await run(twoWaits(started));
    await resume(id, 1);
    await db.pool.query(
      `UPDATE awa_edge.jobs SET state = 'running', attempt = attempt + 1, run_lease = run_lease + 1,
         heartbeat_at = now() - interval '1 hour' WHERE id = $1`,
      [id],
    );
    await tick(database, testRegistry());
    await db.pool.query("UPDATE awa_edge.jobs SET run_at = now()");
    await run(twoWaits(started));
    expect(await jobOf(id)).toMatchObject({ state: "waiting_external", attempt: 2 });
    expect(started).toEqual(["packed", "collected"]);
  });

  test("two waits begun at once come one after the other; each is started once", async () => {
    const started: string[] = [];
    const handler = async (ctx: Ctx) => {
      const wait = (name: string) =>
        ctx.waitForCallback(name, {
          start: () => {
            started.push(name);
          },
        });
      return complete(await Promise.all([wait("a"), wait("b")]));
    };
    const id = await enqueue();
    for (const name of ["a", "b"]) {
      await run(handler);
      expect(await callbackStates(id)).toContainEqual([name, "pending"]);
      await resume(id, name);
    }
    await run(handler);
    expect(await jobOf(id)).toMatchObject({ state: "completed", result: ["a", "b"], attempt: 1 });
    expect(started).toEqual(["a", "b"]);
  });

  test("a handler that has registered another callback by the time its job is parked is parked on that one", async () => {
    const id = await enqueue();
    let second: CallbackId | undefined;
    let registerAnother: () => Promise<unknown> = () => Promise.resolve();
    const raced = interrupt(
      database,
      (text) => text.includes("WITH moved"),
      () => registerAnother(),
    );
    await runAll(
      raced,
      registryWith(async (ctx) => {
        await ctx.registerCallback();
        registerAnother = async () => {
          second = (await ctx.registerCallback()).callbackId;
        };
        return waitForCallback();
      }),
    );
    expect(await jobOf(id)).toMatchObject({ state: "waiting_external", callbackId: second });
    expect(await callbackStates(id)).toEqual([
      ["", "superseded"],
      ["", "pending"],
    ]);
  });

  test("complete without resume ends the job; the handler doesn't run again", async () => {
    const id = await enqueue();
    await run(twoWaits([]));
    await client.completeCallback(await pendingOf(id), { payload: "all of it" });
    expect((await run(twoWaits([]))).report.claimed).toBe(0);
    expect(await jobOf(id)).toMatchObject({ state: "completed", result: "all of it" });
  });

  test("E26 cancel while waiting; E27 metadata is kept over a resume", async () => {
    const id = await enqueue("plain", { metadata: { a: 1 } });
    await run(twoWaits([]));
    await resume(id, 1);
    expect(await jobOf(id)).toMatchObject({ metadata: { a: 1 } });
    await run(twoWaits([]));
    expect(await client.cancel(id)).toMatchObject({ status: "cancelled" });
    expect(await callbackStates(id)).toEqual([
      ["packed", "resumed"],
      ["collected", "cancelled"],
    ]);
  });

  describe("a time-out", () => {
    const timeOut = async (id: string) => {
      await expire(id);
      return tick(database, testRegistry());
    };

    test("reaches the handler as an error that it can catch, even in the last attempt; no attempt, no rescue", async () => {
      const handler = async (ctx: Ctx) => {
        const first = await ctx.waitForCallback("a").catch((thrown: unknown) => {
          expect(thrown).toBeInstanceOf(CallbackTimeoutError);
          return "timed out";
        });
        return complete([first, await ctx.waitForCallback("b")]);
      };
      const id = await enqueue("order", { maxAttempts: 1 });
      await run(handler);
      const { counts } = await timeOut(id);
      expect(counts("rescue_expired_callbacks")).toMatchObject({ rescued: 0, waitsTimedOut: 1 });
      expect(await jobOf(id)).toMatchObject({
        state: "available",
        attempt: 0,
        errors: [],
        finalizedAt: null,
      });
      await run(handler);
      // Deterministic: still timed out in the run after the next wait.
      await resume(id, "b!");
      await run(handler);
      expect(await jobOf(id)).toMatchObject({ state: "completed", result: ["timed out", "b!"], attempt: 1 });
      expect((await client.getFollowUps(id)).map(({ trigger }) => trigger?.outcome)).not.toContain("rescued");
    });

    test("that isn't caught fails the attempt; the next one waits anew", async () => {
      const handler = async (ctx: Ctx) => complete(await ctx.waitForCallback("a"));
      const id = await enqueue();
      await run(handler);
      await timeOut(id);
      await run(handler);
      expect(await jobOf(id)).toMatchObject({
        state: "retryable",
        attempt: 1,
        errors: [{ error: "callback timed out: a", attempt: 1 }],
      });
      await db.pool.query("UPDATE awa_edge.jobs SET run_at = now()");
      await run(handler);
      expect(await jobOf(id)).toMatchObject({ state: "waiting_external", attempt: 2 });
      await resume(id, "at last");
      await run(handler);
      expect(await jobOf(id)).toMatchObject({ state: "completed", result: "at last", attempt: 2 });
    });

    test("is forgotten where the job is started afresh by hand", async () => {
      const handler = async (ctx: Ctx) => complete(await ctx.waitForCallback("a"));
      const id = await enqueue("plain", { maxAttempts: 1 });
      await run(handler);
      await timeOut(id);
      await run(handler);
      expect(await jobOf(id)).toMatchObject({ state: "failed" });
      expect(await client.retry(id)).toMatchObject({ status: "retried" });
      await run(handler);
      expect(await jobOf(id)).toMatchObject({ state: "waiting_external", attempt: 1 });
    });
  });

  test("E19c a stale attempt: nothing after the wait runs, and the error of the others says stale", async () => {
    const id = await enqueue();
    const seen: unknown[] = [];
    const { report } = await run(async (ctx) => {
      await db.pool.query("UPDATE awa_edge.jobs SET run_lease = run_lease + 1 WHERE id = $1", [id]);
      seen.push(await ctx.registerCallback().catch((thrown: unknown) => thrown));
      ctx.setProgress({ percent: 1 });
      seen.push(await ctx.flushProgress().catch((thrown: unknown) => thrown));
      const child = registryWith(() => undefined).enqueue("plain", { n: 2 });
      seen.push(await ctx.enqueue(child).catch((thrown: unknown) => thrown));
      seen.push(ctx.signal.aborted);
      await ctx.waitForCallback("x");
      seen.push("never");
    });
    expect(seen.slice(0, 3).every((thrown) => thrown instanceof StaleAttemptError)).toBe(true);
    expect(String(seen[0])).toContain("stale");
    expect(seen.slice(3)).toEqual([true]);
    expect(report).toMatchObject({ claimed: 1, lost: 1 });
    const { rows } = await db.pool.query("SELECT count(*)::int AS n FROM awa_edge.jobs");
    expect(rows).toEqual([{ n: 1 }]);
  });

  test("dapr/durabletask-go#114 an answer in time beats the sweep, whoever comes first: one of them, never both", async () => {
    for (let i = 0; i < 10; i++) {
      const id = await enqueue();
      await run(async (ctx) => complete(await ctx.waitForCallback("x")));
      const pending = await pendingOf(id);
      await expire(id);
      const [resumed] = await Promise.all([
        client.completeCallback(pending, { payload: "in time", resume: true }),
        tick(database, testRegistry()),
      ]);
      const [state] = (await client.getCallbacks(id)).map((callback) => callback.state);
      expect(state).toBe(resumed.status === "moved" ? "resumed" : "expired");
      expect(await jobOf(id)).toMatchObject({ state: "available", attempt: 0 });
      await client.cancel(id);
    }
  });
});
