import type { IncomingHttpHeaders } from "node:http";

/** What one POST /sql asks for. */
export interface SqlRequest {
  readonly database: string;
  /** Percent-encoded, as in the connection string. */
  readonly login: { readonly user: string; readonly password: string; readonly database: string };
  readonly statements: readonly SqlStatement[];
  /** The BEGIN that the statements run under; `null` for a single one, which commits by itself. */
  readonly begin: string | null;
  /** Values as Postgres prints them, instead of as JSON values. */
  readonly rawText: boolean;
  /** Rows as arrays, instead of as objects. */
  readonly rowAsArray: boolean;
}

export interface SqlStatement {
  readonly text: string;
  /** As the driver prepared them: texts and nulls. */
  readonly values: unknown[];
}

/** A request that isn't well-formed: answered 400 with this message. */
export class BadRequest extends Error {}

const ISOLATION_LEVELS: ReadonlyMap<string, string> = new Map([
  ["ReadUncommitted", "READ UNCOMMITTED"],
  ["ReadCommitted", "READ COMMITTED"],
  ["RepeatableRead", "REPEATABLE READ"],
  ["Serializable", "SERIALIZABLE"],
]);

/** Reads headers and body of a POST /sql, as the driver sends them. @throws BadRequest */
export function parseSqlRequest(headers: IncomingHttpHeaders, body: Buffer): SqlRequest {
  const login = parseConnectionString(header(headers, "neon-connection-string"));
  const parsed = parseJson(body);
  const queries = property(parsed, "queries");
  return {
    database: decodeURIComponent(login.database),
    login,
    statements: Array.isArray(queries) ? queries.map(parseStatement) : [parseStatement(parsed)],
    begin: Array.isArray(queries) ? parseBegin(headers) : null,
    rawText: isTrue(headers, "neon-raw-text-output"),
    rowAsArray: isTrue(headers, "neon-array-mode"),
  };
}

function parseConnectionString(value: string | undefined): SqlRequest["login"] {
  if (value === undefined) throw new BadRequest("missing header: Neon-Connection-String");
  const url = URL.parse(value);
  if (url === null || !/^postgres(ql)?:$/.test(url.protocol) || url.username === "") {
    throw new BadRequest("invalid connection string");
  }
  const database = url.pathname.slice(1);
  try {
    decodeURIComponent(database);
  } catch {
    throw new BadRequest("invalid connection string");
  }
  return { user: url.username, password: url.password, database: database === "" ? url.username : database };
}

function parseBegin(headers: IncomingHttpHeaders): string {
  const level = header(headers, "neon-batch-isolation-level");
  const isolation = level === undefined ? "READ COMMITTED" : ISOLATION_LEVELS.get(level);
  if (isolation === undefined) throw new BadRequest("invalid value for header Neon-Batch-Isolation-Level");
  const access = isTrue(headers, "neon-batch-read-only") ? "READ ONLY" : "READ WRITE";
  const deferrable = isTrue(headers, "neon-batch-deferrable") ? "DEFERRABLE" : "NOT DEFERRABLE";
  return `BEGIN ISOLATION LEVEL ${isolation} ${access} ${deferrable}`;
}

function parseStatement(value: unknown): SqlStatement {
  const text = property(value, "query");
  const params = property(value, "params") ?? [];
  if (typeof text !== "string" || !Array.isArray(params)) {
    throw new BadRequest("a query must be {query: string, params?: array}");
  }
  return { text, values: params };
}

function parseJson(body: Buffer): unknown {
  try {
    return JSON.parse(body.toString("utf8"));
  } catch {
    throw new BadRequest("the body must be JSON");
  }
}

function property(value: unknown, name: string): unknown {
  return typeof value === "object" && value !== null ? Reflect.get(value, name) : undefined;
}

function isTrue(headers: IncomingHttpHeaders, name: string): boolean {
  return header(headers, name)?.toLowerCase() === "true";
}

function header(headers: IncomingHttpHeaders, name: string): string | undefined {
  const value = headers[name];
  return Array.isArray(value) ? value[0] : value;
}
