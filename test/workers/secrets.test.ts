import { createExecutionContext, createScheduledController, waitOnExecutionContext } from "cloudflare:test";
import { expect, test, vi } from "vitest";
import worker from "../../src/index.ts";
import { type Canary, canary, secretsOf, shownIn } from "../support/canaries.ts";
import { bindings, ORIGIN } from "./worker.ts";

// Whatever is wrong with the bindings: it is said which, and nothing of what is in them. What the Worker prints is taken before it is
// loaded, as its log keeps to the console that it finds then.
const printed = vi.hoisted(() => {
  const lines: string[] = [];
  for (const method of ["log", "info", "warn", "error", "debug"] as const)
    console[method] = (...args: unknown[]) => void lines.push(args.map(String).join(" "));
  return lines;
});

const wrong = canary("wrong");
const good = {
  // Nobody of that name may come in.
  DATABASE_URL: `postgres://nobody:${canary("password")}@localhost/postgres`,
  AWA_CALLBACK_HMAC_SECRET: "5ec1".repeat(16),
  STRIPE_WEBHOOK_SECRET: `whsec_${canary("stripe")}`,
  GITHUB_WEBHOOK_SECRET: canary("github"),
  CARRIER_WEBHOOK_SECRET: "whsec_Q2FuYXJ5T2ZUaGVDYXJyaWVyU29tZXdoZXJl",
  REPLICATE_WEBHOOK_SECRET: "whsec_Q2FuYXJ5T2ZSZXBsaWNhdGVTb21ld2hlcmU5",
};
const CANARIES: readonly Canary[] = secretsOf({ ...good, wrong });

/** Asks everything of it, and has it tick. @returns all that came out */
async function goThrough(changed: Readonly<Record<string, unknown>>): Promise<readonly string[]> {
  printed.length = 0;
  const env = { ...bindings, ...good, ...changed };
  const context = createExecutionContext();
  const said: string[] = [];
  for (const [method, at] of [
    ["GET", "/readyz"],
    ["POST", `/api/callbacks/${crypto.randomUUID()}/complete`],
    ...["stripe", "github", "carrier", "replicate"].map((source) => ["POST", `/webhooks/${source}`] as const),
  ] as const) {
    const response = await worker.fetch(new Request(`${ORIGIN}${at}?x=${wrong}`, { method }), env, context);
    said.push(`${JSON.stringify([...response.headers])} ${await response.text()}`);
  }
  await worker.scheduled(createScheduledController(), env, context).catch((thrown) => {
    said.push(`${thrown} ${thrown.stack} ${JSON.stringify(thrown)}`);
  });
  await waitOnExecutionContext(context);
  return [...said, ...printed];
}

test.each([
  "DATABASE_URL",
  "NEON_FETCH_ENDPOINT",
  "AWA_CALLBACK_HMAC_SECRET",
  "AWA_CALLBACK_BASE_URL",
  "AWA_COMPLETED_RETENTION_SECONDS",
  "CARRIER_WEBHOOK_SECRET",
])("a wrong %s is named, and not quoted", async (name) => {
  for (const value of [`${wrong} `, `ftp://me:${wrong}@h`]) {
    const out = await goThrough({ [name]: value });
    expect(out.join()).toContain(name);
    expect(shownIn(out, CANARIES)).toEqual([]);
  }
});

test("with all of it right, and a database that refuses us: neither a secret nor the database's URL comes out", async () => {
  const out = await goThrough({});
  expect(out.join()).toContain("database_unavailable");
  expect(out.join()).toContain("tasks of the tick failed");
  expect(out.join()).not.toContain("unsigned_callbacks");
  expect(shownIn(out, CANARIES)).toEqual([]);
});

test("each tick warns while callbacks are accepted unsigned", async () => {
  const out = await goThrough({ AWA_CALLBACK_HMAC_SECRET: "", AWA_CALLBACK_ALLOW_UNSIGNED: "true" });
  expect(out.join()).toContain('"level":"warn","event":"unsigned_callbacks"');
});
