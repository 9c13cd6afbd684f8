import { fromHex, toBase64, toHex, utf8 } from "../../src/shared/webhooks/encoding.ts";

/** Something recognizable that must not come out, and what it is. */
export interface Canary {
  readonly what: string;
  readonly text: string;
}

/** A text that nothing else has. Letters and digits alone, so that only {@link spellingsOf} says how else it can stand somewhere. */
export function canary(what: string): string {
  return `${what.replace(/\W/g, "")}Canary${crypto.randomUUID().replaceAll("-", "")}`;
}

/** The ways in which a text can be written: as it is, in base64 within anything, in hexadecimal digits, percent-encoded, as JSON. */
export function spellingsOf(text: string): readonly (readonly [spelling: string, written: string])[] {
  const bytes = utf8(text);
  return [
    ["as it is", text],
    ["percent-encoded", encodeURIComponent(text)],
    ["as JSON", JSON.stringify(text).slice(1, -1)],
    ["in hexadecimal digits", toHex(bytes)],
    // What stands before it decides how the same bytes look in base64.
    ...[0, 1, 2].flatMap((before) => {
      const shifted = new Uint8Array([...new Uint8Array(before), ...bytes]);
      const written = toBase64(shifted).slice(before === 0 ? 0 : before + 1, (shifted.length * 8) / 6);
      return [
        ["in base64", written],
        ["in base64url", written.replaceAll("+", "-").replaceAll("/", "_")],
      ] as const;
    }),
  ];
}

/** Which canaries these texts show, in whatever spelling, and in which. */
export function shownIn(texts: readonly string[], canaries: readonly Canary[]): readonly string[] {
  const spelled = canaries.flatMap(({ what, text }) =>
    spellingsOf(text).map(([spelling, written]) => {
      const isBase64 = spelling.startsWith("in base64");
      return { what: `${what} ${spelling}`, isBase64, written: isBase64 ? written : written.toLowerCase() };
    }),
  );
  return texts.flatMap((text) => {
    const lowerCase = text.toLowerCase();
    return spelled
      .filter(({ isBase64, written }) => (isBase64 ? text : lowerCase).includes(written))
      .map(({ what }) => `${what}: ${text}`);
  });
}

/** What of these values must not come out: of a connection string the password too, of digits and base64 the bytes. */
export function secretsOf(values: Readonly<Record<string, string>>): readonly Canary[] {
  return Object.entries(values).flatMap(([what, text]) => {
    const password = text.includes("://") ? (URL.parse(text)?.password ?? "") : "";
    const parts = [text, password, text.replace(/^whsec_/, "")];
    const digits = /^[0-9a-f]{64}$/.test(text) ? fromHex(text) : null;
    if (digits !== null) parts.push(toBase64(digits));
    return [...new Set(parts)].filter((part) => part !== "").map((part) => ({ what, text: part }));
  });
}
