import type { Statement } from "../port.ts";
import { nullable, text } from "../rows.ts";

/** The newest migration that this build is written for. A test holds it against the folder. */
export const SCHEMA_VERSION = "0003_webhooks";

/** Reads the newest migration of the database; `null` where none was applied. Without the schema it fails: schema_mismatch. */
export function readSchemaVersion(): Statement<string | null> {
  return {
    text: "SELECT max(name) AS version FROM awa_edge.migrations",
    values: [],
    decode: ([row = {}]) => nullable(row, "version", text),
  };
}

/** Says what doesn't fit between a database and this build, and what to do; `null` where all fits. */
export function whyOtherSchema(version: string | null): string | null {
  if (version === SCHEMA_VERSION) return null;
  return version !== null && version > SCHEMA_VERSION
    ? `the database schema (${version}) is newer than this build (${SCHEMA_VERSION}): deploy the build that belongs to it`
    : `the database schema is older than this build (${SCHEMA_VERSION}): run \`npm run migrate\``;
}
