import { execFile } from "node:child_process";
import path from "node:path";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { createClient, pgDatabase } from "../../src/client.ts";
import { createApp } from "../../src/ingress/app.ts";
import { registry } from "../../src/registry.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { emptyTables } from "../support/empty-tables.ts";
import { ingressDeps } from "../support/ingress.ts";
import { SOURCE_SECRETS, signed, type ToSign } from "../support/signed.ts";

let db: TestDatabase;
beforeAll(async () => {
  db = await createTestDatabase();
});
afterAll(() => db.drop());
beforeEach(() => emptyTables(db.pool));

/** Receives an event as the Worker does. @returns what its sender was answered */
async function receive(event: ToSign): Promise<string> {
  const env = { DATABASE_URL: db.workerUrl, AWA_CALLBACK_ALLOW_UNSIGNED: "true", ...SOURCE_SECRETS };
  const app = createApp(ingressDeps(env, { registry, database: () => pgDatabase(db.workerPool) }));
  const response = await app.request(await signed(registry, event));
  const body: { status?: string; code?: string } = JSON.parse(await response.text());
  return body.status ?? body.code ?? "";
}
const parcel = (reference: string, id: string): ToSign => ({
  source: "carrier",
  id,
  body: { type: "parcel.collected", data: { reference, parcel: "parcel-of-the-body" } },
});
const deployment = (id: string): ToSign => ({
  source: "github",
  id,
  headers: { "X-GitHub-Event": "push" },
  body: { deployment: null },
});
/** A body that its source's schema doesn't take. */
const broken = (id: string): ToSign => ({ source: "carrier", id, body: { type: "parcel.collected" } });

interface Run {
  readonly code: unknown;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs the script. None of what it prints may hold a secret, and an error is a message and no stack. */
function run(args: readonly string[], env: NodeJS.ProcessEnv = { DATABASE_URL: db.workerUrl }): Promise<Run> {
  const script = path.resolve(import.meta.dirname, "../../scripts/deliveries.ts");
  const options = { env: { ...process.env, DATABASE_URL: "", ...SOURCE_SECRETS, ...env } };
  return new Promise((resolve) =>
    execFile(process.execPath, [script, ...args], options, (thrown, stdout, stderr) => {
      for (const secret of Object.values(SOURCE_SECRETS)) expect(stdout + stderr).not.toContain(secret);
      expect(stdout + stderr).not.toMatch(/postgres(ql)?:\/\/[^ u]|hunter2|\n {4}at /);
      resolve({ code: thrown?.code ?? 0, stdout, stderr });
    }),
  );
}
const linesOf = ({ stdout }: Run): Record<string, unknown>[] =>
  stdout
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line));

describe("list", () => {
  beforeEach(async () => {
    expect(await receive(parcel("o-1", "d-1"))).toBe("parked");
    expect(await receive(deployment("d-2"))).toBe("ignored");
    expect(await receive(broken("d-3"))).toBe("delivery_failed");
  });

  test("one line each, in the order in which they came, without bodies", async () => {
    const listed = await run(["list"]);
    expect(listed).toMatchObject({ code: 0, stderr: "" });
    expect(linesOf(listed).map((line) => [line.source, line.deliveryId, line.state])).toEqual([
      ["carrier", "d-1", "parked"],
      ["github", "d-2", "ignored"],
      ["carrier", "d-3", "failed"],
    ]);
    expect(listed.stdout).not.toContain("parcel-of-the-body");
  });
  test("of a source, of a state, of both; none is no error", async () => {
    const ids = async (...args: string[]) =>
      linesOf(await run(["list", ...args])).map((line) => line.deliveryId);
    expect(await ids("--source", "carrier")).toEqual(["d-1", "d-3"]);
    expect(await ids("--source", "carrier", "--state", "failed")).toEqual(["d-3"]);
    expect(await run(["list", "--state", "late"])).toEqual({ code: 0, stdout: "", stderr: "" });
  });
  test("a page at a time: stderr says where the next one begins", async () => {
    const first = await run(["list", "--limit", "2"]);
    expect(linesOf(first)).toHaveLength(2);
    const after = /^There are more: --after ([0-9]+)\n$/.exec(first.stderr)?.[1] ?? expect.fail(first.stderr);
    const second = await run(["list", "--limit", "2", "--after", after]);
    expect(linesOf(second).map((line) => line.deliveryId)).toEqual(["d-3"]);
    expect(second.stderr).toBe("");
  });
});

describe("show", () => {
  test("all of one: its body, what it means and what it is for", async () => {
    await receive(parcel("o-1", "d-1"));
    const shown = await run(["show", "carrier", "d-1"]);
    expect(shown).toMatchObject({ code: 0, stderr: "" });
    expect(JSON.parse(shown.stdout)).toMatchObject({
      source: "carrier",
      deliveryId: "d-1",
      state: "parked",
      target: { correlationKey: "o-1" },
      meaning: { type: "resolve", payload: { parcel: "parcel-of-the-body" } },
      body: JSON.stringify(parcel("o-1", "d-1").body),
    });
    // Nothing that could be sent again: the signature isn't kept.
    expect(shown.stdout).not.toMatch(/signature/i);
  });
  test("there is none: exit code 1", async () => {
    await receive(parcel("o-1", "d-1"));
    expect(await run(["show", "github", "d-1"])).toEqual({
      code: 1,
      stdout: "",
      stderr: "There is no such delivery.\n",
    });
  });
});

