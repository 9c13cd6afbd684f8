import { isStorable, type Json } from "../shared/json.ts";
import { type HandlerOutcome, retryAfter, TerminalError } from "../shared/registry/handler.ts";
import { err, ok, type Result } from "../shared/result.ts";

/** A function that didn't take the job. */
export interface Refusal {
  readonly status: number;
  /** What it says, as far as it is kept. */
  readonly text: string;
  /** The Retry-After header. */
  readonly retryAfter: string | null;
}

/** What is kept of a refusal, in bytes: it stands in the job with up to 99 others. */
const MAX_ERROR_BYTES = 4_096;
/** The largest answer that becomes a job's result, in bytes: more than this belongs elsewhere, with the answer saying where. */
const MAX_RESULT_BYTES = 65_536;
/** A longer pause than a day is taken for a day: whoever asks for it may be mistaken. */
const MAX_RETRY_AFTER_SECONDS = 86_400;
/** Beside 5xx: request time-out, too early, too many requests. The reference takes them for final. */
const RETRYABLE_STATUSES = [408, 425, 429];

const JSON_TYPE = /^application\/(?:[a-z0-9.+-]+\+)?json\s*(?:;|$)/i;
/** The one form of an HTTP date that may be sent; Date.parse alone would take nearly anything for one. */
const HTTP_DATE = /^[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2} GMT$/;

/**
 * Reads as much of an answer as counts; its body is cancelled where that isn't all.
 *
 * @returns the result that a job gets by it, or why the function didn't take the job
 * @throws whatever the network throws, where a result breaks off; a refusal that does is taken for what came of it
 */
export async function readAnswer(response: Response, mode: "async" | "sync"): Promise<Result<Json, Refusal>> {
  const { status, headers } = response;
  if (!response.ok) {
    const { text, isWhole } = await readUpTo(response, MAX_ERROR_BYTES);
    return err({ status, text: isWhole ? text : `${text}…`, retryAfter: headers.get("Retry-After") });
  }
  if (mode === "async" || !JSON_TYPE.test(headers.get("Content-Type") ?? "")) {
    await response.body?.cancel().catch(() => undefined);
    return ok(null);
  }
  const { text, isWhole } = await readUpTo(response, MAX_RESULT_BYTES);
  return ok(isWhole ? parseResult(text) : null);
}

/** How a refused attempt ends. @throws Error, TerminalError: the refusal as the attempt's error */
export function failureOf({ status, text, retryAfter: header }: Refusal, nowMs: number): HandlerOutcome {
  const error = `function returned ${status}${text === "" ? "" : `: ${text}`}`;
  const isServersFault = Math.floor(status / 100) === 5;
  if (!isServersFault && !RETRYABLE_STATUSES.includes(status)) throw new TerminalError(error);
  const seconds = header === null ? null : parseRetryAfter(header, nowMs);
  if (seconds === null) throw new Error(error);
  return retryAfter(seconds, error);
}

/**
 * Reads a Retry-After header (RFC 9110, 10.2.3).
 *
 * @param nowMs the time, in milliseconds since 1970
 * @returns seconds, above 0 and up to a day; `null` where it is nonsense, or there is nothing to wait for
 */
export function parseRetryAfter(header: string, nowMs: number): number | null {
  const seconds = /^[0-9]+$/.test(header)
    ? Number(header)
    : HTTP_DATE.test(header)
      ? Math.ceil((Date.parse(header) - nowMs) / 1000)
      : Number.NaN;
  return seconds > 0 ? Math.min(seconds, MAX_RETRY_AFTER_SECONDS) : null;
}

/** What is shorter says nothing of a request, and may stand in any text. */
const MIN_REPEATED_CHARACTERS = 8;

/**
 * A text without what it repeats of a request's URL and headers, as error pages do: secrets are in there. Content-Type aside, whose value
 * is everybody's.
 */
export function withoutRequest(text: string, url: string, headers: Headers): string {
  const { href, pathname, search, searchParams } = new URL(url);
  const values = [...headers].filter(([name]) => name !== "content-type").map(([, value]) => value);
  // A token without the word before it, too.
  const words = values.flatMap((value) => [value, ...value.split(" ")]);
  return [href, pathname + search, ...searchParams.values(), ...words]
    .filter((repeated) => repeated.length >= MIN_REPEATED_CHARACTERS)
    .sort((a, b) => b.length - a.length)
    .reduce((left, repeated) => left.replaceAll(repeated, "…"), text);
}

async function readUpTo(
  response: Response,
  maxBytes: number,
): Promise<{ readonly text: string; readonly isWhole: boolean }> {
  const decoder = new TextDecoder();
  let text = "";
  let bytesLeft = maxBytes;
  try {
    for await (const chunk of response.body ?? []) {
      const bytes: Uint8Array = chunk;
      // As a stream: half a character at the cut is left out.
      text += decoder.decode(bytes.subarray(0, bytesLeft), { stream: true });
      bytesLeft -= bytes.byteLength;
      // Leaving the loop cancels the body.
      if (bytesLeft < 0) return { text, isWhole: false };
    }
  } catch (thrown) {
    if (response.ok) throw thrown;
    return { text, isWhole: false };
  }
  return { text, isWhole: true };
}

function parseResult(text: string): Json {
  try {
    const value: unknown = JSON.parse(text);
    return isStorable(value) ? value : null;
  } catch {
    return null;
  }
}
