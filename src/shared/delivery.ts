import { type CallbackId, type JobId, parseCallbackId } from "./ids.ts";
import { isJsonObject, type Json, type JsonObject, whyUnstorable, whyUnstorableText } from "./json.ts";
import { whyNoName } from "./registry/options.ts";
import { err, ok, type Result } from "./result.ts";

/**
 * The states of a delivery, one webhook request that passed verification, and who leaves it there:
 *
 * - `resolved`: it resolved its callback, or put off its time-out, in the statement that recorded it.
 * - `ignored`: its source or its callback's rules don't care for it.
 * - `parked`: its callback isn't there yet. The statement that registers it takes the delivery with it.
 * - `late`: its callback was over. What it would have done stands in `meaning`.
 * - `failed`: its source's code, or a follow-up, failed. The tick tries again, and so may a person.
 */
export const DELIVERY_STATES = ["resolved", "ignored", "parked", "late", "failed"] as const;
export type DeliveryState = (typeof DELIVERY_STATES)[number];

/** What an event means for the callback that it is for. */
export type Meaning =
  | { readonly type: "complete"; readonly payload: Json }
  | { readonly type: "resume"; readonly payload: Json }
  | { readonly type: "resolve"; readonly payload: Json }
  | { readonly type: "fail"; readonly error: string }
  | { readonly type: "retry" }
  | { readonly type: "heartbeat"; readonly timeoutSeconds: number }
  | { readonly type: "ignore"; readonly reason: string };

/** Which callback an event is for: by its id, or by what the provider knows it by. */
export type Target = { readonly id: CallbackId } | { readonly correlationKey: string };

/** A target as two columns. */
export function columnsOf(target: Target | null): {
  readonly callbackId: CallbackId | null;
  readonly correlationKey: string | null;
} {
  if (target === null) return { callbackId: null, correlationKey: null };
  return "id" in target
    ? { callbackId: target.id, correlationKey: null }
    : { callbackId: null, correlationKey: target.correlationKey };
}

const MAX_TIMEOUT_SECONDS = 31_536_000;

/** Checks what a source's code, or a column, says that an event means. */
export function checkMeaning(value: unknown): Result<Meaning, string> {
  if (typeof value !== "object" || value === null || !("type" in value)) {
    return err(
      "that is no meaning: return complete(…), resume(…), resolve(…), fail(…), retry(), heartbeat(…) or ignore(…)",
    );
  }
  const { type, payload = null, error, timeoutSeconds, reason }: Record<string, unknown> = { ...value };
  switch (type) {
    case "complete":
    case "resume":
    case "resolve": {
      const wrong = whyUnstorable(payload, "payload");
      // whyUnstorable has looked at all of it.
      return wrong === null ? ok({ type, payload: payload as Json }) : err(wrong);
    }
    case "fail": {
      if (typeof error !== "string") return err("fail(…) takes a text");
      const wrong = whyUnstorableText(error, "error");
      return wrong === null ? ok({ type, error }) : err(wrong);
    }
    case "retry":
      return ok({ type });
    case "heartbeat":
      return typeof timeoutSeconds === "number" &&
        timeoutSeconds >= 0 &&
        timeoutSeconds <= MAX_TIMEOUT_SECONDS
        ? ok({ type, timeoutSeconds })
        : err(`heartbeat(…) takes 0 to ${MAX_TIMEOUT_SECONDS} seconds`);
    case "ignore": {
      if (typeof reason !== "string") return err("ignore(…) takes a text");
      const wrong = whyUnstorableText(reason, "reason");
      return wrong === null ? ok({ type, reason }) : err(wrong);
    }
    default:
      return err("an unknown meaning");
  }
}

/** Checks which callback a source's code says an event is for. */
export function checkTarget(value: unknown): Result<Target, string> {
  if (typeof value === "object" && value !== null) {
    if ("id" in value && typeof value.id === "string") {
      const id = parseCallbackId(value.id);
      return id === null ? err("the callback's id is no UUID") : ok({ id });
    }
    if ("correlationKey" in value && typeof value.correlationKey === "string") {
      const { correlationKey } = value;
      const wrong = whyNoName(correlationKey, "correlationKey");
      return wrong === null ? ok({ correlationKey }) : err(wrong);
    }
  }
  return err("that names no callback: return { id }, { correlationKey } or null");
}

/** Reads a meaning back; `null` where this build can't: a newer one may have stored it. */
export function parseMeaning(stored: Json): Meaning | null {
  const checked = checkMeaning(stored);
  return checked.ok ? checked.value : null;
}

/** The headers that are kept with a delivery, by name in lower case. */
export type KeptHeaders = Readonly<Record<string, string>>;

/** Reads kept headers back. @throws Error where the column holds none */
export function parseHeaders(stored: Json): KeptHeaders {
  const headers: JsonObject = isJsonObject(stored) ? stored : {};
  return Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, String(value)]));
}

/** A recorded delivery. */
export interface DeliveryRow {
  /** Decimal digits. */
  readonly id: string;
  readonly source: string;
  readonly deliveryId: string;
  readonly receivedAt: Date;
  readonly state: DeliveryState;
  /** The callback that its URL named. */
  readonly pathCallbackId: CallbackId | null;
  /** The callback that it is for; `null`: it is for a correlation key, or nobody knows. */
  readonly target: Target | null;
  /** `null`: its source's code hasn't said, or has said what this build can't read. */
  readonly meaning: Meaning | null;
  /** The job that it moved, or came too late for. */
  readonly jobId: JobId | null;
  /** Why it was ignored, or is late. */
  readonly reason: string | null;
  readonly attempts: number;
  readonly lastError: string | null;
  /** When the tick tries it again; `null`: not at all. */
  readonly nextAttemptAt: Date | null;
  readonly headers: KeptHeaders;
  readonly body: string;
}
