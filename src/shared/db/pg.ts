import { toDatabaseError } from "./errors.ts";
import { type Database, decodeAll, type Row, type SqlValue, type Statement } from "./port.ts";

/** What we need of a `pg` client. */
interface PgClient {
  query(
    query: string | { readonly text: string; readonly values: SqlValue[]; readonly name?: string },
  ): Promise<{ rows: Row[] }>;
  release(destroy?: boolean): void;
  on(event: "error", listener: (error: Error) => void): unknown;
  off(event: "error", listener: (error: Error) => void): unknown;
}

/** What we need of a `pg` Pool; named by its shape, so that this file needs no Postgres driver. */
export interface PgPool {
  connect(): Promise<PgClient>;
}

/** What the prepared statements of a pool's connections are called, by text: all adapters on one pool have to agree. */
const NAMES = new WeakMap<PgPool, Map<string, string>>();

/**
 * A Database over a `pg` Pool, for applications and scripts on Node. Set `statement_timeout` and
 * `connectionTimeoutMillis` on the pool: the adapter adds none. Listen to the pool's `error` event too, or an idle connection
 * that Postgres ends will end the process.
 *
 * @param options.prepares lets Postgres plan each statement once a connection instead of each time, which is most of what a
 *   small one costs. Not behind a pooler that gives every transaction another connection. Default: false
 */
export function pgDatabase(pool: PgPool, options: { readonly prepares?: boolean } = {}): Database {
  const names = NAMES.get(pool) ?? new Map<string, string>();
  NAMES.set(pool, names);
  const queryOf = ({ text, values }: Pick<Statement<unknown>, "text" | "values">) => {
    const query = { text, values: [...values] };
    if (options.prepares !== true) return query;
    const name = names.get(text) ?? `awa_edge_${names.size + 1}`;
    names.set(text, name);
    return { ...query, name };
  };

  async function connect(): Promise<PgClient> {
    try {
      // It may also throw before there is a promise: at a connection string that it can't read.
      return await pool.connect();
    } catch (thrown) {
      throw toDatabaseError(thrown);
    }
  }

  async function withClient<T>(work: (client: PgClient) => Promise<T>): Promise<T> {
    const client = await connect();
    // Where Postgres ends the connection, the statement rejects, and the client tells its listeners: without one, which the pool has only
    // for idle clients, that would end the process.
    client.on("error", ignore);
    let broken = true;
    try {
      const result = await work(client);
      broken = false;
      return result;
    } catch (thrown) {
      const error = toDatabaseError(thrown);
      // What made it unavailable may have been the last word on this connection.
      broken = error.sqlState === null || error.kind === "unavailable";
      throw error;
    } finally {
      client.release(broken);
      client.off("error", ignore);
    }
  }

  return {
    async query(statement) {
      const { rows } = await withClient((client) => client.query(queryOf(statement)));
      return statement.decode(rows);
    },
    async batch(statements) {
      const rows = await withClient(async (client) => {
        await client.query("BEGIN ISOLATION LEVEL READ COMMITTED");
        try {
          const results: Row[][] = [];
          for (const statement of statements) results.push((await client.query(queryOf(statement))).rows);
          await client.query("COMMIT");
          return results;
        } catch (thrown) {
          await client.query("ROLLBACK").catch(() => undefined);
          throw thrown;
        }
      });
      return decodeAll(statements, rows);
    },
  };
}

function ignore(): void {}
