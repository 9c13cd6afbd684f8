import { inspect } from "node:util";
import type pg from "pg";
import { afterEach, beforeEach, vi } from "vitest";
import { jsonLog, type Log } from "../../src/shared/log.ts";
import { type Canary, shownIn } from "./canaries.ts";

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
