import { MAX_CALLBACK_TIMEOUT_SECONDS } from "./shared/callback.ts";
import { DEFAULT_CALLBACK_PATH_PREFIX, parsePathPrefix, parseSecrets } from "./shared/env.ts";
import { type CallbackId, type JobId, parseCallbackId, parseJobId } from "./shared/ids.ts";
import { type Json, whyUnstorable, whyUnstorableText } from "./shared/json.ts";
import type { SecretHex } from "./shared/signature.ts";
import type { CallbackAction } from "./shared/transitions.ts";

// What the client is given, checked before anything else happens.

/** Where the ingress is, for the URLs and signatures of parked jobs. */
export interface CallbackReceiver {
  /** For example "https://awa-edge.example.workers.dev". */
  readonly baseUrl: string;
  /** As in AWA_CALLBACK_HMAC_SECRET: the first signs. None: the ingress runs in unsigned mode. */
  readonly secrets: readonly SecretHex[];
  /** Default "/api/callbacks". */
  readonly pathPrefix?: string;
}

/** What a callback is completed with. `resume`: the handler goes on with the payload instead. */
export interface CompleteOptions {
  readonly payload?: Json;
  readonly resume?: boolean;
}

/** Where callbacks go and what signs them, checked before the first job is parked. @throws Error that says what is wrong */
export function receiverOf({
  baseUrl,
  secrets,
  pathPrefix = DEFAULT_CALLBACK_PATH_PREFIX,
}: CallbackReceiver) {
  const origin = URL.parse(baseUrl);
  if (origin === null || !/^https?:$/.test(origin.protocol))
    throw new Error("callbacks.baseUrl is not an http(s) URL");
  const prefix = parsePathPrefix(pathPrefix);
  if (!prefix.ok) throw new Error(`callbacks.pathPrefix ${prefix.error}`);
  const parsed = parseSecrets(secrets);
  if (!parsed.ok) throw new Error(`a secret in callbacks.secrets ${parsed.error}`);
  return { baseUrl: baseUrl.replace(/\/+$/, ""), pathPrefix: prefix.value, secret: parsed.value[0] };
}

/** The action of a completion. @throws Error where the payload can't be stored */
export function completeAction({ payload = null, resume = false }: CompleteOptions): CallbackAction {
  mustBeStorable(whyUnstorable(payload, "payload"));
  return { type: resume ? "resume" : "complete", payload };
}

/** The action of a failure. @throws Error where the text can't be stored */
export function failAction(error: string): CallbackAction {
  mustBeStorable(whyUnstorableText(error, "error"));
  return { type: "fail", error };
}

/** A time-out. @throws Error where it is out of range */
export function heartbeatSeconds(seconds: number): number {
  if (seconds >= 0 && seconds <= MAX_CALLBACK_TIMEOUT_SECONDS) return seconds;
  throw new Error(`timeoutSeconds must be from 0 to ${MAX_CALLBACK_TIMEOUT_SECONDS}`);
}

/** A job id. @throws Error where the text is none */
export function jobIdOf(text: string): JobId {
  const id = parseJobId(text);
  if (id === null) throw new Error("a job id is a whole number, as decimal digits");
  return id;
}

/** A callback id. @throws Error where the text is none */
export function callbackIdOf(text: string): CallbackId {
  const id = parseCallbackId(text);
  if (id === null) throw new Error("a callback id is a UUID");
  return id;
}

/** @throws Error with the problem, where there is one */
export function mustBeStorable(problem: string | null): void {
  if (problem !== null) throw new Error(problem);
}
