import type { Database, Row, Statement } from "../../src/shared/db/port.ts";

/** A database that answers each statement with rows, or rejects, and remembers what reached it. */
export interface FakeDatabase extends Database {
  readonly seen: Statement<unknown>[];
}

/** @param answer the rows of a statement; what it throws is the rejection. Default: no statement is expected */
export function fakeDatabase(
  answer: (statement: Statement<unknown>) => readonly Row[] = unexpected,
): FakeDatabase {
  const seen: Statement<unknown>[] = [];
  return {
    seen,
    async query(statement) {
      seen.push(statement);
      return statement.decode(answer(statement));
    },
    batch: () => Promise.reject(new Error("no batch is expected")),
  };
}

function unexpected(): never {
  throw new Error("no statement is expected");
}
