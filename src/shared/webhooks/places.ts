import type { WebhookRequest } from "./scheme.ts";

/** A request that places are read from. */
export interface Source {
  readonly request: WebhookRequest;
  /** The body as JSON; `undefined` where it isn't. */
  readonly json: () => unknown;
}

/** Reads one place: a text, a number, whatever stands there; `undefined` where nothing does. */
export type Read = (source: Source) => unknown;

/** Bodies beyond this many bytes aren't parsed: it happens before anyone has vouched for them. */
const MAX_JSON_BYTES = 1_048_576;

/** A request whose body is parsed when a place in it is first read, and once. */
export function sourceOf(request: WebhookRequest): Source {
  let parsed: { readonly json: unknown } | undefined;
  return {
    request,
    json: () => {
      parsed ??= { json: request.body.length > MAX_JSON_BYTES ? undefined : parseJson(request.body) };
      return parsed.json;
    },
  };
}

/** `undefined` where bytes aren't JSON in UTF-8. */
export function parseJson(body: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true, ignoreBOM: false }).decode(body));
  } catch {
    return undefined;
  }
}

const HEADER_NAME = /^[\w!#$%&'*+.^`|~-]+$/;

const READERS: Readonly<Record<string, (name: string) => Read>> = {
  header: (name) => {
    if (!HEADER_NAME.test(name)) throw new Error(`"${name}" can't be the name of a header`);
    return ({ request }) => {
      const value = request.headers.get(name);
      // One that comes twice arrives joined by a comma, and which of them the provider signed can't be told.
      return value === null || value === "" || value.includes(",") ? undefined : value;
    };
  },
  query:
    (name) =>
    ({ request }) =>
      urlOf(request)?.searchParams.get(name) ?? undefined,
  // The segment of the URL's path that follows the one of this name.
  segment:
    (name) =>
    ({ request }) => {
      const segments = urlOf(request)?.pathname.split("/") ?? [];
      const at = segments.indexOf(name);
      return at < 0 ? undefined : decoded(segments[at + 1] ?? "");
    },
  body: (path) => {
    const steps = stepsOf(path);
    return (source) => steps.reduce(inside, source.json());
  },
};

/**
 * Prepares the reading of one place.
 *
 * @throws Error for a place that can't be
 */
export function readerOf(place: string): Read {
  const [, kind = "", name = ""] = /^(\w+):(.+)$/s.exec(place) ?? [];
  const reader = Object.hasOwn(READERS, kind) ? READERS[kind] : undefined;
  if (reader === undefined) {
    throw new Error(
      `"${place}" is no place in a request: it wants to be header:…, query:…, segment:… or body:…`,
    );
  }
  return reader(name);
}

/** What is signed or compared as text; `undefined` for a list, an object and nothing. */
export function textOf(value: unknown): string | undefined {
  return typeof value === "string" || typeof value === "number" || typeof value === "boolean"
    ? String(value)
    : undefined;
}

/** The names of a path, outermost first. */
export function stepsOf(path: string): readonly string[] {
  const steps = path.split(".");
  if (steps.includes("")) throw new Error(`"${path}" isn't the path of a field: a name is missing`);
  return steps;
}

function inside(value: unknown, step: string): unknown {
  if (typeof value !== "object" || value === null) return undefined;
  if (step !== "*") return Object.hasOwn(value, step) ? Reflect.get(value, step) : undefined;
  return Array.isArray(value) && value.length === 1 ? value[0] : undefined;
}

function urlOf(request: WebhookRequest): URL | undefined {
  return URL.canParse(request.url) ? new URL(request.url) : undefined;
}

function decoded(segment: string): string | undefined {
  try {
    return decodeURIComponent(segment) || undefined;
  } catch {
    return undefined;
  }
}
