import path from "node:path";
import { cloudflareTest } from "@cloudflare/vitest-plugin";
import { defineConfig } from "vitest/config";
import { readDevVars } from "./scripts/lib/dev-vars.ts";
import { ADDRESS_LIMIT, SOURCE_LIMIT } from "./test/support/limits.ts";
import { TEST_CALLBACK_SECRET } from "./test/support/secrets.ts";
import { SOURCE_SECRETS } from "./test/support/signed.ts";

// A developer's own settings must not reach the Worker under test: what .dev.vars sets is emptied, which counts as not
// set, and .env isn't looked at.
process.env.CLOUDFLARE_LOAD_DEV_VARS_FROM_DOT_ENV = "false";
// Scripts that tests start are compiled once, and not by each process.
process.env.NODE_COMPILE_CACHE ??= path.resolve(import.meta.dirname, "node_modules/.cache/node");
const emptied = Object.fromEntries(
  [...readDevVars(path.resolve(import.meta.dirname, ".dev.vars")).keys()].map((name) => [name, ""]),
);

const globalSetup = ["./test/support/global-setup.ts"];

export default defineConfig({
  test: {
    // The Worker's log lines are of interest where a test fails.
    silent: "passed-only",
    // Vitest would leave one processor free; most of these tests wait for Postgres anyway.
    maxWorkers: "100%",
    projects: [
      {
        // Pure code: its modules are loaded once for all files.
        test: { name: "unit", environment: "node", include: ["test/unit/**/*.test.ts"], isolate: false },
      },
      {
        test: {
          name: "db",
          environment: "node",
          include: ["test/db/**/*.test.ts"],
          globalSetup,
          testTimeout: 20_000,
          hookTimeout: 60_000,
        },
      },
      {
        plugins: [
          cloudflareTest(({ inject }) => ({
            wrangler: { configPath: "./wrangler.toml" },
            remoteBindings: false,
            miniflare: {
              bindings: {
                ...emptied,
                DATABASE_URL: inject("workersDatabaseUrl"),
                NEON_FETCH_ENDPOINT: inject("neonEndpoint"),
                AWA_CALLBACK_HMAC_SECRET: TEST_CALLBACK_SECRET,
                ...SOURCE_SECRETS,
                // The tests' own, for what the Worker's role may not do.
                TEST_OWNER_URL: inject("workersOwnerUrl"),
              },
              ratelimits: {
                AWA_WEBHOOK_SOURCE_LIMITER: {
                  namespace_id: "1001",
                  simple: { limit: SOURCE_LIMIT, period: 60 },
                },
                AWA_WEBHOOK_ADDRESS_LIMITER: {
                  namespace_id: "1002",
                  simple: { limit: ADDRESS_LIMIT, period: 60 },
                },
              },
            },
          })),
        ],
        test: {
          name: "workers",
          include: ["test/workers/**/*.test.ts"],
          globalSetup,
          testTimeout: 20_000,
          hookTimeout: 60_000,
        },
      },
      {
        test: {
          name: "types",
          environment: "node",
          include: [],
          typecheck: {
            enabled: true,
            only: true,
            checker: "tsc",
            include: ["test/types/**/*.test-d.ts"],
            tsconfig: "./tsconfig.node.json",
          },
        },
      },
    ],
  },
});
