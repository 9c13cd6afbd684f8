import type { SignaturePlace, WebhookDescription } from "./description.ts";
import { type Bytes, fromBase64, fromHex, utf8 } from "./encoding.ts";
import { type Read, readerOf, type Source, textOf } from "./places.ts";
import { has, type Template, templateOf } from "./template.ts";

/** DocuSign signs by up to 100 keys at once. */
const MAX_SIGNATURES = 100;
/** A public key costs a whole verification for each. */
const MAX_PUBLIC_KEY_SIGNATURES = 10;

/** A description, checked and taken apart. */
export interface Compiled {
  /** The signatures of a request and what stands beside them, as text, separated and trimmed; empty where it has none. */
  readonly items: (source: Source) => readonly string[];
  readonly label: string;
  readonly decode: (text: string) => Bytes | null;
  readonly maxSignatures: number;
  readonly content: Template;
  readonly time?: {
    /** What an item begins with that is the timestamp. */
    readonly label?: string;
    readonly read: Read;
    readonly unit: "s" | "ms" | "rfc3339";
    readonly toleranceSeconds: number;
  };
  readonly deliveryIds: readonly Template[];
}

const DECODERS = { hex: fromHex, base64: fromBase64, text: utf8 };

/**
 * Takes a description apart.
 *
 * @throws Error for one that can't be meant
 */
export function compile(description: WebhookDescription): Compiled {
  const { name, algorithm, deliveryId = [] } = description;
  const complain = (sentence: string) => new Error(`the webhook scheme "${name}": ${sentence}`);
  if (name === "") throw new Error("a webhook scheme wants a name");
  const signature: Omit<SignaturePlace, "encoding"> = description.signature;
  const { from, separator, label = "" } = signature;
  const places: readonly string[] = typeof from === "string" ? [from] : from;
  if (places.length === 0) throw complain("it says nowhere where the signature stands");
  if (separator !== undefined && label.includes(separator)) {
    throw complain("a label can't have what separates the signatures");
  }
  // A header that comes twice arrives joined by a comma. Where that doesn't make a list of it, it's refused.
  const mayHaveComma = separator === "," || label.endsWith(",") || algorithm === "token";
  const readers = places.map((place) => signatureReader(place, mayHaveComma));
  const ids = typeof deliveryId === "string" ? [deliveryId] : deliveryId;
  const deliveryIds = ids.map((id) => templateOf(id, { mayHaveWhole: false }));
  const common = {
    items: (source: Source) =>
      readers
        .flatMap((read) => read(source))
        .flatMap((text) => (separator === undefined ? [text] : text.split(separator)))
        .map((item) => item.trim()),
    label,
    deliveryIds,
  };
  if (algorithm === "token") return { ...common, decode: DECODERS.text, maxSignatures: 1, content: [] };

  const content = templateOf(description.content);
  const whole = has(content, "body") || has(content, "sha256");
  if (whole && places.some((place) => place.startsWith("body:"))) {
    throw complain("a signature that stands in the body can't sign all of it");
  }
  const { timestamp } = description;
  if (timestamp === undefined && has(content, "timestamp")) {
    throw complain("{timestamp} is signed, and it says nowhere where that stands");
  }
  const compiled = {
    ...common,
    decode: DECODERS[description.signature.encoding],
    maxSignatures:
      algorithm === "ed25519" || algorithm === "ecdsa-p256" ? MAX_PUBLIC_KEY_SIGNATURES : MAX_SIGNATURES,
    content,
  };
  if (timestamp === undefined) return compiled;

  const { from: place, unit, toleranceSeconds } = timestamp;
  const inBody = place.startsWith("body:");
  if (!(has(content, "timestamp") || has(content, place) || (inBody && whole))) {
    throw complain("its timestamp isn't part of what is signed, so that anyone could change it");
  }
  if (!(toleranceSeconds > 0 && toleranceSeconds < Number.POSITIVE_INFINITY)) {
    throw complain("toleranceSeconds wants to be a number of seconds above zero");
  }
  if (!place.startsWith("field:")) {
    return { ...compiled, time: { read: readerOf(place), unit, toleranceSeconds } };
  }
  if (separator === undefined) throw complain("a timestamp in a field wants a separator between the fields");
  const field = `${place.slice("field:".length)}=`;
  if (field === "=" || field === label) throw complain(`${place} can't be told from the signature`);
  return { ...compiled, time: { label: field, read: () => undefined, unit, toleranceSeconds } };
}

/** Reads a place as the texts that stand there: several for headers with a number. */
function signatureReader(place: string, mayHaveComma: boolean): (source: Source) => readonly string[] {
  const read = readerOf(place);
  if (place.startsWith("header:")) {
    const isFine = (value: string) => value !== "" && (mayHaveComma || !value.includes(","));
    const name = place.slice("header:".length).toLowerCase();
    if (!name.endsWith("-*")) {
      return ({ request }) => [request.headers.get(name) ?? ""].filter(isFine);
    }
    const start = name.slice(0, -1);
    return ({ request }) =>
      [...request.headers]
        .filter(([other]) => other.startsWith(start) && /^\d+$/.test(other.slice(start.length)))
        .map(([, value]) => value)
        .filter(isFine);
  }
  return (source) => {
    const text = textOf(read(source));
    return text === undefined ? [] : [text];
  };
}
