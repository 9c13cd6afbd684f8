import type { StandardSchemaV1 } from "@standard-schema/spec";
import { checkMeaning, checkTarget, type KeptHeaders, type Meaning, type Target } from "../delivery.ts";
import type { CallbackId } from "../ids.ts";
import type { Json } from "../json.ts";
import { err, ok, type Result } from "../result.ts";
import { textOf } from "../thrown.ts";
import { parsePayload } from "../webhooks/payload.ts";
import type { WebhookScheme } from "../webhooks/scheme.ts";
import { whyNoName } from "./options.ts";

/** Completes the callback's job with a payload. */
export function complete(payload: Json = null): Meaning {
  return { type: "complete", payload };
}
/** Lets the handler that awaits the callback go on, with a payload. */
export function resume(payload: Json = null): Meaning {
  return { type: "resume", payload };
}
/**
 * Does with the payload what the callback says: its rules decide, and where they complete, or it has none, its job completes; a
 * callback that a handler awaits by its name resumes that handler instead.
 */
export function resolve(payload: Json = null): Meaning {
  return { type: "resolve", payload };
}
/** Fails the callback's job for good. */
export function fail(error: string): Meaning {
  return { type: "fail", error };
}
/** Has the callback's job run again; at its last attempt it fails. */
export function retry(): Meaning {
  return { type: "retry" };
}
/** Puts off the callback's time-out to `timeoutSeconds` from now. */
export function heartbeat(timeoutSeconds = 3600): Meaning {
  return { type: "heartbeat", timeoutSeconds };
}
/** Means nothing for any callback. The delivery is kept all the same, with the reason. */
export function ignore(reason: string): Meaning {
  return { type: "ignore", reason };
}

/** One event of a provider, as a source's code gets it. */
export interface WebhookEvent<P = unknown> {
  /** The body through the source's schema. */
  readonly payload: P;
  /** The headers that the source asked for, by name in lower case. */
  readonly headers: KeptHeaders;
  /** The callback that the URL names; `null`: it names none. */
  readonly callbackId: CallbackId | null;
  readonly deliveryId: string;
  readonly receivedAt: Date;
}

/** How a source of webhooks is verified and understood. */
export interface SourceOptions<S extends StandardSchemaV1 = StandardSchemaV1> {
  /** How it signs: `stripe()`, `github()`, `hmac({…})`. */
  readonly scheme: WebhookScheme;
  /** The variable that holds its secret, or several of them separated by commas: all verify. */
  readonly secret?: string;
  /** The schema of the body: JSON, or the fields of a form. Any Standard Schema that is synchronous. */
  readonly payload: S;
  /** Headers that the code below reads. They are kept with the delivery, so never ask for a secret one. */
  readonly headers?: readonly string[];
  /** Which callback an event is for, where the URL names none. `null`: for none, it is ignored. */
  readonly callback?: (event: WebhookEvent<StandardSchemaV1.InferOutput<S>>) => CallbackReference | null;
  /** What an event means. Synchronous and pure: a delivery is read again when it is replayed. */
  readonly meaning: (event: WebhookEvent<StandardSchemaV1.InferOutput<S>>) => Meaning;
}

/** A callback by its id, or by the correlation key that it was registered with for this source. */
export type CallbackReference = { readonly id: string } | { readonly correlationKey: string };

/** A source of a registry, its types erased. */
export interface RegisteredSource {
  readonly name: string;
  readonly scheme: WebhookScheme;
  readonly secret: string | null;
  readonly payload: StandardSchemaV1;
  /** In lower case. */
  readonly headers: readonly string[];
  readonly callback: ((event: WebhookEvent) => CallbackReference | null) | null;
  readonly meaning: (event: WebhookEvent) => Meaning;
}

/** What a source's code reads of one delivery. */
export interface ReceivedDelivery {
  readonly deliveryId: string;
  readonly receivedAt: Date;
  readonly pathCallbackId: CallbackId | null;
  readonly headers: KeptHeaders;
  readonly body: string;
}

/** What a source's code made of a delivery. `target: null`: it is for no callback. */
export interface Interpretation {
  readonly meaning: Meaning;
  readonly target: Target | null;
}

