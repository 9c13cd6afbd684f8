import type { JobState } from "./job.ts";
import { printableJson } from "./json.ts";
import type { Outcome } from "./outcome.ts";

/**
 * One line of the log. The fields are a closed list of names and numbers: there is none that a secret, a signature, a
 * payload or a connection string could go into. `reason` holds texts of our own making.
 */
export interface LogEntry {
  readonly level: "info" | "warn" | "error";
  /** What happened, for example `request`, `tick_task`, `registry_drift`. */
  readonly event: string;
  readonly jobId?: string | undefined;
  readonly kind?: string | undefined;
  readonly queue?: string | undefined;
  readonly attempt?: number | undefined;
  readonly state?: JobState | undefined;
  readonly callbackId?: string | undefined;
  /** The name of a source of webhooks. */
  readonly source?: string | undefined;
  readonly action?: string | undefined;
  readonly outcome?: Outcome | null | undefined;
  readonly followUpIds?: readonly string[] | undefined;
  /** Follow-ups left out because a live job holds their unique key. */
  readonly deduplicated?: number | undefined;
  readonly duplicate?: boolean | undefined;
  /** What a webhook came to. */
  readonly delivery?: string | undefined;
  readonly status?: number | undefined;
  readonly code?: string | undefined;
  readonly sqlState?: string | null | undefined;
  readonly task?: string | undefined;
  /** The name of a periodic job. */
  readonly schedule?: string | undefined;
  readonly reason?: string | undefined;
  readonly durationMs?: number | undefined;
  readonly roundTrips?: number | undefined;
  /** What a task of the tick counted. */
  readonly counts?: Readonly<Record<string, number | boolean | null>> | undefined;
}

/** Takes a line of the log. */
export type Log = (entry: LogEntry) => void;

/** A log that writes one JSON object a line. */
export function jsonLog(write: (line: string) => void = console.log): Log {
  return (entry) => write(printableJson(entry));
}
