import { beforeEach, describe, expect, test } from "vitest";
import { createClient } from "../../src/client.ts";
import type { JobRow } from "../../src/shared/job.ts";
import type { JobEvent } from "../../src/shared/registry/define.ts";
import {
  cancel,
  complete,
  type Handler,
  retryAfter,
  snooze,
  TerminalError,
  waitForCallback,
} from "../../src/shared/registry/handler.ts";
import { useTestDatabase } from "../support/database.ts";
import { emptyTables } from "../support/empty-tables.ts";
import { executorDeps, run } from "../support/executor.ts";
import { testRegistry } from "../support/registry.ts";

// Outcomes of handlers, each with its follow-ups: what the reference's enqueue_spec_test and lifecycle_hook_test show, and more.

const { db, database } = useTestDatabase();
const client = createClient({ database, registry: testRegistry() });

beforeEach(async () => {
  await emptyTables(db.pool);
});

/** The registry of the tests, with one handler for every kind in the default queue. */
function registryWith(handler: Handler<{ n: number }>) {
  return testRegistry()
    .handle("order", handler)
    .handle("poison", handler)
    .handle("plain", handler)
    .queue("default");
}
async function enqueue(kind: "order" | "poison" | "plain" = "order", options = {}) {
  return (await client.enqueue(kind, { n: 1 }, options)).jobId;
}
async function jobOf(id: string): Promise<JobRow> {
  return (await client.getJob(id)) ?? expect.fail("the job is gone");
}
const followUpsOf = async (id: string) =>
  (await client.getFollowUps(id)).map(({ kind, args, trigger }) => [trigger?.outcome, kind, args]);
const makeDue = (id: string) => db.pool.query("UPDATE awa_edge.jobs SET run_at = now() WHERE id = $1", [id]);
const secondsUntil = (date: Date) => (date.getTime() - Date.now()) / 1000;

