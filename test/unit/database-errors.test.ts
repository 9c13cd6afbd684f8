import { NeonDbError } from "@neondatabase/serverless";
import { expect, test } from "vitest";
import { DatabaseError, toDatabaseError } from "../../src/shared/db/errors.ts";

const thrown = (code: string) =>
  Object.assign(new Error("row (hunter2) violates"), { code, constraint: "a_name" });

test.each([
  ["25006", "unavailable"],
  ["42501", "unavailable"],
  ["3D000", "unavailable"],
  ["08006", "unavailable"],
  ["28P01", "unavailable"],
  ["53300", "unavailable"],
  ["57014", "unavailable"],
  ["57P03", "unavailable"],
  ["40001", "contended"],
  ["40P01", "contended"],
  ["42P01", "schema_mismatch"],
  ["42703", "schema_mismatch"],
  ["3F000", "schema_mismatch"],
  ["23505", "unique_violation"],
  ["23514", "rejected"],
  ["22P05", "rejected"],
  ["42601", "unexpected"],
])("SQLSTATE %s: %s", (code, kind) => {
  const error = toDatabaseError(thrown(code));
  expect(error).toMatchObject({ kind, sqlState: code, constraint: "a_name" });
  expect(error.message).not.toContain("hunter2");
});

test("no SQLSTATE: it never got there, or never came back", () => {
  const network = new NeonDbError("Error connecting to database: postgres://u:hunter2@h/d");
  for (const error of [
    network,
    Object.assign(new Error(), { code: "ECONNREFUSED" }),
    Object.assign(new Error("write EPIPE"), { code: "EPIPE" }),
    new DOMException("", "TimeoutError"),
    "x",
    null,
  ]) {
    expect(toDatabaseError(error)).toMatchObject({ kind: "unavailable", sqlState: null });
    expect(String(toDatabaseError(error))).not.toContain("hunter2");
  }
});

test("what is one already stays the same", () => {
  const error = new DatabaseError("contended", "40P01");
  expect(toDatabaseError(error)).toBe(error);
});
