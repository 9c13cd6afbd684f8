import type { Statement } from "../port.ts";
import { nullable, text } from "../rows.ts";

/** The newest migration that this build is written for. A test holds it against the folder. */
export const SCHEMA_VERSION = "0002_executor";

/** Reads the newest migration of the database; `null` where none was applied. Without the schema it fails: schema_mismatch. */
export function readSchemaVersion(): Statement<string | null> {
  return {
    text: "SELECT max(name) AS version FROM awa_edge.migrations",
    values: [],
    decode: ([row = {}]) => nullable(row, "version", text),
  };
}
