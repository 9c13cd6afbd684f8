import { runTick, TASKS } from "./cron/scheduled.ts";
import type { ExecutorDeps } from "./executor/deps.ts";
import { nudge } from "./executor/nudge.ts";
import { createApp } from "./ingress/app.ts";
import { registry } from "./registry.ts";
import { neonDatabase } from "./shared/db/neon.ts";
import { countRoundTrips, type Database } from "./shared/db/port.ts";
import { DEFAULT_RETENTION } from "./shared/db/statements/delete-ended.ts";
import { type Bindings, type Config, parseEnv } from "./shared/env.ts";
import { jsonLog } from "./shared/log.ts";
import { parseRateLimits, parseSources } from "./shared/source-env.ts";

const log = jsonLog();
const clock = () => Date.now();

/** One app for each set of bindings, which in production is one for each isolate. It keeps no connection. */
const apps = new WeakMap<Bindings, ReturnType<typeof createApp>>();

function appFor(env: Bindings) {
  let app = apps.get(env);
  if (app === undefined) {
    const config = parseEnv(env);
    app = createApp({
      config,
      registry,
      log,
      clock,
      now: () => Date.now(),
      sources: parseSources(env, registry.sources()),
      rateLimits: parseRateLimits(env),
      fetch: (request) => fetch(request),
      database: databaseOf(config),
      nudge: (queues, defer) => nudge(executorOf(config, env, defer), queues),
    });
    apps.set(env, app);
  }
  return app;
}

/** Opens a database for one invocation. @throws Error where DATABASE_URL is wrong: callers look at the config first */
function databaseOf({ database }: Config): () => Database {
  return () => {
    if (!database.ok) throw new Error(database.error);
    return neonDatabase(database.value);
  };
}

/** What running jobs takes, for one invocation. */
function executorOf(config: Config, env: Bindings, defer: (work: Promise<void>) => void): ExecutorDeps {
  return {
    database: countRoundTrips(databaseOf(config)),
    registry,
    log,
    clock,
    env,
    callbacks: config.callbacks.ok ? config.callbacks.value : null,
    defer,
  };
}

export default {
  fetch(request, env, ctx) {
    return appFor(env).fetch(request, env, ctx);
  },

  /** The tick. Rejects where a task failed, after all have run, so that the platform counts the invocation as failed. */
  async scheduled(_controller, env, ctx) {
    const config = parseEnv(env);
    for (const part of [config.database, config.retention]) {
      if (!part.ok) log({ level: "error", event: "misconfigured", reason: part.error });
    }
    if (config.callbacks.ok && config.callbacks.value.secrets.length === 0) {
      const reason = "AWA_CALLBACK_ALLOW_UNSIGNED is true: for development only";
      log({ level: "warn", event: "unsigned_callbacks", reason });
    }
    if (!config.database.ok) throw new Error(config.database.error);
    const results = await runTick(
      {
        ...executorOf(config, env, (work) => ctx.waitUntil(work)),
        database: databaseOf(config),
        retention: config.retention.ok ? config.retention.value : DEFAULT_RETENTION,
      },
      // A wrong period must not delete anything early: without a whole configuration nothing is deleted at all.
      config.retention.ok ? TASKS : TASKS.filter((task) => task.name !== "retention"),
    );
    const failed = results.filter((result) => !result.ok).map((result) => result.task);
    if (failed.length > 0) throw new Error(`tasks of the tick failed: ${failed.join(", ")}`);
  },
} satisfies ExportedHandler<Bindings>;
