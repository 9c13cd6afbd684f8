/** What a statement's parameters may be: what every Postgres driver sends alike. JSON goes as text, times as ISO 8601. */
export type SqlValue = string | number | boolean | null | readonly string[];

/** A row as a driver returns it: column name to value. */
export type Row = Readonly<Record<string, unknown>>;

/**
 * One SQL statement with its parameters and the reader of its rows. `text` and `values` are what any driver takes
 * (`pool.query(statement)` of `pg`, `sql.query(text, values)` of Neon), so that an application can run one in a
 * transaction of its own; `decode` turns the rows that came back into the result.
 */
export interface Statement<R> {
  readonly text: string;
  readonly values: readonly SqlValue[];
  readonly decode: (rows: readonly Row[]) => R;
}

/** The results of a list of statements, in its order. */
export type Results<S extends readonly Statement<unknown>[]> = {
  -readonly [I in keyof S]: S[I] extends Statement<infer R> ? R : never;
};

/**
 * The database. Each call is one round trip and one transaction at READ COMMITTED.
 *
 * Both methods reject with a DatabaseError (`errors.ts`) and nothing else. A rejection says that the answer didn't come, not
 * that nothing happened: a statement may have committed all the same, so every transition is safe to repeat.
 */
export interface Database {
  query<R>(statement: Statement<R>): Promise<R>;
  /** All or nothing, in order. */
  batch<const S extends readonly Statement<unknown>[]>(statements: S): Promise<Results<S>>;
}

/** Decodes the rows of a batch, statement by statement. */
export function decodeAll<const S extends readonly Statement<unknown>[]>(
  statements: S,
  rows: readonly (readonly Row[])[],
): Results<S> {
  return statements.map((statement, i) => statement.decode(rows[i] ?? [])) as Results<S>;
}

/**
 * A database for one invocation: opened at its first use, its round trips counted for the log line.
 *
 * @param open makes the database; called once at the most
 */
export function countRoundTrips(open: () => Database): Database & { readonly roundTrips: number } {
  let opened: Database | undefined;
  let roundTrips = 0;
  const use = () => {
    roundTrips++;
    opened ??= open();
    return opened;
  };
  return {
    get roundTrips() {
      return roundTrips;
    },
    query: (statement) => use().query(statement),
    batch: (statements) => use().batch(statements),
  };
}
