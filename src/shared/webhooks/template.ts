import { type Bytes, concat, toHex, utf8 } from "./encoding.ts";
import { readerOf, type Source, textOf } from "./places.ts";

/** Reads what a part of a template stands for: text, a number, bytes, or a promise of them. */
type ReadPart = (source: Source, timestamp: string) => unknown;

/** A placeholder, or the text between two, whose name is "". */
interface Part {
  readonly name: string;
  readonly read: ReadPart;
  /** Stands for no text where a request has no such value, instead of making it refused. */
  readonly optional: boolean;
}

/** A template such as `{timestamp}.{body}`, taken apart. */
export type Template = readonly Part[];

/** The escapes that HubSpot undoes before it signs, and no others. */
const HUBSPOT_ESCAPES = /%(?:2[14789ACF]|3[ABF]|40)/gi;

/** What stands for a request as a whole. `{sha256}`: of the body, in lower-case hexadecimal digits. */
const WHOLE: Readonly<Record<string, ReadPart>> = {
  body: ({ request }) => request.body,
  timestamp: (_, timestamp) => timestamp,
  url: ({ request }) => request.url,
  decodedUrl: ({ request }) => request.url.replace(HUBSPOT_ESCAPES, decodeURIComponent),
  method: ({ request }) => request.method,
  sha256: async ({ request }) => toHex(new Uint8Array(await crypto.subtle.digest("SHA-256", request.body))),
};

/**
 * Takes a template apart.
 *
 * @param text with placeholders: places, and where they may stand for it, the request as a whole
 * @throws Error where it has a placeholder that there isn't, or none at all
 */
export function templateOf(text: string, { mayHaveWhole = true } = {}): Template {
  const template = text
    .split(/(\{[^{}]*\})/)
    .filter((piece) => piece !== "")
    .map((piece): Part => {
      if (!/[{}]/.test(piece)) return { name: "", read: () => piece, optional: false };
      const name = piece.slice(1, -1);
      const whole = mayHaveWhole && Object.hasOwn(WHOLE, name) ? WHOLE[name] : undefined;
      if (whole !== undefined) return { name, read: whole, optional: false };
      const optional = name.endsWith("?");
      const place = optional ? name.slice(0, -1) : name;
      return { name: place, read: readerOf(place), optional };
    });
  if (template.every(({ name }) => name === "")) throw new Error(`"${text}" says nothing of a request`);
  return template;
}

/** Whether a template has this placeholder. */
export function has(template: Template, placeholder: string): boolean {
  return template.some(({ name }) => name === placeholder);
}

/** The bytes that a template stands for, or the name of what the request lacks. */
export async function fill(template: Template, source: Source, timestamp: string): Promise<Bytes | string> {
  const pieces: Uint8Array[] = [];
  for (const part of template) {
    const value = await part.read(source, timestamp);
    if (value instanceof Uint8Array) {
      pieces.push(value);
      continue;
    }
    const text = partText(part, value);
    if (text === undefined) return part.name;
    pieces.push(utf8(text));
  }
  return concat(pieces);
}

/** The text that a template of places stands for; `undefined` where the request lacks one of them, or they all are empty. */
export function fillText(template: Template, source: Source): string | undefined {
  const texts = template.map((part) => partText(part, part.read(source, "")));
  return texts.includes(undefined) ? undefined : texts.join("") || undefined;
}

function partText({ optional }: Part, value: unknown): string | undefined {
  return textOf(value) ?? (optional ? "" : undefined);
}