describe("replay", () => {
  const client = () => createClient({ database: pgDatabase(db.workerPool), registry });
  const charge = () =>
    client().park(
      "charge_card",
      { orderId: "o-1", email: "a@b.example", amountCents: 1 },
      { source: "stripe" },
    );
  const paid = (callbackId: string | null): ToSign => ({
    source: "stripe",
    body: {
      id: "evt_1",
      type: "payment_intent.succeeded",
      data: { object: { id: "pi_1", metadata: { callback_id: callbackId } } },
    },
  });
  const withAmount = (amount: string) =>
    db.pool.query(`UPDATE awa_edge.jobs SET args = jsonb_set(args, '{amountCents}', $1::jsonb)`, [amount]);

  test("after a fault was mended: it moves its job, and says so; a second time it is left alone", async () => {
    const { jobId, callbackId } = await charge();
    await withAmount('"a lot"');
    expect(await receive(paid(callbackId))).toBe("delivery_failed");
    const again = await run(["replay", "stripe", "evt_1"]);
    expect([again.code, linesOf(again)]).toEqual([1, [expect.objectContaining({ status: "failed" })]]);
    expect(again.stderr).toBe("It failed again: npm run deliveries -- show stripe evt_1\n");
    await withAmount("4200");
    const mended = await run(["replay", "stripe", "evt_1"]);
    expect(mended).toMatchObject({ code: 0, stderr: "" });
    // Behind what the hooks of the registry print. The job's args and result aren't in it.
    expect(linesOf(mended).at(-1)).toEqual({
      status: "moved",
      jobId,
      kind: "charge_card",
      state: "completed",
      followUps: [
        expect.objectContaining({ kind: "send_receipt" }),
        expect.objectContaining({ kind: "ship_order" }),
      ],
    });
    expect(await client().getJob(jobId)).toMatchObject({ state: "completed", result: { chargeId: "pi_1" } });
    const third = await run(["replay", "stripe", "evt_1"]);
    expect([third.code, linesOf(third)]).toEqual([0, [{ status: "already_resolved" }]]);
    const followUps = await client().getFollowUps(jobId);
    expect(followUps.filter(({ trigger }) => trigger?.outcome === "completed")).toHaveLength(2);
  });

  test("all of a state, of one source: counted by what they came to", async () => {
    await receive(deployment("d-1"));
    await receive(broken("d-2"));
    await receive(broken("d-3"));
    const replayed = await run(["replay", "--state", "failed", "--source", "carrier"]);
    expect(replayed).toMatchObject({ code: 0, stderr: "" });
    expect(linesOf(replayed)).toEqual([{ failed: 2 }]);
    expect(linesOf(await run(["replay", "--state", "ignored"]))).toEqual([{ ignored: 1 }]);
  });

  test("there is none: exit code 1", async () => {
    expect(await run(["replay", "stripe", "evt_1"])).toEqual({
      code: 1,
      stdout: "",
      stderr: "There is no such delivery.\n",
    });
  });
});

describe("what can't be", () => {
  const usage = /^npm run deliveries -- list/;
  test.each<[string, readonly string[], RegExp]>([
    ["nothing at all", [], usage],
    ["no such command", ["delete"], usage],
    ["show without an id", ["show", "stripe"], usage],
    ["replay of everything", ["replay"], usage],
    ["replay of what had its effect", ["replay", "--state", "resolved"], usage],
    ["no such state", ["list", "--state", "done"], /^--state is one of: resolved, ignored, parked, late/],
    ["no such option", ["list", "--sort", "id"], /--sort/],
    ["a limit that is no number", ["list", "--limit", "many"], /^limit must be/],
  ])("%s: exit code 1, and what would be right", async (_, args, error) => {
    const { code, stdout, stderr } = await run(args);
    expect([code, stdout]).toEqual([1, ""]);
    expect(stderr).toMatch(error);
  });

  test("no database, or one that can't be had: exit code 1, and nothing of the URL", async () => {
    const wrong = new URL(db.url);
    wrong.password = "hunter2";
    const missing = new URL(db.url);
    missing.pathname = "/awa_no_such_database";
    for (const [url, error] of [
      [wrong.href, /SQLSTATE 28P01/],
      [missing.href, /SQLSTATE 3D000/],
      // As Neon has it: `pg` would print a warning about it.
      ["postgres://ada:hunter2@127.0.0.1:1/db?sslmode=require", /database error: unavailable/],
      ["https://ada:hunter2@127.0.0.1/db", /DATABASE_URL is not a postgres:\/\/ URL/],
    ] as const) {
      const { code, stdout, stderr } = await run(["list"], { DATABASE_URL: url });
      expect([code, stdout]).toEqual([1, ""]);
      expect(stderr).toMatch(error);
      expect(stderr.trim().split("\n")).toHaveLength(1);
    }
  });
});
