import pg from "pg";
import type { ExecutorDeps } from "../../src/executor/deps.ts";
import { Heart } from "../../src/executor/heart.ts";
import { Latch } from "../../src/executor/latch.ts";
import { runWorker } from "../../src/executor/worker.ts";
import { pgDatabase } from "../../src/shared/db/pg.ts";
import type { Database } from "../../src/shared/db/port.ts";
import { readSchemaVersion, whyOtherSchema } from "../../src/shared/db/statements/read-schema-version.ts";
import { type Bindings, parseEnv } from "../../src/shared/env.ts";
import { jsonLog } from "../../src/shared/log.ts";
import type { RegistryView } from "../../src/shared/registry/define.ts";
import type { RegisteredQueue } from "../../src/shared/registry/handler.ts";
import { messageOf, nameOf } from "../../src/shared/thrown.ts";
import { parseWorkerEnv, type WorkerConfig } from "../../src/shared/worker-env.ts";
import { withExplicitSslMode } from "./connection-string.ts";
import { serveHealth, whyNotReady } from "./health.ts";
import { runUntilStopped, type Scope, type Strays } from "./lifecycle.ts";
import { listen } from "./listen.ts";

/** Statements are short: a few connections serve many handlers. */
const MAX_CONNECTIONS = 10;
const CONNECT_TIMEOUT_MS = 10_000;
const STATEMENT_TIMEOUT_MS = 10_000;
/** No answer by then, after Postgres would have given up: the connection is gone without a word. */
const ANSWER_TIMEOUT_MS = 15_000;

/**
 * Runs the queues of a registry in this process, until SIGTERM or Ctrl-C; then drains, and ends the process with exit code 0.
 *
 * @param env the environment, which handlers find in `ctx.env`
 */
export function runWorkerProcess(registry: RegistryView, env: Bindings): Promise<never> {
  const log = jsonLog();
  // What a handler left behind. Of neither is more told than of what it throws.
  const strays: Strays = {
    // A promise that nobody waits for mustn't take the others down with it.
    onRejection: (thrown) => log({ level: "error", event: "unhandled_rejection", reason: nameOf(thrown) }),
    describeException: (thrown) => `The worker ends: nobody caught an exception (${nameOf(thrown)}).`,
  };
  return runUntilStopped(async (scope) => {
    const worker = settle(parseWorkerEnv(env));
    const config = parseEnv(env);
    const { connectionString } = settle(config.database);
    // Without a secret callbacks come unsigned, which is for the handlers to mind; with a wrong one they would be refused.
    const isSecretSet = env.AWA_CALLBACK_HMAC_SECRET !== undefined && env.AWA_CALLBACK_HMAC_SECRET !== "";
    const isAllElseFine = parseEnv({ ...env, AWA_CALLBACK_HMAC_SECRET: "0".repeat(64) }).callbacks.ok;
    if (!config.callbacks.ok && (isSecretSet || !isAllElseFine)) throw new Error(config.callbacks.error);
    if (new URL(connectionString).hostname.includes("-pooler.")) {
      throw new Error(
        'DATABASE_URL goes through Neon\'s pooler, which delivers no wake-ups: use the direct connection (the same host name without "-pooler").',
      );
    }
    const queues = queuesOf(registry, worker);

    const connection = {
      connectionString: withExplicitSslMode(connectionString),
      connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
    };
    const database = await openDatabase(scope, connection);
    const deps: ExecutorDeps = {
      database,
      registry,
      log,
      clock: () => performance.now(),
      env,
      callbacks: config.callbacks.ok ? config.callbacks.value : null,
      defer: (work) => void work,
    };
    if (deps.callbacks === null) log({ level: "warn", event: "misconfigured", reason: UNSIGNED });
    await serve(scope, deps, connection, queues, worker);
  }, strays);
}

const UNSIGNED = "AWA_CALLBACK_HMAC_SECRET is not set: callbacks of handlers come without URL and signature";

