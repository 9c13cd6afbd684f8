import { neon, neonConfig } from "@neondatabase/serverless";
import { toDatabaseError } from "./errors.ts";
import { type Database, decodeAll, type Row, type SqlValue, type Statement } from "./port.ts";

/** A query that hasn't answered by then is given up; its outcome is unknown, and the sender's retry finds out. */
export const STATEMENT_TIMEOUT_MS = 10_000;

/**
 * A Database over Neon's HTTP protocol: one request a call, no connection kept, so it may be made anew for every
 * invocation.
 *
 * @param options.connectionString a postgres:// URL
 * @param options.fetchEndpoint the protocol's URL where it isn't Neon's own (local development)
 * @param options.timeoutMs how long one call may take, in milliseconds
 */
export function neonDatabase(options: {
  readonly connectionString: string;
  readonly fetchEndpoint?: string | undefined;
  readonly timeoutMs?: number;
}): Database {
  const { connectionString, fetchEndpoint, timeoutMs = STATEMENT_TIMEOUT_MS } = options;
  // The driver takes its endpoint from a process-wide setting; a build has one database, so one endpoint.
  if (fetchEndpoint !== undefined) neonConfig.fetchEndpoint = fetchEndpoint;
  const sql = neon(connectionString, { disableWarningInBrowsers: true });
  const fetchOptions = () => ({ signal: AbortSignal.timeout(timeoutMs) });

  return {
    async query<R>(statement: Statement<R>): Promise<R> {
      return statement.decode(
        // The driver's queries are lazy and run again on every await: await each exactly once, here.
        await sql
          .query(statement.text, mutable(statement.values), { fetchOptions: fetchOptions() })
          .catch(rethrow),
      );
    },
    async batch(statements) {
      const queries = statements.map(({ text, values }) => sql.query(text, mutable(values)));
      const rows: Row[][] = await sql
        .transaction(queries, { fetchOptions: fetchOptions(), isolationLevel: "ReadCommitted" })
        .catch(rethrow);
      return decodeAll(statements, rows);
    },
  };
}

function mutable(values: readonly SqlValue[]): unknown[] {
  return [...values];
}

function rethrow(thrown: unknown): never {
  throw toDatabaseError(thrown);
}