describe("an attempt ends with its follow-ups in one statement", () => {
  test("enqueue_spec: completed with a result; the closures saw args and job; follow-ups are available, in their queues", async () => {
    const seen: unknown[] = [];
    const registry = registryWith(() => complete({ sent: true }));
    registry.onCompletedEnqueue("order", (args, job) => {
      seen.push([args, job.id, job.state, job.result]);
      return registry.enqueue("after", { of: "seen", detail: null }, { queue: "custom", priority: 1 });
    });
    const id = await enqueue();
    const { report, lines } = await run(database, registry);
    expect(report).toMatchObject({ claimed: 2, finished: 2, lost: 0, exhausted: false });
    expect(await jobOf(id)).toMatchObject({
      state: "completed",
      result: { sent: true },
      attempt: 1,
      runLease: "1",
      heartbeatAt: null,
      deadlineAt: null,
    });
    expect(seen).toEqual([[{ n: 1 }, id, "completed", { sent: true }]]);
    const followUps = await client.getFollowUps(id);
    expect(followUps.map(({ kind, queue, priority, state }) => [kind, queue, priority, state])).toEqual([
      ["after", "follow-ups", 2, "available"],
      // The default queue is run: nothing handles this kind.
      ["once", "default", 1, "failed"],
      ["after", "custom", 1, "available"],
    ]);
    expect(lines.find((line) => line.event === "attempt" && line.jobId === id)).toMatchObject({
      kind: "order",
      queue: "default",
      attempt: 1,
      outcome: "completed",
      followUpIds: followUps.map((job) => job.id),
    });
  });

  test("a handler that returns nothing completes its job without a result", async () => {
    const id = await enqueue("plain");
    await run(
      database,
      registryWith(() => undefined),
    );
    expect(await jobOf(id)).toMatchObject({ state: "completed", result: null });
  });

  test("a handler throws what can't be made text: the attempt fails with its type", async () => {
    const odd: unknown = Object.create(null);
    const id = await enqueue();
    await run(
      database,
      registryWith(() => {
        throw odd;
      }),
    );
    expect(await jobOf(id)).toMatchObject({ state: "retryable", errors: [{ error: "object", attempt: 1 }] });
  });

  test("enqueue_spec on_retried, lifecycle retried: an error, with back-off; the hook sees error and finalized_at", async () => {
    const events: JobEvent[] = [];
    const registry = registryWith(() => {
      throw new Error("no luck\0 \ud800");
    }).onEvent("order", (event) => {
      events.push(event);
    });
    const id = await enqueue("order", { maxAttempts: 5 });
    await run(database, registry);
    const job = await jobOf(id);
    expect(job).toMatchObject({ state: "retryable", attempt: 1 });
    expect(job.errors).toEqual([{ error: "no luck \ufffd", attempt: 1, at: expect.any(String) }]);
    expect(secondsUntil(job.runAt)).toBeGreaterThan(1);
    expect(secondsUntil(job.runAt)).toBeLessThan(2.6);
    expect(await followUpsOf(id)).toEqual([
      ["retried", "after", { of: "retried", detail: { error: "no luck \ufffd", attempt: 1 } }],
    ]);
    expect(events).toMatchObject([
      { type: "started", job: { state: "running", attempt: 1 } },
      {
        type: "retried",
        attempt: 1,
        error: "no luck \ufffd",
        job: { state: "retryable", finalizedAt: expect.any(Date) },
      },
    ]);
  });

  test("enqueue_spec on_exhausted, lifecycle terminal error: failed at attempt 1, a dead letter", async () => {
    const id = await enqueue();
    await run(
      database,
      registryWith(() => {
        throw new TerminalError("stolen card");
      }),
    );
    expect(await jobOf(id)).toMatchObject({
      state: "failed",
      attempt: 1,
      errors: [{ error: "stolen card", attempt: 1, terminal: true }],
      deadLetter: { reason: "terminal_error" },
    });
    expect(await followUpsOf(id)).toEqual([
      ["exhausted", "after", { of: "exhausted", detail: { error: "stolen card", attempt: 1 } }],
    ]);
  });

  test("lifecycle exhausted: the error at the last attempt", async () => {
    const id = await enqueue("order", { maxAttempts: 1 });
    await run(
      database,
      registryWith(async () => {
        throw new Error("x");
      }),
    );
    expect(await jobOf(id)).toMatchObject({
      state: "failed",
      deadLetter: { reason: "max_attempts_exhausted" },
    });
    expect(await followUpsOf(id)).toMatchObject([["exhausted", "after", {}]]);
  });

  test("a queue that keeps no dead letters: failed, not marked, and never claimed again", async () => {
    await client.configureQueue("default", { keepsDeadLetters: false });
    const id = await enqueue("order", { maxAttempts: 1 });
    const registry = registryWith(async () => {
      throw new Error("x");
    });
    await run(database, registry);
    expect(await jobOf(id)).toMatchObject({ state: "failed", deadLetter: null });
    expect((await run(database, registry)).report.claimed).toBe(0);
  });

  test("RetryAfter: due then, no error recorded, Retried with error ''; exactly max executions, then Exhausted", async () => {
    let executions = 0;
    const registry = registryWith(() => {
      executions++;
      return retryAfter(30);
    });
    const id = await enqueue("order", { maxAttempts: 2 });
    await run(database, registry);
    const job = await jobOf(id);
    expect(job).toMatchObject({ state: "retryable", attempt: 1, errors: [], finalizedAt: expect.any(Date) });
    expect(secondsUntil(job.runAt)).toBeGreaterThan(25);
    await makeDue(id);
    await run(database, registry);
    expect(executions).toBe(2);
    expect(await jobOf(id)).toMatchObject({
      state: "failed",
      errors: [{ error: "max_attempts exhausted (handler requested retry after 30 s)", attempt: 2 }],
      deadLetter: { reason: "max_attempts_exhausted" },
    });
    expect(await followUpsOf(id)).toMatchObject([
      ["retried", "after", { detail: { error: "", attempt: 1 } }],
      ["exhausted", "after", {}],
    ]);
  });

  test("RetryAfter below the bound: Retried, then Completed at attempt 2", async () => {
    const registry = registryWith(({ job }) => (job.attempt === 1 ? retryAfter(0, "busy") : complete()));
    const id = await enqueue("plain", { maxAttempts: 2 });
    await run(database, registry);
    expect(await jobOf(id)).toMatchObject({
      state: "completed",
      attempt: 2,
      runLease: "2",
      errors: [{ error: "busy", attempt: 1 }],
    });
  });

  test("Snooze: scheduled, no attempt spent, no outcome, Started only", async () => {
    const types: string[] = [];
    const registry = registryWith(() => snooze(60)).onEvent("order", ({ type }) => {
      types.push(type);
    });
    const id = await enqueue();
    await run(database, registry);
    const job = await jobOf(id);
    expect(job).toMatchObject({ state: "scheduled", attempt: 0, runLease: "1", finalizedAt: null });
    expect(secondsUntil(job.runAt)).toBeGreaterThan(55);
    expect(await followUpsOf(id)).toEqual([]);
    expect(types).toEqual(["started"]);
  });

  test("enqueue_spec on_cancelled: the reason is recorded and reaches the closure", async () => {
    const id = await enqueue();
    await run(
      database,
      registryWith(() => cancel("changed my mind")),
    );
    expect(await jobOf(id)).toMatchObject({
      state: "cancelled",
      errors: [{ error: "cancelled: changed my mind", attempt: 1 }],
    });
    expect(await followUpsOf(id)).toEqual([
      ["cancelled", "after", { of: "cancelled", detail: "changed my mind" }],
    ]);
  });

  test("E1, enqueue_spec on_waiting_for_callback, lifecycle WaitingForCallback: parked; the closure saw the stored callback id", async () => {
    const types: string[] = [];
    const registry = registryWith(async (ctx) => {
      await ctx.registerCallback({ timeoutSeconds: 60 });
      return waitForCallback();
    }).onEvent("order", ({ type }) => {
      types.push(type);
    });
    const id = await enqueue();
    await run(database, registry);
    const job = await jobOf(id);
    expect(job).toMatchObject({
      state: "waiting_external",
      heartbeatAt: null,
      callbackId: expect.any(String),
    });
    expect(await followUpsOf(id)).toEqual([
      ["waiting_for_callback", "after", { of: "waiting_for_callback", detail: job.callbackId }],
    ]);
    expect(await client.getCallbacks(id)).toMatchObject([
      { id: job.callbackId, state: "pending", runLease: "1" },
    ]);
    expect(types).toEqual(["started", "waiting_for_callback"]);
  });

  test("WaitForCallback without a callback: failed for good, with its follow-ups (the reference emits nothing)", async () => {
    const id = await enqueue();
    await run(
      database,
      registryWith(() => waitForCallback()),
    );
    expect(await jobOf(id)).toMatchObject({
      state: "failed",
      errors: [{ error: "WaitForCallback returned without calling register_callback", terminal: true }],
      deadLetter: { reason: "wait_for_callback_contract_violation" },
    });
    expect(await followUpsOf(id)).toMatchObject([["exhausted", "after", {}]]);
  });

  test("a follow-up whose unique key is held is left out; the job completes all the same", async () => {
    const holder = await client.enqueue("once", { n: 1 }, { unique: true, queue: "elsewhere" });
    const id = await enqueue();
    const { lines } = await run(
      database,
      registryWith(() => complete()),
    );
    expect(await followUpsOf(id)).toMatchObject([["completed", "after", {}]]);
    expect(lines.find((line) => line.jobId === id)).toMatchObject({ deduplicated: 1 });
    expect(await jobOf(holder.jobId)).toMatchObject({ state: "available" });
  });
});

