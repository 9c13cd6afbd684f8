import { DatabaseError } from "../shared/db/errors.ts";
import { unreachable } from "../shared/result.ts";

/** Why a request is refused or can't be served. Every way there is; {@link toWireError} gives each its status. */
export type Refusal =
  | { readonly type: "misconfigured"; readonly problem: string }
  | { readonly type: "signature_missing" }
  | { readonly type: "signature_malformed" }
  | { readonly type: "signature_wrong" }
  | { readonly type: "invalid"; readonly reason: string }
  | { readonly type: "invalid_json"; readonly reason: string }
  | { readonly type: "wrong_shape"; readonly reason: string }
  | { readonly type: "wrong_content_type" }
  | { readonly type: "too_large"; readonly maxBytes: number }
  | { readonly type: "wrong_method"; readonly allow: string }
  | { readonly type: "no_route" }
  | { readonly type: "callback_not_found"; readonly callbackId: string }
  | { readonly type: "callback_already_resolved"; readonly callbackId: string }
  | {
      readonly type: "callback_gone";
      readonly callbackId: string;
      readonly how: "expired" | "superseded" | "cancelled";
    }
  | { readonly type: "job_still_running" }
  | { readonly type: "follow_up_failed" }
  | { readonly type: "source_not_found" }
  | { readonly type: "rate_limited" }
  | { readonly type: "webhook_refused" }
  | { readonly type: "verification_unavailable" }
  | { readonly type: "delivery_failed" }
  | { readonly type: "schema_mismatch"; readonly reason: string }
  | { readonly type: "thrown"; readonly error: unknown };

/** An answer that isn't a success: the body is `{error, code}`. */
export interface WireError {
  readonly status: 400 | 401 | 404 | 405 | 409 | 410 | 413 | 415 | 422 | 429 | 500 | 503;
  readonly code: string;
  /** One sentence, worded as Awa words it where Awa has one. Never SQL, a stack, a secret or a connection string. */
  readonly error: string;
  readonly headers: Readonly<Record<string, string>>;
}

/** When a sender should try again, in seconds: an outage lasts longer than a job that is about to park. */
const RETRY_OUTAGE_SECONDS = "5";
const RETRY_PARKING_SECONDS = "1";
/** The platform's limiter counts over 10 or 60 seconds, and doesn't tell which. */
const RETRY_RATE_SECONDS = "60";

const MIGRATE = "the database schema is missing or too old for this build: run `npm run migrate`";

/** The only place where a fault becomes an HTTP status. A permanent fault is never a 5xx: senders would repeat it for ever. */
export function toWireError(refusal: Refusal): WireError {
  switch (refusal.type) {
    case "misconfigured":
      return wire(503, "misconfigured", refusal.problem, { "Retry-After": RETRY_OUTAGE_SECONDS });
    case "signature_missing":
      return wire(401, "unauthorized", "missing X-Awa-Signature header");
    case "signature_malformed":
      return wire(401, "unauthorized", "invalid X-Awa-Signature header");
    case "signature_wrong":
      return wire(401, "unauthorized", "invalid callback signature");
    case "invalid":
      return wire(400, "validation_error", `validation error: ${refusal.reason}`);
    case "invalid_json":
      return wire(400, "invalid_json", refusal.reason);
    case "wrong_shape":
      return wire(422, "invalid_body", refusal.reason);
    case "wrong_content_type":
      return wire(415, "unsupported_media_type", "send the body as application/json");
    case "too_large":
      return wire(413, "payload_too_large", `the body is larger than ${refusal.maxBytes} bytes`);
    case "wrong_method":
      return wire(405, "method_not_allowed", `use ${refusal.allow}`, { Allow: refusal.allow });
    case "no_route":
      return wire(404, "not_found", "not found");
    case "callback_not_found":
      return wire(404, "callback_not_found", `callback not found: ${refusal.callbackId}`);
    case "callback_already_resolved":
      return wire(
        409,
        "callback_already_resolved",
        `callback already resolved by another action: ${refusal.callbackId}`,
      );
    case "callback_gone":
      return wire(410, `callback_${refusal.how}`, `callback ${refusal.how}: ${refusal.callbackId}`);
    case "job_still_running":
      return wire(409, "job_still_running", "the job isn't parked yet: ask for the retry again in a moment", {
        "Retry-After": RETRY_PARKING_SECONDS,
      });
    case "follow_up_failed":
      return wire(
        500,
        "follow_up_failed",
        "a follow-up of this job couldn't be enqueued; nothing was changed and the callback is still pending",
      );
    case "source_not_found":
      return wire(404, "source_not_found", "no such source of webhooks");
    case "rate_limited":
      return wire(429, "rate_limited", "too many requests, try again later", {
        "Retry-After": RETRY_RATE_SECONDS,
      });
    case "webhook_refused":
      return wire(401, "unauthorized", "the webhook's signature is missing, wrong or too old");
    case "verification_unavailable":
      return wire(503, "verification_unavailable", "the provider's keys can't be fetched, try again", {
        "Retry-After": RETRY_OUTAGE_SECONDS,
      });
    case "delivery_failed":
      return wire(
        500,
        "delivery_failed",
        "the delivery was recorded and couldn't be processed; it will be tried again",
      );
    case "schema_mismatch":
      return wire(503, "schema_mismatch", refusal.reason, { "Retry-After": RETRY_OUTAGE_SECONDS });
    case "thrown":
      return refusal.error instanceof DatabaseError ? fromDatabase(refusal.error) : internal();
    default:
      return unreachable(refusal);
  }
}

function fromDatabase(error: DatabaseError): WireError {
  switch (error.kind) {
    case "unavailable":
    case "contended":
      return wire(503, "database_unavailable", "the database is unavailable, try again", {
        "Retry-After": RETRY_OUTAGE_SECONDS,
      });
    case "schema_mismatch":
      return toWireError({ type: "schema_mismatch", reason: MIGRATE });
    case "unique_violation":
      return wire(409, "unique_conflict", "another live job holds this job's unique key");
    // Everything that came with the request was checked before: what Postgres refuses is a follow-up.
    case "rejected":
      return toWireError({ type: "follow_up_failed" });
    case "stale_attempt":
    case "unexpected":
      return internal();
    default:
      return unreachable(error.kind);
  }
}

function internal(): WireError {
  return wire(500, "internal_error", "internal server error");
}

function wire(
  status: WireError["status"],
  code: string,
  error: string,
  headers: Readonly<Record<string, string>> = {},
): WireError {
  return { status, code, error, headers };
}
