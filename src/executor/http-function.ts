import { DEFAULT_CALLBACK_TIMEOUT_SECONDS, MAX_CALLBACK_TIMEOUT_SECONDS } from "../shared/callback.ts";
import type { Bindings } from "../shared/env.ts";
import {
  complete,
  type Handler,
  type HandlerContext,
  type RegisteredCallback,
  TerminalError,
  waitForCallback,
} from "../shared/registry/handler.ts";
import { err, ok, type Result } from "../shared/result.ts";
import { failureOf, readAnswer, withoutRequest } from "./http-answer.ts";

/** A kind that is served by a URL. */
export interface HttpFunctionOptions {
  /**
   * An http(s) URL without user name and password; a token goes into a header. Or what makes one of the bindings: that is checked at
   * each attempt.
   */
  readonly url: string | ((env: Bindings) => unknown);
  /**
   * `async`: the function takes the job over and calls back when it is done. `sync`: its answer is the end of the job. Default `async`.
   */
  readonly mode?: "async" | "sync";
  /** Sent with every request, or what makes them of the bindings. For Content-Type and X-Awa-Signature ours win, always. */
  readonly headers?: Readonly<Record<string, string>> | ((env: Bindings) => unknown);
  /** How long the function may take to answer, in seconds; above 0 and up to 300, after which Node gives up by itself. Default 30. */
  readonly timeoutSeconds?: number;
  /** How long it may then take to call back, in seconds; above 0 and up to a year. Default 3600. Means nothing in `sync`. */
  readonly callbackTimeoutSeconds?: number;
}

const DEFAULT_TIMEOUT_SECONDS = 30;
const MAX_TIMEOUT_SECONDS = 300;

/**
 * Makes the handler of a kind that is served by a URL, as the reference's HTTP worker does it.
 *
 * It is sent `POST` with the JSON body `{job_id, kind, args, attempt, max_attempts}`, args as they are stored. `job_id` is a number,
 * and a string of digits only where a number would lose some (above 2^53). In `async` mode there are a `callback_id`,
 * a `callback_url` where a base URL is configured, and the callback's X-Awa-Signature where a secret is; the function sends that
 * header back with its callback. A callback with `"resume": true` makes the function be called again, with a new callback.
 *
 * What becomes of the job:
 *
 * - 2xx, `async`: it is parked until the function calls back. The answer's body isn't read.
 * - 2xx, `sync`: it completes. A JSON body (by its Content-Type) of up to 64 KiB is its result. Any other body is not kept:
 *   the result is `null`. A JSON body that breaks off is no answer.
 * - 408, 425, 429, 5xx, no answer at all, or none in time: it is retried, after `Retry-After` (whole seconds or an HTTP date; a day at
 *   the most) where the answer has one, otherwise with back-off.
 * - any other status: it fails for good. Redirects too are not followed: the signature isn't for another host.
 *
 * The error of a failed attempt is `function returned STATUS: BODY`, with the first 4 KiB of the body. URL and headers are in no
 * error: where the body repeats them there is an ellipsis instead. A repeated attempt sends the request again: the function tells it by `job_id`.
 *
 * @throws Error where the URL, a header or a time-out that is given here can't be. Where the bindings are to blame, the job fails for good
 * @example
 * registry.handle("render", httpFunction({
 *   url: ({ RENDER_URL }) => RENDER_URL,
 *   headers: ({ RENDER_TOKEN }) => ({ Authorization: `Bearer ${RENDER_TOKEN}` }),
 * }));
 */
