import { randomBytes } from "node:crypto";
import { inspect } from "node:util";
import type pg from "pg";
import { afterEach, beforeEach, vi } from "vitest";
import { jsonLog, type Log } from "../../src/shared/log.ts";

/** Something recognizable that must not come out, and what it is. */
export interface Canary {
  readonly what: string;
  readonly text: string;
}

/** A text that nothing else has. Letters and digits alone, so that only {@link spellingsOf} says how else it can stand somewhere. */
export function canary(what: string): string {
  return `${what.replace(/\W/g, "")}Canary${randomBytes(9).toString("hex")}`;
}

/** The ways in which a text can be written: as it is, in base64 within anything, in hexadecimal digits, percent-encoded, as JSON. */
export function spellingsOf(text: string): readonly (readonly [spelling: string, written: string])[] {
  const bytes = Buffer.from(text);
  return [
    ["as it is", text],
    ["percent-encoded", encodeURIComponent(text)],
    ["as JSON", JSON.stringify(text).slice(1, -1)],
    ["in hexadecimal digits", bytes.toString("hex")],
    // What stands before it decides how the same bytes look in base64.
    ...[0, 1, 2].flatMap((before) => {
      const shifted = Buffer.concat([Buffer.alloc(before), bytes]);
      const whole = { from: before === 0 ? 0 : before + 1, to: Math.floor((shifted.length * 8) / 6) };
      const cut = (encoding: "base64" | "base64url") =>
        shifted.toString(encoding).slice(whole.from, whole.to);
      return [
        ["in base64", cut("base64")],
        ["in base64url", cut("base64url")],
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

/** Everything that comes out while a test runs: log lines, whatever is printed, answers, and errors as they would be printed. */
export interface Outside {
  readonly log: Log;
  /** Takes an answer, with its headers. @returns its status and its text */
  answer(response: Response): Promise<{ readonly status: number; readonly text: string }>;
  /** Takes an error that came out, with all that hangs on it. */
  error(thrown: unknown): void;
  text(where: string, text: string): void;
  /** What of these has come out, and where. */
  leaks(canaries: readonly Canary[]): readonly string[];
  /** All of it, for a test to see that there is something. */
  whole(): string;
}

/** Watches what comes out, for each test anew. */
export function watchOutside(): Outside {
  let seen: { readonly where: string; readonly text: string }[] = [];
  const written = () => seen.map(({ where, text }) => `${where} ${text}`);
  const text = (where: string, shown: string) => void seen.push({ where, text: shown });
  beforeEach(() => {
    seen = [];
    for (const method of ["log", "info", "warn", "error", "debug"] as const) {
      vi.spyOn(console, method).mockImplementation((...args: unknown[]) =>
        text("console", args.map((arg) => (typeof arg === "string" ? arg : inspect(arg, DEEP))).join(" ")),
      );
    }
  });
  afterEach(() => vi.restoreAllMocks());
  return {
    log: jsonLog((line) => text("log", line)),
    async answer(response) {
      const body = await response.text();
      text("answer", `${JSON.stringify([...response.headers])} ${body}`);
      return { status: response.status, text: body };
    },
    error: (thrown) => text("error", inspect(thrown, DEEP)),
    text,
    leaks: (canaries) => shownIn(written(), canaries),
    whole: () => written().join("\n"),
  };
}

const DEEP = { depth: 10, showHidden: true, maxStringLength: null } as const;

/** Every row that is stored, as text. */
export async function everythingStored(pool: pg.Pool): Promise<readonly string[]> {
  const { rows } = await pool.query<{ text: string }>(
    ["jobs", "callbacks", "deliveries", "rescue_followups", "queues", "schedules"]
      .map((table) => `SELECT to_jsonb(t)::text AS text FROM awa_edge.${table} t`)
      .join(" UNION ALL "),
  );
  return rows.map((row) => row.text);
}

/** What of these values must not come out: of a connection string the password too, of digits and base64 the bytes. */
export function secretsOf(values: Readonly<Record<string, string>>): readonly Canary[] {
  return Object.entries(values).flatMap(([what, text]) => {
    const password = text.includes("://") ? (URL.parse(text)?.password ?? "") : "";
    const parts = [text, password, text.replace(/^whsec_/, "")];
    if (/^[0-9a-f]{64}$/.test(text)) parts.push(Buffer.from(text, "hex").toString("base64"));
    return [...new Set(parts)].filter((part) => part !== "").map((part) => ({ what, text: part }));
  });
}
