import type { MiddlewareHandler } from "hono";
import type { KeptHeaders } from "../../shared/delivery.ts";
import { type CallbackId, parseCallbackId } from "../../shared/ids.ts";
import { CONTENT_TYPE, interpret, type RegisteredSource } from "../../shared/registry/source.ts";
import { err, ok, type Result, unreachable } from "../../shared/result.ts";
import type { RateLimiter, RateLimits } from "../../shared/source-env.ts";
import { type Receipt, receiveDelivery } from "../../shared/use-cases/receive-delivery.ts";
import { deliveryIdOf } from "../../shared/webhooks/delivery-id.ts";
import type { HandshakeAnswer, VerifiedRequest, WebhookRequest } from "../../shared/webhooks/scheme.ts";
import { afterMove } from "../after-move.ts";
import { type IngressContext, type IngressDeps, type IngressEnv, refuse } from "../context.ts";
import type { Refusal } from "../wire-errors.ts";

/**
 * Finds the source that the URL names, and holds the request against the rate limits: the first thing, before the body is read and
 * before any other work is done for it.
 */
export function admit({ sources, rateLimits }: IngressDeps): MiddlewareHandler<IngressEnv> {
  return async (c: IngressContext, next) => {
    const configured = sources.get(c.req.param("source") ?? "");
    if (configured === undefined) return refuse(c, { type: "source_not_found" });
    c.set("entry", { ...c.get("entry"), source: configured.source.name });
    if (!rateLimits.ok) return refuse(c, { type: "misconfigured", problem: rateLimits.error });
    if (await isTooMuch(c, rateLimits.value, configured.source)) return refuse(c, { type: "rate_limited" });
    c.set("source", configured);
    await next();
  };
}

/** A limit that can't be asked lets the request pass: it is there to spare us, not to lose events. */
async function isTooMuch(
  c: IngressContext,
  { source, address }: RateLimits,
  { name }: RegisteredSource,
): Promise<boolean> {
  const sender = c.req.header("CF-Connecting-IP");
  const ask = async (limiter: RateLimiter | null, key: string | undefined) =>
    key === undefined ? undefined : limiter?.limit({ key });
  const answers = await Promise.allSettled([ask(source, name), ask(address, sender)]);
  return answers.some((answer) => answer.status === "fulfilled" && answer.value?.success === false);
}

/** Answers what a provider asks by GET or OPTIONS before it sends anything; whatever else isn't POST is refused. */
export async function greet(c: IngressContext): Promise<Response> {
  const { scheme } = c.get("source");
  if (!scheme.ok) return refuse(c, { type: "misconfigured", problem: scheme.error });
  const asked = { method: c.req.method, url: c.req.url, headers: c.req.raw.headers, body: new Uint8Array() };
  const answer = await scheme.value.greet?.(asked);
  return answer ? respond(answer) : refuse(c, { type: "wrong_method", allow: "POST" });
}

/**
 * Receives a webhook: verifies the bytes as they came, and only then looks into them; records the delivery and does what it means, in one
 * statement; and answers its sender in a way that makes it repeat what wasn't recorded, and nothing else.
 */
export function webhook(deps: IngressDeps) {
  return async (c: IngressContext): Promise<Response> => {
    const { source, scheme } = c.get("source");
    if (!scheme.ok) return refuse(c, { type: "misconfigured", problem: scheme.error });
    const pathCallbackId = callbackIdIn(c);
    if (!pathCallbackId.ok) return refuse(c, pathCallbackId.error);
    const request = {
      method: c.req.method,
      url: publicUrl(deps, c),
      headers: c.req.raw.headers,
      body: c.get("body"),
    };
    const context = { now: new Date(deps.now()), fetch: deps.fetch };
    const verified = await scheme.value.verify(request, context);
    if (!verified.ok) {
      const { status, reason } = verified.error;
      c.set("entry", { ...c.get("entry"), reason });
      return refuse(c, { type: status === "refused" ? "webhook_refused" : "verification_unavailable" });
    }
    const handshake = await scheme.value.answer?.(verified.value, context);
    if (handshake) return respond(handshake);
    return receive(deps, c, source, pathCallbackId.value, verified.value, context.now);
  };
}