/** Headers that a delivery must not keep, whoever asks. */
const SECRET_HEADER =
  /^(authorization|cookie|proxy-authorization)$|signature|secret|token|hmac|password|api-?key/;
const VARIABLE = /^[A-Za-z_][A-Za-z0-9_]*$/;
/** What is kept whether asked for or not: the body is read by it. */
export const CONTENT_TYPE = "content-type";

/**
 * Describes a source in a file of its own, with its types.
 *
 * @example
 * export const payments = defineSource({ scheme: stripe(), secret: "STRIPE_WEBHOOK_SECRET", payload: v.object({ … }),
 *   callback: ({ payload }) => ({ correlationKey: payload.data.object.id }), meaning: ({ payload }) => complete(payload) });
 */
export function defineSource<S extends StandardSchemaV1>(options: SourceOptions<S>): SourceOptions<S> {
  return options;
}

/** Checks a source, before its first webhook does. @returns it, or what is wrong */
export function checkSource<S extends StandardSchemaV1>(
  name: string,
  { scheme, secret, payload, headers = [], callback, meaning }: SourceOptions<S>,
): Result<RegisteredSource, string> {
  const wrong = whyNoName(name, "the name");
  if (wrong !== null) return err(wrong);
  if (!/^[A-Za-z0-9._~-]+$/.test(name))
    return err("the name stands in a URL: use letters, digits and . _ ~ -");
  if (scheme.secrets === "required" && secret === undefined) {
    return err(`${scheme.name} needs a secret: name the variable that holds it`);
  }
  for (const variable of [secret, ...scheme.variables]) {
    if (variable !== undefined && !VARIABLE.test(variable))
      return err("a variable's name has letters, digits and _");
  }
  const kept = headers.map((header) => header.toLowerCase());
  const secretHeader = kept.find((header) => SECRET_HEADER.test(header));
  if (secretHeader !== undefined)
    return err(`the header ${secretHeader} may hold a secret, and would be kept`);
  return ok({
    name,
    scheme,
    secret: secret ?? null,
    payload,
    headers: kept,
    // The one place where a source's types are erased: interpret() gives it a payload that passed its schema.
    callback: (callback ?? null) as RegisteredSource["callback"],
    meaning: meaning as RegisteredSource["meaning"],
  });
}

/**
 * Runs a source's code on a delivery. Pure.
 *
 * @returns what it means and for which callback, or why that couldn't be told: for the delivery's own record, as it may quote what
 *   the code threw
 */
export function interpret(
  source: RegisteredSource,
  received: ReceivedDelivery,
): Result<Interpretation, string> {
  try {
    const parsed = parsePayload(received.body, received.headers[CONTENT_TYPE] ?? "");
    if (!parsed.ok) return parsed;
    const shaped = source.payload["~standard"].validate(parsed.value);
    if (shaped instanceof Promise) return err("the source's schema is asynchronous");
    if (shaped.issues !== undefined)
      return err(`the body doesn't fit the source's schema: ${describe(shaped.issues)}`);
    const { deliveryId, receivedAt, pathCallbackId, headers } = received;
    const event = { payload: shaped.value, headers, callbackId: pathCallbackId, deliveryId, receivedAt };
    const meaning = checkMeaning(source.meaning(event));
    if (!meaning.ok) return err(`the source's meaning: ${meaning.error}`);
    if (meaning.value.type === "ignore") return ok({ meaning: meaning.value, target: null });
    if (pathCallbackId !== null) return ok({ meaning: meaning.value, target: { id: pathCallbackId } });
    const reference = source.callback?.(event) ?? null;
    if (reference === null) return ok({ meaning: meaning.value, target: null });
    const target = checkTarget(reference);
    return target.ok
      ? ok({ meaning: meaning.value, target: target.value })
      : err(`the source's callback: ${target.error}`);
  } catch (thrown) {
    return err(`the source's code threw: ${textOf(thrown)}`);
  }
}

function describe([issue]: readonly StandardSchemaV1.Issue[]): string {
  const path = issue?.path?.map((part) => String(typeof part === "object" ? part.key : part)).join(".");
  return path === undefined ? "the whole body" : `at ${path.slice(0, 200)}`;
}
