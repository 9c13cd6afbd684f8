import type { VerifyContext, WebhookRequest } from "../../src/shared/webhooks/scheme.ts";
import known from "../vectors/webhooks.json" with { type: "json" };

/** One known answer of test/vectors/webhooks.json: a request and what is to become of it. */
export interface Vector {
  readonly id: string;
  readonly scheme: string;
  readonly kind: "signature" | "handshake";
  /** Where it was published, or how it was made. */
  readonly source: string;
  readonly secret: string | null;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string;
  readonly body_base64?: string;
  /** "byte i = i mod 251, length 1024" */
  readonly body_pattern?: string;
  readonly url?: string;
  readonly method?: string;
  /** A handshake's own request, where it isn't `headers` and `body` by POST. */
  readonly request?: {
    readonly method: string;
    readonly url?: string;
    readonly headers: Readonly<Record<string, string>>;
    readonly body?: string;
  };
  /** Unix seconds; absent where the time doesn't matter. */
  readonly timestamp_now?: number;
  /** Seconds, where it isn't the scheme's own. */
  readonly tolerance?: number;
  readonly jwks?: unknown;
  /** Certificates in PEM, by URL. */
  readonly certs?: Readonly<Record<string, string>>;
  readonly config?: Readonly<Record<string, unknown>>;
  /** What a handshake is to be answered. `fetch`: a URL that is to be called. */
  readonly response?: {
    readonly status: number;
    readonly headers?: Readonly<Record<string, string>>;
    readonly body?: string;
    readonly json?: unknown;
    readonly fetch?: string;
  };
  readonly expect: "valid" | "invalid";
  readonly note: string;
  readonly official_lib_result?: Readonly<Record<string, string>>;
  readonly verified: boolean;
}

/** Imported, and not read as a file: the vectors are for workerd, too. */
export const vectors: readonly Vector[] = JSON.parse(JSON.stringify(known));

/** The request of a vector. Its method is POST and its URL a made-up one where it names none. */
export function requestOf(vector: Vector): WebhookRequest {
  return {
    method: vector.request?.method ?? vector.method ?? "POST",
    url: vector.request?.url ?? vector.url ?? "https://h.example/hook",
    headers: new Headers(vector.request?.headers ?? vector.headers),
    body: bodyOf(vector),
  };
}

/** The time at which a vector arrives; any time, where it doesn't matter. */
export function nowOf(vector: Vector): Date {
  return new Date((vector.timestamp_now ?? 1_700_000_000) * 1000);
}

/** A time, and pages that can be fetched, by URL; the others aren't there. `calls` are the URLs that were asked for. */
export function contextServing(
  now: Date,
  pages: Readonly<Record<string, string>>,
): VerifyContext & { readonly calls: string[] } {
  const calls: string[] = [];
  return {
    now,
    calls,
    async fetch({ url }) {
      calls.push(url);
      return new Response(pages[url] ?? null, { status: url in pages ? 200 : 404 });
    },
  };
}

/** A request with another value of a header; `null`: without it. */
export function withHeader(request: WebhookRequest, name: string, value: string | null): WebhookRequest {
  const headers = new Headers(request.headers);
  if (value === null) headers.delete(name);
  else headers.set(name, value);
  return { ...request, headers };
}

function bodyOf(vector: Vector): Uint8Array<ArrayBuffer> {
  const text = vector.request?.body ?? vector.body;
  if (text !== undefined) return new Uint8Array(new TextEncoder().encode(text));
  if (vector.body_base64 !== undefined)
    return Uint8Array.from(atob(vector.body_base64), (character) => character.charCodeAt(0));
  const length = Number(/ length (\d+)$/.exec(vector.body_pattern ?? "")?.[1] ?? 0);
  return Uint8Array.from({ length }, (_, i) => i % 251);
}