async function serve(
  scope: Scope,
  deps: ExecutorDeps,
  connection: pg.ClientConfig,
  queues: readonly RegisteredQueue[],
  { host, port, graceSeconds }: WorkerConfig,
): Promise<void> {
  const { log, database, clock } = deps;
  let lastDoneMs: number | null = null;
  const working = {
    ...deps,
    database: observed(database, () => {
      lastDoneMs = clock();
    }),
  };
  const heart = new Heart(working);
  const wakeUp = new Latch();
  const health = await serveHealth({ host, port }, async () => {
    const running = heart.attempts.size;
    if (scope.signal.aborted) return { isReady: false, status: "draining", running };
    const schemaVersion = await database.query(readSchemaVersion()).catch(() => undefined);
    const fault = whyNotReady({ schemaVersion, lastDoneMs, nowMs: clock() });
    return { isReady: fault === null, status: fault ?? "ready", running };
  });
  scope.defer(() => health.close());

  const names = new Set(queues.map(({ queue }) => queue));
  scope.defer(
    listen(connection, {
      onWakeUp: (queue) => {
        if (names.has(queue)) wakeUp.set();
      },
      onEnded: (jobId, runLease) => heart.abortIfOurs(jobId, runLease),
      onReconnect: () => wakeUp.set(),
      onLost: () =>
        log({ level: "warn", event: "wake_ups_lost", reason: "polling until LISTEN works again" }),
    }),
  );

  const run = runWorker(working, { queues, heart, wakeUp, stop: scope.signal, graceMs: graceSeconds * 1000 });
  run.catch((thrown) => scope.fail(`The worker has failed: ${nameOf(thrown)}`));
  scope.defer(() => run);
  log({ level: "info", event: "worker_started", reason: `health at ${health.url}` });
}

/** A database that tells of each time it did what it was asked. */
function observed(database: Database, onDone: () => void): Database {
  return {
    async query(statement) {
      const result = await database.query(statement);
      onDone();
      return result;
    },
    async batch(statements) {
      const results = await database.batch(statements);
      onDone();
      return results;
    },
  };
}

/**
 * Opens the database of a worker, and closes it with the scope.
 *
 * @param answerTimeoutMs after which a statement without an answer fails as unavailable, and its connection is dropped
 * @throws Error that says what to do, where it can't be reached or its schema isn't this build's
 */
export async function openDatabase(
  scope: Pick<Scope, "defer">,
  connection: pg.ClientConfig,
  answerTimeoutMs: number = ANSWER_TIMEOUT_MS,
): Promise<Database> {
  const pool = new pg.Pool({
    ...connection,
    max: MAX_CONNECTIONS,
    statement_timeout: STATEMENT_TIMEOUT_MS,
    query_timeout: answerTimeoutMs,
  });
  // An idle connection that Postgres ends: the next statement takes another one.
  pool.on("error", () => undefined);
  scope.defer(() => pool.end());
  // It listens, so the connection is a direct one, and the same few statements run all day.
  const database = pgDatabase(pool, { prepares: true });
  const version = await database.query(readSchemaVersion()).catch((thrown: unknown) => {
    throw new Error(
      `The database of DATABASE_URL can't be used: ${messageOf(thrown)}. Is it up, and migrated (\`npm run migrate\`)?`,
    );
  });
  const mismatch = whyOtherSchema(version);
  if (mismatch !== null) throw new Error(mismatch);
  return database;
}

function queuesOf(registry: RegistryView, { concurrency }: WorkerConfig): readonly RegisteredQueue[] {
  const queues = registry.queues();
  if (queues.length === 0) {
    throw new Error(
      'The registry runs no queue: name those that this build runs, registry.queue("default").',
    );
  }
  return concurrency === null ? queues : queues.map((queue) => ({ ...queue, concurrency }));
}

function settle<T>(
  result: { readonly ok: true; readonly value: T } | { readonly ok: false; readonly error: string },
): T {
  if (!result.ok) throw new Error(result.error);
  return result.value;
}
