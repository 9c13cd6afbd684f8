import { describe, expect, test } from "vitest";
import { parseEnv } from "../../src/shared/env.ts";
import { parseWorkerEnv } from "../../src/shared/worker-env.ts";

const good = {
  DATABASE_URL: "postgres://user:hunter2@ep-x.neon.tech/db",
  AWA_CALLBACK_HMAC_SECRET: `${"ab".repeat(32)},${"CD".repeat(32)}`,
};
const problemOf = (env: Record<string, unknown>): string => {
  const config = parseEnv({ ...good, ...env });
  const problem = [config.database, config.callbacks, config.retention].find((part) => !part.ok);
  return problem?.ok === false ? problem.error : "";
};

test("everything set: parsed, with defaults", () => {
  expect(parseEnv(good)).toEqual({
    database: { ok: true, value: { connectionString: good.DATABASE_URL, fetchEndpoint: undefined } },
    callbacks: {
      ok: true,
      value: { secrets: ["ab".repeat(32), "cd".repeat(32)], pathPrefix: "/api/callbacks", baseUrl: null },
    },
    retention: {
      ok: true,
      value: {
        completedSeconds: 86_400,
        failedSeconds: 259_200,
        deadLetterSeconds: 2_592_000,
        deliverySeconds: 604_800,
        parkedDeliverySeconds: 604_800,
      },
    },
  });
});

test("unsigned mode is switched on by name, and prefixes are normalised", () => {
  expect(
    parseEnv({
      AWA_CALLBACK_ALLOW_UNSIGNED: "true",
      AWA_CALLBACK_PATH_PREFIX: "hooks/in/",
      AWA_CALLBACK_BASE_URL: "https://edge.example/below/",
    }).callbacks,
  ).toEqual({
    ok: true,
    value: { secrets: [], pathPrefix: "/hooks/in", baseUrl: "https://edge.example/below" },
  });
});

describe("a wrong value: the variable is named, its content isn't", () => {
  test.each<[string, unknown, RegExp]>([
    ["DATABASE_URL", undefined, /is not set/],
    ["DATABASE_URL", "mysql://user:hunter2@host/db", /is not a postgres:\/\/user/],
    ["DATABASE_URL", "postgres://hunter2", /is not a postgres:\/\/user/],
    ["DATABASE_URL", " postgres://user:hunter2@host/db", /white space/],
    ["DATABASE_URL", { hunter2: 1 }, /not a text variable/],
    ["NEON_FETCH_ENDPOINT", "hunter2", /not an http/],
    ["AWA_CALLBACK_HMAC_SECRET", "", /is not set: set it with .*64 hexadecimal digits/],
    ["AWA_CALLBACK_HMAC_SECRET", "hunter2", /64 hexadecimal digits/],
    ["AWA_CALLBACK_HMAC_SECRET", `${"ab".repeat(32)},hunter2`, /64 hexadecimal digits/],
    ["AWA_CALLBACK_HMAC_SECRET", `${"ab".repeat(32)}\n`, /white space/],
    ["AWA_CALLBACK_HMAC_SECRET", `${"ab".repeat(32)}, ${"cd".repeat(32)}`, /white space/],
    ["AWA_CALLBACK_ALLOW_UNSIGNED", "yes-hunter2", /neither true nor false/],
    ["AWA_CALLBACK_ALLOW_UNSIGNED", "true", /contradict/],
    ["AWA_CALLBACK_PATH_PREFIX", "/a b/hunter2", /is not a path/],
    ["AWA_CALLBACK_PATH_PREFIX", "/:hunter2", /is not a path/],
    ["AWA_CALLBACK_BASE_URL", "edge.example/hunter2", /is not an http\(s\) URL/],
    ["AWA_CALLBACK_BASE_URL", "https://user:hunter2@edge.example", /is not an http\(s\) URL/],
    ["AWA_CALLBACK_BASE_URL", "https://edge.example/?hunter2", /is not an http\(s\) URL/],
    ["AWA_COMPLETED_RETENTION_SECONDS", "1d-hunter2", /whole number/],
    ["AWA_FAILED_RETENTION_SECONDS", "-1", /whole number/],
    ["AWA_DEAD_LETTER_RETENTION_SECONDS", "9999999999", /up to 3153600000/],
  ])("%s = %j", (name, value, message) => {
    const problem = problemOf({ [name]: value });
    expect(problem).toContain(name);
    expect(problem).toMatch(message);
    expect(problem).not.toContain("hunter2");
    expect(problem).not.toContain("ab".repeat(32));
  });
});

describe("a long-lived worker", () => {
  test("defaults, and everything set", () => {
    expect(parseWorkerEnv({})).toEqual({
      ok: true,
      value: { port: 8788, host: "127.0.0.1", graceSeconds: 25, concurrency: null },
    });
    const env = {
      AWA_WORKER_PORT: "0",
      AWA_WORKER_HOST: "0.0.0.0",
      AWA_WORKER_GRACE_SECONDS: "600",
      AWA_WORKER_CONCURRENCY: "4",
    };
    expect(parseWorkerEnv(env)).toEqual({
      ok: true,
      value: { port: 0, host: "0.0.0.0", graceSeconds: 600, concurrency: 4 },
    });
  });

  test.each([
    ["AWA_WORKER_PORT", "65536"],
    ["AWA_WORKER_PORT", "hunter2"],
    ["AWA_WORKER_GRACE_SECONDS", "-1"],
    ["AWA_WORKER_GRACE_SECONDS", "1.5"],
    ["AWA_WORKER_CONCURRENCY", "0"],
    ["AWA_WORKER_CONCURRENCY", "1001"],
    ["AWA_WORKER_HOST", " hunter2"],
  ])("%s = %j: named, and not quoted", (name, value) => {
    const parsed = parseWorkerEnv({ [name]: value });
    const problem = parsed.ok ? "" : parsed.error;
    expect(problem).toMatch(
      new RegExp(`^${name} (is not a whole number from|begins or ends with white space)`),
    );
    expect(problem).not.toContain("hunter2");
  });
});
