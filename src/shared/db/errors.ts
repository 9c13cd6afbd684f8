/**
 * What a database failure means to us:
 *
 * - `unavailable`: unreachable, too slow, shutting down, read-only, out of space or connections. It passes: try again.
 * - `contended`: a deadlock or serialization failure. The statement was rolled back whole and may run again at once.
 * - `schema_mismatch`: the tables of this build aren't there. Migrate.
 * - `stale_attempt`: a handler's own transaction was to complete a job that isn't its attempt's any more. It was rolled back.
 * - `unique_violation`, `rejected`: a constraint or a value refused the write. Trying again can't help.
 */
export type DatabaseErrorKind =
  | "unavailable"
  | "contended"
  | "schema_mismatch"
  | "stale_attempt"
  | "unique_violation"
  | "rejected"
  | "unexpected";

/**
 * The one error that a Database rejects with. Its message is built from the kind, the SQLSTATE and the constraint's name
 * alone: a driver's own message can quote rows, SQL or the connection string, so it is kept out.
 */
export class DatabaseError extends Error {
  readonly kind: DatabaseErrorKind;
  /** The five characters of Postgres's error code, where the failure came from Postgres. */
  readonly sqlState: string | null;
  readonly constraint: string | null;

  constructor(kind: DatabaseErrorKind, sqlState: string | null, constraint: string | null = null) {
    super(
      [
        `database error: ${kind}`,
        sqlState && `SQLSTATE ${sqlState}`,
        constraint && `constraint ${constraint}`,
      ]
        .filter(Boolean)
        .join(", "),
    );
    this.name = "DatabaseError";
    this.kind = kind;
    this.sqlState = sqlState;
    this.constraint = constraint;
  }
}

/** Node's own codes are of capitals alone, and one has five: EPIPE, of a connection that is gone. Postgres's all have a digit. */
const SQLSTATE = /^(?=.*[0-9])[0-9A-Z]{5}$/;

/**
 * Classifies what a driver threw. Both `pg` and the Neon driver put the SQLSTATE in `code`; what has none never reached
 * Postgres or never came back (a refused connection, a time-out, an HTTP error).
 */
export function toDatabaseError(thrown: unknown): DatabaseError {
  if (thrown instanceof DatabaseError) return thrown;
  const code = property(thrown, "code");
  if (code === null || !SQLSTATE.test(code)) return new DatabaseError("unavailable", null);
  return new DatabaseError(kindOf(code), code, property(thrown, "constraint"));
}

// https://www.postgresql.org/docs/current/errcodes-appendix.html
function kindOf(sqlState: string): DatabaseErrorKind {
  switch (sqlState) {
    case "25006": // read-only transaction: a replica, or a database in recovery
    case "42501": // insufficient privilege: an operator has to grant it
    case "3D000": // no such database
    case "55P03": // lock not available
      return "unavailable";
    case "40001":
    case "40P01":
    case "AE002": // our own: raise_stale_delivery, in the migrations
      return "contended";
    case "3F000": // no such schema
    case "42P01": // no such table
    case "42703": // no such column
    case "42883": // no such function
      return "schema_mismatch";
    case "23505":
      return "unique_violation";
    case "AE001": // our own: raise_stale_attempt, in the migrations
      return "stale_attempt";
  }
  switch (sqlState.slice(0, 2)) {
    case "08": // connection
    case "28": // authorization
    case "53": // insufficient resources
    case "57": // operator intervention, statement time-out
    case "58": // system error
      return "unavailable";
    case "22": // a value Postgres can't hold
    case "23": // a constraint
    case "54": // a limit
      return "rejected";
    default:
      return "unexpected";
  }
}

function property(thrown: unknown, name: "code" | "constraint"): string | null {
  if (typeof thrown !== "object" || thrown === null) return null;
  const value: unknown = Reflect.get(thrown, name);
  return typeof value === "string" ? value : null;
}
