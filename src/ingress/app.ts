import type { MiddlewareHandler } from "hono";
import { Hono } from "hono/tiny";
import { DatabaseError } from "../shared/db/errors.ts";
import { countRoundTrips } from "../shared/db/port.ts";
import { nameOf } from "../shared/thrown.ts";
import { WEBHOOK_PATH } from "../shared/wait.ts";
import { limitBody } from "./body.ts";
import { type IngressContext, type IngressDeps, type IngressEnv, refuse } from "./context.ts";
import { complete } from "./routes/complete.ts";
import { fail } from "./routes/fail.ts";
import { healthz, readyz } from "./routes/health.ts";
import { heartbeat } from "./routes/heartbeat.ts";
import { retry } from "./routes/retry.ts";
import { admit, greet, webhook } from "./routes/webhook.ts";
import { authenticate } from "./signature.ts";
import type { Refusal } from "./wire-errors.ts";

/**
 * The HTTP surface: the four callback actions, webhooks and two health checks, nothing else. No UI, no admin routes, no CORS.
 *
 * The order of a callback's checks: route, method, configuration, signature, UUID, size, content type, encoding, JSON, shape;
 * then the database. Whatever refuses a request refuses it before the first statement.
 */
export function createApp(deps: IngressDeps): Hono<IngressEnv> {
  const app = new Hono<IngressEnv>();
  app.use(logRequest(deps));
  app.get("/healthz", healthz);
  app.get("/readyz", readyz(deps));
  for (const path of ["/healthz", "/readyz"])
    app.all(path, refuseAll({ type: "wrong_method", allow: "GET, HEAD" }));
  mountWebhooks(app, deps);
  mountCallbacks(app, deps);
  app.notFound(refuseAll({ type: "no_route" }));
  app.onError((error, c) => refuseThrown(c, error));
  return app;
}

function refuseThrown(c: IngressContext, thrown: unknown): Response {
  const sqlState = thrown instanceof DatabaseError ? thrown.sqlState : undefined;
  c.set("entry", { ...c.get("entry"), sqlState, reason: nameOf(thrown) });
  return refuse(c, { type: "thrown", error: thrown });
}

function mountCallbacks(app: Hono<IngressEnv>, deps: IngressDeps): void {
  const { callbacks, database } = deps.config;
  if (!callbacks.ok) {
    // The prefix may be what is wrong.
    app.post("*", refuseAll({ type: "misconfigured", problem: callbacks.error }));
    return;
  }
  const { pathPrefix } = callbacks.value;
  const actions = { complete: complete(deps), fail: fail(deps), retry: retry(deps), heartbeat: heartbeat() };
  for (const [action, handler] of Object.entries(actions)) {
    const path = `${pathPrefix}/:callback_id/${action}`;
    if (database.ok) app.post(path, authenticate(callbacks.value), limitBody, handler);
    else app.post(path, refuseAll({ type: "misconfigured", problem: database.error }));
    app.all(path, refuseAll({ type: "wrong_method", allow: "POST" }));
  }
}

/**
 * The order of a webhook's checks: source, rate limits, method, size, configuration of the source, UUID, signature; then the database. Its
 * body is read as bytes, once: anything that parsed it first would alter what was signed.
 */
function mountWebhooks(app: Hono<IngressEnv>, deps: IngressDeps): void {
  const { database } = deps.config;
  for (const path of [`${WEBHOOK_PATH}/:source`, `${WEBHOOK_PATH}/:source/:callback_id`]) {
    app.use(path, admit(deps));
    if (database.ok) app.post(path, limitBody, webhook(deps));
    else app.post(path, refuseAll({ type: "misconfigured", problem: database.error }));
    app.all(path, greet);
  }
}

function refuseAll(refusal: Refusal) {
  return (c: IngressContext): Response => refuse(c, refusal);
}

/** One line a request, written when its answer is ready. The path isn't in it: its query may hold a signature. */
function logRequest({ database, log, clock }: IngressDeps): MiddlewareHandler<IngressEnv> {
  return async (c, next) => {
    const startedAt = clock();
    const counted = countRoundTrips(database);
    c.set("database", counted);
    c.set("entry", {});
    try {
      await next();
    } catch (thrown) {
      // No Error: Hono lets that pass, and the platform would log it with all that it says.
      c.res = refuseThrown(c, thrown);
    }
    const { status } = c.res;
    log({
      level: status >= 500 ? "error" : status >= 400 ? "warn" : "info",
      event: "request",
      ...c.get("entry"),
      status,
      durationMs: clock() - startedAt,
      roundTrips: counted.roundTrips,
    });
  };
}
