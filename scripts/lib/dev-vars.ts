import { randomBytes } from "node:crypto";
import { readFileSync, renameSync, writeFileSync } from "node:fs";
import { parseEnv } from "node:util";
import { errorCode } from "./processes.ts";

/** The variables of a `.dev.vars` file, which `wrangler dev` reads; none where there is no such file. */
export function readDevVars(file: string): Map<string, string> {
  return new Map(Object.entries(parseEnv(readOrEmpty(file))).map(([name, value]) => [name, value ?? ""]));
}

/**
 * Points `.dev.vars` at a database. Sets DATABASE_URL and NEON_FETCH_ENDPOINT, and gives callbacks a random secret where
 * the file doesn't say yet how they are authenticated. Every other line stays as it is.
 *
 * @param defaults further variables, for those that the file doesn't have
 * @returns the variables as they are then
 */
export function updateDevVars(
  file: string,
  database: { readonly databaseUrl: string; readonly neonEndpoint: string },
  defaults: ReadonlyMap<string, string> = new Map(),
): Map<string, string> {
  const before = readDevVars(file);
  let text = readOrEmpty(file);
  text = withVariable(text, "DATABASE_URL", database.databaseUrl);
  text = withVariable(text, "NEON_FETCH_ENDPOINT", database.neonEndpoint);
  if (!before.get("AWA_CALLBACK_HMAC_SECRET") && !before.get("AWA_CALLBACK_ALLOW_UNSIGNED")) {
    text = withVariable(text, "AWA_CALLBACK_HMAC_SECRET", randomBytes(32).toString("hex"));
  }
  for (const [name, value] of defaults) if (!before.get(name)) text = withVariable(text, name, value);
  // Whole or not at all, and for this user only: it holds secrets.
  const partial = `${file}.partial`;
  writeFileSync(partial, text, { mode: 0o600 });
  renameSync(partial, file);
  return readDevVars(file);
}

function withVariable(text: string, name: string, value: string): string {
  const line = `${name}="${value}"`;
  // All of them: where there are several, the last one counts.
  const existing = new RegExp(`^[ \\t]*(export[ \\t]+)?${name}[ \\t]*=.*$`, "gm");
  if (text.search(existing) >= 0) return text.replace(existing, () => line);
  return `${text}${text === "" || text.endsWith("\n") ? "" : "\n"}${line}\n`;
}

function readOrEmpty(file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch (thrown) {
    if (errorCode(thrown) === "ENOENT") return "";
    throw thrown;
  }
}