export function httpFunction(options: HttpFunctionOptions): Handler {
  const { mode = "async", timeoutSeconds = DEFAULT_TIMEOUT_SECONDS } = options;
  const { callbackTimeoutSeconds = DEFAULT_CALLBACK_TIMEOUT_SECONDS } = options;
  mustBeTimeout("timeoutSeconds", timeoutSeconds, MAX_TIMEOUT_SECONDS);
  mustBeTimeout("callbackTimeoutSeconds", callbackTimeoutSeconds, MAX_CALLBACK_TIMEOUT_SECONDS);
  const urlIn = settle(options.url, parseUrl);
  const headersIn = settle(options.headers ?? {}, parseHeaders);

  return async (ctx) => {
    // Both before a callback is registered: without them there is nobody to call back.
    const url = urlIn(ctx.env);
    const headers = new Headers(headersIn(ctx.env));
    const callback =
      mode === "async" ? await ctx.registerCallback({ timeoutSeconds: callbackTimeoutSeconds }) : null;
    headers.set("Content-Type", "application/json");
    headers.delete("X-Awa-Signature");
    if (callback !== null && callback.signature !== null) headers.set("X-Awa-Signature", callback.signature);
    const request = { method: "POST", headers, body: bodyOf(ctx, callback) };
    const answer = await withinTime(ctx.signal, timeoutSeconds, async (signal) =>
      readAnswer(await fetch(url, { ...request, redirect: "manual", signal }), mode),
    );
    if (!answer.ok) {
      const text = withoutRequest(answer.error.text, url, headers);
      return failureOf({ ...answer.error, text }, Date.now());
    }
    return mode === "async" ? waitForCallback() : complete(answer.value);
  };
}

function bodyOf({ job }: HandlerContext, callback: RegisteredCallback | null): string {
  const { id, kind, args, attempt, maxAttempts } = job;
  const number = Number(id);
  return JSON.stringify({
    job_id: Number.isSafeInteger(number) ? number : id,
    kind,
    args,
    attempt,
    max_attempts: maxAttempts,
    callback_id: callback?.callbackId,
    callback_url: callback?.callbackUrl ?? undefined,
  });
}

/** Asks the function. @throws Error that doesn't say whom: the runtime's own messages may quote the URL */
async function withinTime<T>(
  signal: AbortSignal,
  seconds: number,
  ask: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const timeout = AbortSignal.timeout(Math.ceil(seconds * 1000));
  try {
    return await ask(AbortSignal.any([signal, timeout]));
  } catch (thrown) {
    // Told to stop: what becomes of the attempt isn't ours to say.
    signal.throwIfAborted();
    // Held until here, because Node 20 forgets a time-out that only AbortSignal.any knows (nodejs/node#57736).
    if (timeout.aborted) throw new Error(`function timed out after ${seconds} s`);
    throw new Error(`function unreachable${codeOf(thrown)}`);
  }
}

/** The runtime's code of a network error, such as ": ECONNREFUSED"; "" where it has none, as on Workers. */
function codeOf(thrown: unknown): string {
  const cause = thrown instanceof Error ? thrown.cause : undefined;
  const code = cause instanceof Error && "code" in cause ? cause.code : undefined;
  return typeof code === "string" && /^[A-Z][A-Z0-9_]*$/.test(code) ? `: ${code}` : "";
}

/** Checks what is fixed now, and what the bindings make at each attempt. */
function settle<T>(
  given: string | Readonly<Record<string, string>> | ((env: Bindings) => unknown),
  parse: (value: unknown) => Result<T, string>,
): (env: Bindings) => T {
  if (typeof given === "function") {
    return (env) => {
      const parsed = parse(given(env));
      if (!parsed.ok) throw new TerminalError(`can't call the function: ${parsed.error}`);
      return parsed.value;
    };
  }
  const parsed = parse(given);
  if (!parsed.ok) throw new Error(`httpFunction: ${parsed.error}`);
  return () => parsed.value;
}

function parseUrl(value: unknown): Result<string, string> {
  const url = typeof value === "string" ? URL.parse(value) : null;
  if (url === null || !/^https?:$/.test(url.protocol)) return err("its url is not an http(s) URL");
  // Node's fetch refuses them.
  return url.username === "" && url.password === ""
    ? ok(url.href)
    : err("its url has a user name or a password: send a header instead");
}

function parseHeaders(value: unknown): Result<Headers, string> {
  if (typeof value !== "object" || value === null) return err("its headers aren't an object");
  const headers = new Headers();
  for (const [name, text] of Object.entries(value)) {
    if (typeof text !== "string") return err(`its header ${JSON.stringify(name)} isn't a string`);
    try {
      headers.set(name, text);
    } catch {
      // What the runtime says here quotes the value.
      return err(`its header ${JSON.stringify(name)} can't be sent`);
    }
  }
  return ok(headers);
}

function mustBeTimeout(at: string, seconds: number, max: number): void {
  if (seconds > 0 && seconds <= max) return;
  throw new Error(`httpFunction: ${at} must be above 0 and at most ${max}`);
}
