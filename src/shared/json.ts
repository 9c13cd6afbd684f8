/** What JSON can hold. */
export type Json = null | boolean | number | string | readonly Json[] | JsonObject;
export interface JsonObject {
  readonly [key: string]: Json;
}

/**
 * Nesting that we accept. Postgres's own JSON parser gives up at a few thousand levels and JSON.stringify overflows
 * the stack; nothing that a person meant is nested this deep.
 */
export const MAX_JSON_DEPTH = 128;

/**
 * Says why a value can't be stored as jsonb without loss, or `null` where it can.
 *
 * Refused: NUL characters and lone surrogates (Postgres can't store them), numbers that aren't finite (JSON would
 * silently write null), nesting deeper than {@link MAX_JSON_DEPTH}, and everything that isn't plain JSON data (a Date, a
 * Map, a function, a promise, a bigint). A property whose value is `undefined` counts as absent, as in JSON.stringify.
 *
 * The reason names the place by its position, never by content: it may reach a log.
 *
 * @param value what is to be stored
 * @param at how the reason calls the value, for example "payload"
 */
export function whyUnstorable(value: unknown, at: string): string | null {
  return why(value, at, 0);
}

/** Narrows a value to Json by the rules of {@link whyUnstorable}. */
export function isStorable(value: unknown): value is Json {
  return value !== undefined && whyUnstorable(value, "value") === null;
}

/** Tells an object from the other sorts of JSON. */
export function isJsonObject(value: Json): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/**
 * Canonical JSON, RFC 8785: members by name in the order of UTF-16, nothing between tokens; numbers and texts as JSON.stringify has them. Five
 * lines, as the library would be a hundredth of the bundle; the tests hold it against the library.
 */
export function canonicalJson(value: Json): string {
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(",")}]`;
  if (!isJsonObject(value)) return JSON.stringify(value);
  const members = Object.entries(value).filter(([, member]) => member !== undefined);
  const written = members.sort(([a], [b]) => (a < b ? -1 : 1));
  return `{${written.map(([name, member]) => `${JSON.stringify(name)}:${canonicalJson(member)}`).join(",")}}`;
}

/** A text as Postgres can store it: without NUL characters, and without halves of surrogate pairs. For texts that people read. */
export function storableText(text: string): string {
  return text.replaceAll("\0", "").toWellFormed();
}

/** What a row other than a job's keeps of an error's text. */
const MAX_KEPT_CHARACTERS = 2000;

/** The beginning of an error's text, storable: for the record of a delivery, or of a rescue's follow-ups. */
export function keptText(text: string): string {
  return storableText(text.slice(0, MAX_KEPT_CHARACTERS));
}

/** Controls but the line break of an indentation, and what turns the direction of text around or isn't seen. */
const UNPRINTABLE = /(?!\n)[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;

/** A value as JSON for a log or a terminal, in which it can move no cursor and hide nothing: JSON.stringify leaves some of that as it is. */
export function printableJson(value: unknown, indent?: number): string {
  return JSON.stringify(value, null, indent).replace(UNPRINTABLE, (character) =>
    Array.from({ length: character.length }, (_, i) => character.charCodeAt(i))
      .map((unit) => `\\u${unit.toString(16).padStart(4, "0")}`)
      .join(""),
  );
}

/** Says why Postgres can't store a text, or `null` where it can. */
export function whyUnstorableText(text: string, at: string): string | null {
  if (text.includes("\0")) return `${at} contains a NUL character, which Postgres can't store`;
  if (!text.isWellFormed()) return `${at} contains half of a surrogate pair, which isn't valid Unicode`;
  return null;
}

function why(value: unknown, at: string, depth: number): string | null {
  switch (typeof value) {
    case "boolean":
      return null;
    case "number":
      return Number.isFinite(value) ? null : `${at} contains a number that isn't finite`;
    case "string":
      return whyUnstorableText(value, at);
    case "object":
      break;
    default:
      return `${at} contains a ${typeof value}, which JSON can't hold`;
  }
  if (value === null) return null;
  if (depth >= MAX_JSON_DEPTH) return `${at} is nested deeper than ${MAX_JSON_DEPTH} levels`;
  if (Array.isArray(value)) {
    for (const item of value) {
      const reason = why(item, at, depth + 1);
      if (reason !== null) return reason;
    }
    return null;
  }
  const prototype: unknown = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== null) {
    return `${at} contains an object that isn't plain data, such as a Date, a Map or a promise`;
  }
  for (const [key, item] of Object.entries(value)) {
    if (item === undefined) continue;
    const reason = whyUnstorableText(key, at) ?? why(item, at, depth + 1);
    if (reason !== null) return reason;
  }
  return null;
}