describe("what no handler can run", () => {
  test("unknown kind: terminal, as the reference words it, and logged as drift", async () => {
    const registry = testRegistry().queue("default");
    const id = await enqueue("plain");
    const { lines } = await run(database, registry);
    expect(await jobOf(id)).toMatchObject({
      state: "failed",
      errors: [{ error: "unknown job kind: plain", terminal: true }],
      deadLetter: { reason: "terminal_error" },
    });
    expect(lines.some((line) => line.event === "registry_drift" && line.jobId === id)).toBe(true);
  });

  test("undecodable args: terminal, also where a follow-up of it can't read them either", async () => {
    const id = await enqueue("order");
    await db.pool.query(`UPDATE awa_edge.jobs SET args = '{"n":"secret-value"}' WHERE id = $1`, [id]);
    let ran = false;
    const { lines } = await run(
      database,
      registryWith(() => {
        ran = true;
      }),
    );
    expect(ran).toBe(false);
    const job = await jobOf(id);
    expect(job).toMatchObject({ state: "failed", deadLetter: { reason: "terminal_error" } });
    expect(job.errors).toMatchObject([
      {
        error: expect.stringMatching(
          /^failed to deserialize args: its args don't fit the kind's schema: at n \(/,
        ),
        terminal: true,
      },
    ]);
    expect(JSON.stringify([lines, job.errors])).not.toContain("secret-value");
  });

  test.each<[string, Handler<{ n: number }>, RegExp]>([
    ["a result that JSON can't hold", () => complete(Number.NaN), /the handler's result contains a number/],
    ["a result with a NUL", () => complete("\0"), /the handler's result contains a NUL/],
    ["a pause that is none", () => retryAfter(-1), /0 to 31536000 seconds/],
    ["a snooze without an end", () => snooze(Number.NaN), /0 to 31536000 seconds/],
    ["a reason that can't be stored", () => cancel("\0"), /cancel takes a reason that can be stored/],
  ])("%s: the attempt fails, and the job is retried", async (_, handler, message) => {
    const id = await enqueue("plain");
    await run(database, registryWith(handler));
    expect(await jobOf(id)).toMatchObject({
      state: "retryable",
      errors: [{ error: expect.stringMatching(message) }],
    });
  });
});

describe("plan failures", () => {
  test("enqueue_spec panicking closure: not completed, no follow-up, the executor goes on; bounded by max_attempts", async () => {
    const id = await enqueue("poison", { maxAttempts: 2 });
    const other = await enqueue("plain");
    let runs = 0;
    const registry = registryWith(({ job }) => {
      if (job.id === id) runs++;
      return complete("done");
    });
    const { lines } = await run(database, registry);
    expect(await jobOf(id)).toMatchObject({ state: "retryable", result: null, attempt: 1 });
    expect(await jobOf(other)).toMatchObject({ state: "completed" });
    expect(await followUpsOf(id)).toEqual([]);
    expect(lines.find((line) => line.event === "follow_up_failed")).toMatchObject({
      jobId: id,
      outcome: "completed",
      reason: "follow-up 2 of poison, completed: threw Error",
    });
    await makeDue(id);
    await run(database, registry);
    expect(runs).toBe(2);
    const job = await jobOf(id);
    expect(job).toMatchObject({ state: "failed", deadLetter: { reason: "max_attempts_exhausted" } });
    expect(job.errors).toHaveLength(2);
    expect(job.errors[1]?.error).toContain("poison-message");
  });

  test("where the follow-up of the failure can't be planned either, the job still ends, without it", async () => {
    const registry = registryWith(async () => {
      throw new Error("first");
    });
    registry.onRetriedEnqueue("plain", () => {
      throw new Error("second");
    });
    const id = await enqueue("plain");
    await run(database, registry);
    expect(await jobOf(id)).toMatchObject({
      state: "retryable",
      errors: [
        {
          error: expect.stringMatching(
            /^first \(follow-up 1 of plain, retried: threw Error: Error: second\)$/,
          ),
        },
      ],
    });
  });

  test("a follow-up that Postgres refuses: nothing of the outcome happened, the attempt failed", async () => {
    await db.pool.query("ALTER TABLE awa_edge.jobs ADD CONSTRAINT no_once CHECK (kind <> 'once') NOT VALID");
    try {
      const id = await enqueue();
      await run(
        database,
        registryWith(() => complete("done")),
      );
      const job = await jobOf(id);
      expect(job).toMatchObject({ state: "retryable", result: null });
      expect(job.errors[0]?.error).toContain("no_once");
      expect(await followUpsOf(id)).toMatchObject([["retried", "after", {}]]);
    } finally {
      await db.pool.query("ALTER TABLE awa_edge.jobs DROP CONSTRAINT no_once");
    }
  });
});

describe("hooks", () => {
  test("stack, are isolated, and hear completed with its duration", async () => {
    const events: string[] = [];
    const registry = registryWith(async () => {
      await new Promise((resolve) => setTimeout(resolve, 20));
    })
      .onEvent("order", () => {
        throw new Error("hook-message");
      })
      .onEvent("order", (event) => {
        events.push(event.type === "completed" ? `completed ${event.durationMs >= 15}` : event.type);
      });
    await enqueue();
    const { lines } = await run(database, registry);
    expect(events).toEqual(["started", "completed true"]);
    expect(lines.filter((line) => line.event === "hook_failed")).toHaveLength(2);
  });
});

describe("progress", () => {
  test("is kept over retries and parking, merged, clamped, and gone once completed", async () => {
    const seen: unknown[] = [];
    const registry = registryWith(async (ctx) => {
      seen.push(ctx.job.progress);
      if (ctx.job.attempt === 1) {
        ctx.setProgress({ percent: 250, message: "half", metadata: { page: 1, keep: true } });
        ctx.setProgress({ metadata: { page: 2 } });
        throw new Error("again");
      }
      ctx.setProgress({ percent: -1 });
      await ctx.flushProgress();
      seen.push((await jobOf(ctx.job.id)).progress);
      return complete();
    });
    const id = await enqueue("plain");
    await run(database, registry);
    const first = { percent: 100, message: "half", metadata: { page: 2, keep: true } };
    expect(await jobOf(id)).toMatchObject({ state: "retryable", progress: first });
    await makeDue(id);
    await run(database, registry);
    expect(seen).toEqual([null, first, { ...first, percent: 0 }]);
    expect(await jobOf(id)).toMatchObject({ state: "completed", progress: null });
  });
});

describe("children", () => {
  test("are enqueued at once, deduplicated on a unique key, refused with a clear error", async () => {
    const registry = registryWith(async (ctx) => {
      const child = registry.enqueue(
        "after",
        { of: "child", detail: null },
        { queue: "children", unique: true },
      );
      const first = await ctx.enqueue(child);
      const second = await ctx.enqueue(child);
      expect(second).toEqual({ jobId: first.jobId, deduplicated: true });
      await expect(
        ctx.enqueue(registry.enqueue("after", { of: "x", detail: null }, { maxAttempts: 0 })),
      ).rejects.toThrow(/can't enqueue after: maxAttempts must be/);
      return complete({ child: first.jobId });
    });
    const id = await enqueue("plain");
    await run(database, registry);
    const { result } = await jobOf(id);
    expect(result).toEqual({ child: expect.any(String) });
    const { rows } = await db.pool.query(
      "SELECT kind, trigger_job_id FROM awa_edge.jobs WHERE queue = 'children'",
    );
    expect(rows).toEqual([{ kind: "after", trigger_job_id: null }]);
  });
});

test("no hooks, no follow-ups: one claim and one statement a job", async () => {
  await enqueue("plain");
  let statements = 0;
  const counting = {
    query: <R>(statement: Parameters<typeof database.query<R>>[0]) => {
      statements++;
      return database.query(statement);
    },
    batch: () => Promise.reject(new Error("no batch is expected")),
  };
  await run(
    counting,
    registryWith(() => complete()),
  );
  // The claim, the end of the attempt, and the claim that finds nothing more.
  expect(statements).toBe(3);
  expect(executorDeps(database, testRegistry()).lines).toEqual([]);
});
