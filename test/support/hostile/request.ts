import type { ConfiguredSource } from "../../../src/shared/source-env.ts";
import { signWebhook } from "../../../src/shared/webhooks/sign.ts";

/** A body, short enough to be printed: a large one by what it repeats. */
export type Content =
  | null
  | string
  | Uint8Array
  | { readonly start: string; readonly unit: string; readonly times: number; readonly end: string };

/** How a body comes: at once, in pieces of no announced length, or in pieces that end too early. */
export type Sending = "whole" | "pieces" | "broken";

export type HeaderList = readonly (readonly [name: string, value: string])[];

/** As which provider a request is signed, and what of it. */
export interface Signing {
  readonly source: string;
  /** The provider's id of the delivery, where it stands in a header. */
  readonly id: string;
  readonly ageSeconds: number;
  readonly by: "its secret" | "another secret";
  /** What is signed, where it isn't what is sent. */
  readonly content?: Content;
}

/** One hostile request, as data that a failing run can print. */
export interface Hostile {
  /** For the tally. */
  readonly route: string;
  /** What is wrong with it. */
  readonly about: string;
  readonly method: string;
  /** With its query; encoded, or not. */
  readonly path: string;
  /** They replace what signing put there. */
  readonly headers: HeaderList;
  readonly content: Content;
  readonly sending: Sending;
  readonly signing: Signing | null;
  /** By which codes, or kinds of success, it may be answered. */
  readonly answers: readonly string[];
}

/** Stands in bodies, queries and headers; must never come back, nor reach the log. */
export const CANARY = "canary-4929-1337";

const ORIGIN = "http://localhost";
const PIECE_BYTES = 65_536;

export function bytesOf(content: Content): Uint8Array<ArrayBuffer> {
  if (content === null) return new Uint8Array();
  if (content instanceof Uint8Array) return new Uint8Array(content);
  const { start, unit, times, end } =
    typeof content === "string" ? { start: content, unit: "", times: 0, end: "" } : content;
  return new TextEncoder().encode(start + unit.repeat(times) + end);
}

/** A path as a URL has it: with its dots resolved, and encoded. */
export function pathnameOf(path: string): string {
  return new URL(`${ORIGIN}${path}`).pathname;
}

/** Makes the request. @param sources by their names, with their own secrets, and with other ones */
export async function toRequest(
  { method, path, headers, content, sending, signing }: Hostile,
  sources: Readonly<Record<Signing["by"], ReadonlyMap<string, ConfiguredSource>>>,
): Promise<Request> {
  const body = bytesOf(content);
  const sent = new Headers();
  if (signing !== null) {
    const { source, id, ageSeconds, by, content: signedContent = content } = signing;
    const scheme = sources[by].get(source)?.scheme;
    if (scheme?.ok !== true) throw new Error(`can't sign for ${source}`);
    const signed = await signWebhook(
      scheme.value,
      { method, url: `${ORIGIN}${path}`, headers: new Headers(), body: bytesOf(signedContent) },
      { now: new Date(Date.now() - ageSeconds * 1000), id },
    );
    if (signed === null) throw new Error(`can't sign for ${source}`);
    for (const [name, value] of signed.headers) sent.set(name, value);
  }
  const replaced = new Set<string>();
  for (const [name, value] of headers) {
    // Given twice, it is sent twice.
    if (replaced.has(name)) sent.append(name, value);
    else sent.set(name, value);
    replaced.add(name);
  }
  return new Request(`${ORIGIN}${path}`, {
    method,
    headers: sent,
    ...(content !== null && { body: sending === "whole" ? body : piecesOf(body, sending), duplex: "half" }),
  });
}

function piecesOf(body: Uint8Array<ArrayBuffer>, sending: Sending): ReadableStream {
  let at = 0;
  return new ReadableStream({
    pull(controller) {
      if (at < body.length) controller.enqueue(body.slice(at, at + PIECE_BYTES));
      else if (sending === "broken") controller.error(new TypeError(`Network connection lost ${CANARY}`));
      else controller.close();
      at += PIECE_BYTES;
    },
  });
}
