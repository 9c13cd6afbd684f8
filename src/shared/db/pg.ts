import { toDatabaseError } from "./errors.ts";
import { type Database, decodeAll, type Row, type SqlValue } from "./port.ts";

/** What we need of a `pg` client. */
interface PgClient {
  query(text: string, values?: SqlValue[]): Promise<{ rows: Row[] }>;
  release(destroy?: boolean): void;
}

/** What we need of a `pg` Pool; named by its shape, so that this file needs no Postgres driver. */
export interface PgPool {
  connect(): Promise<PgClient>;
}

/**
 * A Database over a `pg` Pool, for applications and scripts on Node. Set `statement_timeout` and
 * `connectionTimeoutMillis` on the pool: the adapter adds none. Listen to the pool's `error` event too, or an idle connection
 * that Postgres ends will end the process.
 */
export function pgDatabase(pool: PgPool): Database {
  async function withClient<T>(work: (client: PgClient) => Promise<T>): Promise<T> {
    const client = await pool.connect().catch(rethrow);
    let broken = true;
    try {
      const result = await work(client);
      broken = false;
      return result;
    } catch (thrown) {
      const error = toDatabaseError(thrown);
      broken = error.sqlState === null;
      throw error;
    } finally {
      client.release(broken);
    }
  }

  return {
    async query(statement) {
      const { rows } = await withClient((client) => client.query(statement.text, [...statement.values]));
      return statement.decode(rows);
    },
    async batch(statements) {
      const rows = await withClient(async (client) => {
        await client.query("BEGIN ISOLATION LEVEL READ COMMITTED");
        try {
          const results: Row[][] = [];
          for (const { text, values } of statements) {
            results.push((await client.query(text, [...values])).rows);
          }
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

function rethrow(thrown: unknown): never {
  throw toDatabaseError(thrown);
}
