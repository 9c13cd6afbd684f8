import pg from "pg";
import { BadRequest, type SqlRequest, type SqlStatement } from "./neon-request.ts";

/** Called around statements, so that a test can let something else happen at that very moment. */
export interface Hooks {
  readonly beforeStatement?: (statement: { database: string; text: string }) => void | Promise<void>;
  readonly afterCommit?: (request: SqlRequest) => void | Promise<void>;
}

/** An answer of the protocol: the HTTP status, and what to send as JSON. */
export interface Answer {
  readonly status: number;
  readonly body: unknown;
}

/**
 * Runs a request on a pool, as Neon does: a single statement commits by itself, a batch is one transaction that is
 * rolled back whole where a statement fails. Never rejects for what Postgres or the network says.
 *
 * @param endBefore Postgres ends the connection before the statement of that index; for tests
 */
export async function runSqlRequest(
  pool: pg.Pool,
  request: SqlRequest,
  { beforeStatement = () => undefined, afterCommit = () => undefined }: Hooks,
  endBefore?: number,
): Promise<Answer> {
  try {
    const results = await withClient(pool, async (client) => {
      const done: unknown[] = [];
      if (request.begin !== null) await client.query(request.begin);
      for (const [index, statement] of request.statements.entries()) {
        if (index === endBefore) await client.query("SELECT pg_terminate_backend(pg_backend_pid())");
        await beforeStatement({ database: request.database, text: statement.text });
        done.push(await run(client, statement, request));
      }
      if (request.begin !== null) await client.query("COMMIT");
      return done;
    });
    await afterCommit(request);
    return { status: 200, body: request.begin === null ? results[0] : { results } };
  } catch (thrown) {
    return toAnswer(thrown);
  }
}

/** The answer to what was thrown: 400 with Postgres's own fields where Postgres refused, 500 where it wasn't reached. */
export function toAnswer(thrown: unknown): Answer {
  if (thrown instanceof BadRequest) return { status: 400, body: { message: thrown.message } };
  if (!(thrown instanceof pg.DatabaseError)) {
    return { status: 500, body: { message: thrown instanceof Error ? thrown.message : String(thrown) } };
  }
  const { message, severity, code, detail, hint, position, internalPosition, internalQuery, where } = thrown;
  const { schema, table, column, dataType, constraint, file, line, routine } = thrown;
  const origin = { schema, table, column, dataType, constraint, file, line, routine };
  const error = { message, severity, code, detail, hint, position, internalPosition, internalQuery, where };
  return { status: 400, body: orNull({ ...error, ...origin }) };
}

async function withClient<T>(pool: pg.Pool, work: (client: pg.PoolClient) => Promise<T>): Promise<T> {
  const client = await pool.connect();
  let isClean = false;
  // Postgres may end the connection at any time; without a listener that would end this process.
  const onError = () => undefined;
  client.on("error", onError);
  try {
    const result = await work(client);
    isClean = await reset(client);
    return result;
  } catch (thrown) {
    isClean =
      thrown instanceof pg.DatabaseError && (await succeeds(client, "ROLLBACK")) && (await reset(client));
    throw thrown;
  } finally {
    client.off("error", onError);
    client.release(!isClean);
  }
}

/** No setting, lock or temporary table may outlive its request. Fails, rightly, where a transaction was left open. */
function reset(client: pg.PoolClient): Promise<boolean> {
  return succeeds(client, "DISCARD ALL");
}

async function succeeds(client: pg.PoolClient, command: string): Promise<boolean> {
  try {
    await client.query(command);
    return true;
  } catch {
    return false;
  }
}

async function run(client: pg.PoolClient, { text, values }: SqlStatement, request: SqlRequest) {
  // The extended protocol, as on Neon: one statement a query, even without parameters.
  const query: pg.QueryArrayConfig & { queryMode: "extended" } = {
    text,
    values,
    rowMode: "array",
    queryMode: "extended",
    types: { getTypeParser: (oid: number) => (request.rawText ? asText : parserOf(oid)) },
  };
  const { fields, rows, rowCount, command } = await client.query(query);
  const names = fields.map((field) => field.name);
  return {
    fields,
    rows: request.rowAsArray
      ? rows
      : rows.map((row) => Object.fromEntries(names.map((name, index) => [name, row[index]]))),
    rowCount,
    command,
    rowAsArray: request.rowAsArray,
  };
}

function asText(value: unknown): unknown {
  return value;
}

/** What Neon turns into JSON values where raw text wasn't asked for. Arrays stay text here, which Neon would convert. */
function parserOf(oid: number): (value: string) => unknown {
  switch (oid) {
    case pg.types.builtins.BOOL:
      return (value) => value === "t";
    case pg.types.builtins.INT2:
    case pg.types.builtins.INT4:
    case pg.types.builtins.FLOAT4:
    case pg.types.builtins.FLOAT8:
      return (value) => (Number.isFinite(Number(value)) ? Number(value) : value);
    case pg.types.builtins.JSON:
    case pg.types.builtins.JSONB:
      return (value) => JSON.parse(value);
    default:
      return asText;
  }
}

function orNull(fields: Record<string, string | undefined>): Record<string, string | null> {
  return Object.fromEntries(Object.entries(fields).map(([name, value]) => [name, value ?? null]));
}
