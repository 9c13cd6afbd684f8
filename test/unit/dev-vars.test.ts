import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { readDevVars, updateDevVars } from "../../scripts/lib/dev-vars.ts";

const database = { databaseUrl: "postgres://a:b@127.0.0.1:1/c?d=e", neonEndpoint: "http://127.0.0.1:2/sql" };
let folder: string;
let file: string;

beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), "awa-edge-dev-vars-"));
  file = path.join(folder, ".dev.vars");
});
afterEach(() => rmSync(folder, { recursive: true }));

test("without a file: the database, its endpoint and a secret, for this user's eyes only", () => {
  const vars = updateDevVars(file, database);
  expect(Object.fromEntries(vars)).toEqual({
    DATABASE_URL: database.databaseUrl,
    NEON_FETCH_ENDPOINT: database.neonEndpoint,
    AWA_CALLBACK_HMAC_SECRET: expect.stringMatching(/^[0-9a-f]{64}$/),
  });
  expect(statSync(file).mode & 0o777).toBe(0o600);
});

test("a second time changes nothing, least of all the secret", () => {
  updateDevVars(file, database);
  const before = readFileSync(file, "utf8");
  updateDevVars(file, database);
  expect(readFileSync(file, "utf8")).toBe(before);
});

test("every other line stays, and all the lines of a variable are replaced", () => {
  writeFileSync(
    file,
    "# mine\n\nSHOP_SECRET='x=y'\nDATABASE_URL=old\n  export DATABASE_URL = older # why\nMY_DATABASE_URL=kept\nAWA_CALLBACK_HMAC_SECRET=abc",
    { mode: 0o644 },
  );
  updateDevVars(file, database);
  const line = `DATABASE_URL="${database.databaseUrl}"`;
  expect(readFileSync(file, "utf8")).toBe(
    `# mine\n\nSHOP_SECRET='x=y'\n${line}\n${line}\nMY_DATABASE_URL=kept\nAWA_CALLBACK_HMAC_SECRET=abc\nNEON_FETCH_ENDPOINT="${database.neonEndpoint}"\n`,
  );
  expect(statSync(file).mode & 0o777).toBe(0o600);
});

test("no secret where unsigned callbacks were switched on; one where the line is empty", () => {
  writeFileSync(file, "AWA_CALLBACK_ALLOW_UNSIGNED=true\n");
  expect(updateDevVars(file, database).has("AWA_CALLBACK_HMAC_SECRET")).toBe(false);
  writeFileSync(file, "AWA_CALLBACK_HMAC_SECRET=\n");
  expect(updateDevVars(file, database).get("AWA_CALLBACK_HMAC_SECRET")).toHaveLength(64);
});

test("no file reads as no variables", () => {
  expect(readDevVars(file).size).toBe(0);
});

describe("defaults", () => {
  const defaults = new Map([
    ["STRIPE_WEBHOOK_SECRET", "whsec_random"],
    ["GITHUB_WEBHOOK_SECRET", "random+/="],
  ]);
  const given = (vars: ReadonlyMap<string, string>) => [...defaults.keys()].map((name) => vars.get(name));

  test("stand in for what the file doesn't have, and stay from then on", () => {
    expect(given(updateDevVars(file, database, defaults))).toEqual([...defaults.values()]);
    const before = readFileSync(file, "utf8");
    updateDevVars(file, database, new Map([...defaults.keys()].map((name) => [name, "another"])));
    expect(readFileSync(file, "utf8")).toBe(before);
  });
  test("what the file has is kept, to the letter; an empty or commented line counts as none", () => {
    writeFileSync(file, "STRIPE_WEBHOOK_SECRET = 'mine, $1'  # of the dashboard\nGITHUB_WEBHOOK_SECRET=\n");
    expect(given(updateDevVars(file, database, defaults))).toEqual(["mine, $1", "random+/="]);
    expect(readFileSync(file, "utf8")).toContain(
      "STRIPE_WEBHOOK_SECRET = 'mine, $1'  # of the dashboard\nGITHUB_WEBHOOK_SECRET=\"random+/=\"\n",
    );
    writeFileSync(file, "# STRIPE_WEBHOOK_SECRET=old\nMY_GITHUB_WEBHOOK_SECRET=kept\n");
    expect(given(updateDevVars(file, database, defaults))).toEqual([...defaults.values()]);
    expect(readFileSync(file, "utf8")).toMatch(
      /^# STRIPE_WEBHOOK_SECRET=old\nMY_GITHUB_WEBHOOK_SECRET=kept\n/,
    );
  });
  test("without defaults nothing of the kind is written", () => {
    expect(given(updateDevVars(file, database))).toEqual([undefined, undefined]);
  });
});