async function receive(
  deps: IngressDeps,
  c: IngressContext,
  source: RegisteredSource,
  pathCallbackId: CallbackId | null,
  request: VerifiedRequest,
  receivedAt: Date,
): Promise<Response> {
  const body = bodyText(request);
  if (!body.ok) return refuse(c, { type: "invalid", reason: body.error });
  const deliveryId = await deliveryIdOf(source.scheme, request, body.value, pathCallbackId);
  const headers = keptHeaders(source, request);
  const received = { deliveryId, receivedAt, pathCallbackId, headers, body: body.value };
  const receipt = await receiveDelivery(c.get("database"), deps.registry, {
    source: source.name,
    deliveryId,
    delivery: { source: source.name, deliveryId, pathCallbackId, headers, body: body.value },
    interpretation: interpret(source, received),
  });
  note(deps, c, receipt);
  switch (receipt.status) {
    case "moved":
      afterMove(deps, c, receipt);
      return c.json({ status: "resolved" });
    case "extended":
      return c.json({ status: "resolved" });
    case "ignored":
    case "parked":
    case "late":
    case "duplicate":
      return c.json({ status: receipt.status });
    case "failed":
      // Its sender has heard of it once; the delivery is kept, and tried again without it.
      return receipt.isFirst ? refuse(c, { type: "delivery_failed" }) : c.json({ status: "failed" });
    default:
      return unreachable(receipt);
  }
}

function callbackIdIn(c: IngressContext): Result<CallbackId | null, Refusal> {
  const given = c.req.param("callback_id");
  if (given === undefined) return ok(null);
  const id = parseCallbackId(given);
  return id === null ? err({ type: "invalid", reason: "the callback id in the URL is not a UUID" }) : ok(id);
}

/** The URL that the provider called: some sign it. Behind a proxy only the configuration knows it; what a proxy says could be anybody's. */
function publicUrl({ config: { callbacks } }: IngressDeps, c: IngressContext): string {
  if (!callbacks.ok || callbacks.value.baseUrl === null) return c.req.url;
  const { pathname, search } = new URL(c.req.url);
  return `${callbacks.value.baseUrl}${pathname}${search}`;
}

/** The body as text, to be kept and read. */
function bodyText({ body }: WebhookRequest): Result<string, string> {
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: false }).decode(body);
  } catch {
    return err("the body isn't valid UTF-8");
  }
  return text.includes("\0")
    ? err("the body contains a NUL character, which Postgres can't store")
    : ok(text);
}

/** The headers that the source's code reads, and nothing else of what came. */
function keptHeaders({ headers: names }: RegisteredSource, { headers }: WebhookRequest): KeptHeaders {
  const kept: Record<string, string> = {};
  for (const name of [CONTENT_TYPE, ...names]) {
    const value = headers.get(name);
    if (value !== null) kept[name] = value;
  }
  return kept;
}

function respond({ status, headers, body }: HandshakeAnswer): Response {
  return new Response(body, { status, headers });
}

/** Adds to the request's log line what became of the delivery. Nothing that came with it is in there. */
function note({ log }: IngressDeps, c: IngressContext, receipt: Receipt): void {
  const entry = { ...c.get("entry"), delivery: receipt.status };
  c.set("entry", {
    ...entry,
    ...("jobId" in receipt && { jobId: receipt.jobId, kind: receipt.kind }),
    ...(receipt.status === "failed" && { reason: receipt.reason }),
    ...(receipt.status === "duplicate" && { duplicate: true }),
  });
  if (receipt.status === "late")
    log({
      level: "warn",
      event: "late_delivery",
      source: entry.source,
      jobId: receipt.jobId,
      reason: receipt.reason,
    });
}
