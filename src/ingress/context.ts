import type { Context } from "hono";
import type { Database } from "../shared/db/port.ts";
import type { Config, ConfigProblem } from "../shared/env.ts";
import type { CallbackId } from "../shared/ids.ts";
import type { Log, LogEntry } from "../shared/log.ts";
import type { RegistryView } from "../shared/registry/define.ts";
import { type Result, unreachable } from "../shared/result.ts";
import type { ConfiguredSource, RateLimits } from "../shared/source-env.ts";
import type { Bytes } from "../shared/webhooks/encoding.ts";
import { type Refusal, toWireError } from "./wire-errors.ts";

/** What the ingress is made of. */
export interface IngressDeps {
  readonly config: Config;
  readonly registry: RegistryView;
  readonly log: Log;
  /** A database for one request: on Workers, I/O belongs to the request that began it. */
  readonly database: () => Database;
  /** Milliseconds of some clock, for durations in the log. */
  readonly clock: () => number;
  /** Milliseconds since 1970: webhooks are signed with the time. */
  readonly now: () => number;
  /** The sources of webhooks, by name. */
  readonly sources: ReadonlyMap<string, ConfiguredSource>;
  readonly rateLimits: Result<RateLimits, ConfigProblem>;
  /** For the keys and certificates that providers publish. */
  readonly fetch: (request: Request) => Promise<Response>;
  /** Runs what became due in some queues, after the answer; absent: the tick does. Never rejects. */
  readonly nudge?: (queues: readonly string[], defer: (work: Promise<void>) => void) => Promise<void>;
}

/** What the steps of one request hand to each other. */
export interface IngressEnv {
  Variables: {
    /** Set once the signature and the UUID were checked. */
    callbackId: CallbackId;
    /** Set once a webhook's source is known, and its sender within the limits. */
    source: ConfiguredSource;
    /** The bytes as they came, once their size was checked. */
    body: Bytes;
    database: Database & { readonly roundTrips: number };
    startedAt: number;
    /** Completes the request's log line. */
    entry: Partial<LogEntry>;
  };
}
export type IngressContext = Context<IngressEnv>;

/** Answers with an error, and leaves its code for the log line. */
export function refuse(c: IngressContext, refusal: Refusal): Response {
  const { status, code, error, headers } = toWireError(refusal);
  c.set("entry", { ...c.get("entry"), status, code });
  return c.json({ error, code }, status, headers);
}

/** What every action may find instead of a pending callback. */
export type NotPending =
  | { readonly status: "not_found" }
  | { readonly status: "already_resolved" }
  | { readonly status: "gone"; readonly how: "expired" | "superseded" | "cancelled" };

/** Answers an action whose callback isn't pending, or isn't there. */
export function refuseNotPending(c: IngressContext, found: NotPending): Response {
  const callbackId = c.get("callbackId");
  switch (found.status) {
    case "not_found":
      return refuse(c, { type: "callback_not_found", callbackId });
    case "already_resolved":
      return refuse(c, { type: "callback_already_resolved", callbackId });
    case "gone":
      return refuse(c, { type: "callback_gone", callbackId, how: found.how });
    default:
      return unreachable(found);
  }
}
