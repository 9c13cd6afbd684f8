import type { SqlRequest } from "./neon-request.ts";

/**
 * What goes wrong with a request:
 *
 * - `"cut-before"`: the connection breaks before anything ran;
 * - `"cut-after"`: everything ran and committed, then the connection breaks before the answer;
 * - `"truncate"`: everything ran and committed, the connection breaks in the middle of the answer;
 * - `{ hangMs }`: everything ran and committed, the answer comes that many milliseconds late;
 * - `{ delayMs }`: everything runs that many milliseconds late, maybe after its sender has given it up;
 * - `{ status }`: nothing ran, the answer is that HTTP status, with JSON or, with `text`, without;
 * - `{ endBefore }`: Postgres ends the connection before the statement of that index, in the middle of a batch.
 */
export type Fault =
  | "cut-before"
  | "cut-after"
  | "truncate"
  | { readonly hangMs: number }
  | { readonly delayMs: number }
  | { readonly status: number; readonly text?: string }
  | { readonly endBefore: number };

/** Decides about one request; `undefined`: nothing goes wrong. */
export type FaultOf = (request: SqlRequest) => Fault | undefined;

/** What callers sent, for each database. Our own BEGIN and COMMIT aren't in it. */
export interface Journal {
  readonly log: readonly { readonly database: string; readonly text: string }[];
  /** How many SQL statements were run. */
  statements(database: string): number;
  /** How many HTTP requests came, those included that a fault ended. */
  requests(database: string): number;
  /** Forgets a database's statements and requests. */
  resetStatements(database: string): void;
  /** Makes requests for a database go wrong, until it is called again without a function. */
  fault(database: string, faultOf?: FaultOf): void;
}

/** Enough for any test; keeps a development server that runs for weeks from growing. */
const MAX_LOG_ENTRIES = 10_000;

/** The journal, with the side that the server writes to. */
export class JournalKeeper implements Journal {
  log: { database: string; text: string }[] = [];
  #counts = new Map<string, { statements: number; requests: number }>();
  #faults = new Map<string, FaultOf>();

  statements(database: string): number {
    return this.#countsOf(database).statements;
  }

  requests(database: string): number {
    return this.#countsOf(database).requests;
  }

  resetStatements(database: string): void {
    this.#counts.delete(database);
    this.log = this.log.filter((entry) => entry.database !== database);
  }

  fault(database: string, faultOf?: FaultOf): void {
    if (faultOf === undefined) this.#faults.delete(database);
    else this.#faults.set(database, faultOf);
  }

  /** Counts the request, and decides what goes wrong with it. */
  onRequest(request: SqlRequest): Fault | undefined {
    this.#countsOf(request.database).requests++;
    return this.#faults.get(request.database)?.(request);
  }

  onStatement(entry: { database: string; text: string }): void {
    this.#countsOf(entry.database).statements++;
    this.log.push(entry);
    if (this.log.length > MAX_LOG_ENTRIES) this.log.splice(0, MAX_LOG_ENTRIES / 10);
  }

  #countsOf(database: string) {
    let counts = this.#counts.get(database);
    if (counts === undefined) {
      counts = { statements: 0, requests: 0 };
      this.#counts.set(database, counts);
    }
    return counts;
  }
}
