import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import path from "node:path";
import { expect, inject, test } from "vitest";
import { canary, secretsOf, shownIn } from "../../support/canaries.ts";

// What processes print, and what the platform would: no password, connection string or secret. `npm run sign` isn't among them: it is there
// to print a signature, and its own test sees that it prints no secret.

const REPOSITORY = path.resolve(import.meta.dirname, "../../..");
const password = canary("password");
const secrets = {
  AWA_CALLBACK_HMAC_SECRET: randomBytes(32).toString("hex"),
  STRIPE_WEBHOOK_SECRET: `whsec_${canary("stripe")}`,
  GITHUB_WEBHOOK_SECRET: canary("github"),
};
const { host } = new URL(inject("serverUrl"));

/** Runs a command with a database that can't be, to its end. @returns its exit code, and all that it printed */
function run(
  script: string,
  args: readonly string[],
  url: string,
): Promise<{ code: unknown; printed: string }> {
  const env = { PATH: process.env.PATH, DATABASE_URL: url, ...secrets };
  return new Promise((resolve) => {
    execFile(
      process.execPath,
      [path.join(REPOSITORY, "scripts", script), ...args],
      { env },
      (thrown, out, err) => resolve({ code: thrown?.code ?? 0, printed: out + err }),
    );
  });
}

test("each command, with a database that it can't have: it ends with 1 and a message", async () => {
  const urls = [
    `postgres://postgres:${password}@${host}/postgres`,
    `postgres://postgres:${password}%ZZ@127.0.0.1:1/postgres`,
    `postgres://postgres:${password}@127.0.0.1:99999/postgres`,
    `host=127.0.0.1 password=${password}`,
    `postgres://postgres:${password}@127.0.0.1/postgres?sslrootcert=/${password}`,
  ];
  const commands: [script: string, args: readonly string[], url: string | undefined][] = [
    ["migrate.ts", [], urls[4]],
    ["worker.ts", [], urls[0]],
    ["deliveries.ts", ["list"], urls[1]],
    ["deliveries.ts", ["replay", "--state", "failed"], urls[2]],
    ["db.ts", [], urls[1]],
  ];
  const ended = await Promise.all(commands.map(([script, args, url = ""]) => run(script, args, url)));
  // By itself: like `db` it takes .dev.vars for its own first.
  ended.push(await run("dev.ts", [], urls[3] ?? ""));
  expect(ended.map(({ code }) => code)).toEqual([...commands.map(() => 1), 1]);
  expect(ended.filter(({ printed }) => printed === "" || / {4}at /.test(printed))).toEqual([]);
  const hidden = secretsOf({ ...secrets, password, ...Object.fromEntries(urls.entries()) });
  expect(
    shownIn(
      ended.map(({ printed }) => printed),
      hidden,
    ),
  ).toEqual([]);
}, 60_000);

test("the platform keeps no line of its own for a request, which would have its URL and headers", () => {
  const config = readFileSync(path.join(REPOSITORY, "wrangler.toml"), "utf8");
  expect(config).toMatch(/^\[observability\]\nenabled = true\nredact_query_string = true\n/m);
  expect(config).toMatch(/^\[observability\.logs\]\nenabled = true\ninvocation_logs = false\n/m);
});
