import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { describe, expect, test } from "vitest";
import { SCHEMA_VERSION } from "../../src/shared/db/statements/read-schema-version.ts";

const SRC = path.resolve(import.meta.dirname, "../../src");

interface Import {
  readonly from: string;
  /** A file below src/, or a package. */
  readonly to: string;
}

/** Every import and re-export of a file, types included: a type is a dependency for the next reader too. */
function importsOf(file: string, source: string): Import[] {
  return [...source.matchAll(/^(?:import|export)\b[^;]*?\bfrom\s+"([^"]+)"/gms)].map(([, to = ""]) => ({
    from: file,
    to: to.startsWith(".") ? path.posix.join(path.posix.dirname(file), to) : to,
  }));
}

const layerOf = (file: string): string => (file.includes("/") ? (file.split("/")[0] ?? "") : "root");
const isFile = (to: string) => to.endsWith(".ts");
const isDatabase = (file: string) => file.startsWith("shared/db/") || file.startsWith("shared/use-cases/");

const MAY_IMPORT: Readonly<Record<string, readonly string[]>> = {
  root: ["root", "ingress", "cron", "executor", "shared"],
  ingress: ["ingress", "shared"],
  cron: ["cron", "executor", "shared"],
  executor: ["executor", "shared"],
  shared: ["shared"],
};
const PACKAGES: Readonly<Record<string, RegExp>> = {
  "@neondatabase/serverless": /^shared\/db\/neon\.ts$/,
  hono: /^ingress\//,
  valibot: /^ingress\/|^(registry|sources)\.ts$/,
  "@noble/hashes": /^shared\/(signature|unique-key|webhooks\/encoding)\.ts$/,
  "@marcbachmann/cel-js": /^shared\/cel\.ts$/,
  croner: /^shared\/registry\/cron-expression\.ts$/,
  "@standard-schema/spec": /^shared\/registry\//,
};
/** The bindings' parser takes its defaults from where they belong. */
const PURE_EXCEPTIONS = ["shared/env.ts -> shared/db/statements/delete-ended.ts"];

/** What an import breaks; `null` where it is fine. */
function breach({ from, to }: Import): string | null {
  if (!isFile(to)) {
    const name = Object.keys(PACKAGES).find(
      (candidate) => to === candidate || to.startsWith(`${candidate}/`),
    );
    return name !== undefined && PACKAGES[name]?.test(from) ? null : `${from} imports the package ${to}`;
  }
  if (!MAY_IMPORT[layerOf(from)]?.includes(layerOf(to))) return `${from} imports ${to}`;
  const isPure = layerOf(from) === "shared" && !isDatabase(from);
  return isPure && isDatabase(to) && !PURE_EXCEPTIONS.includes(`${from} -> ${to}`)
    ? `${from} is pure and imports ${to}`
    : null;
}

/** A cycle among the imports, as a chain of files; `null` where there is none. */
function cycleIn(imports: readonly Import[]): string | null {
  const done = new Set<string>();
  function visit(file: string, chain: readonly string[]): string | null {
    if (chain.includes(file)) return [...chain.slice(chain.indexOf(file)), file].join(" -> ");
    if (done.has(file)) return null;
    for (const { from, to } of imports) {
      if (from !== file || !isFile(to)) continue;
      const cycle = visit(to, [...chain, file]);
      if (cycle !== null) return cycle;
    }
    done.add(file);
    return null;
  }
  for (const { from } of imports) {
    const cycle = visit(from, []);
    if (cycle !== null) return cycle;
  }
  return null;
}

const files = readdirSync(SRC, { recursive: true, encoding: "utf8" })
  .map((file) => file.replaceAll(path.sep, "/"))
  .filter((file) => file.endsWith(".ts"));
const sources = new Map(files.map((file) => [file, readFileSync(path.join(SRC, file), "utf8")]));
const imports = [...sources].flatMap(([file, source]) => importsOf(file, source));
const filesThat = (pattern: RegExp) => files.filter((file) => pattern.test(sources.get(file) ?? ""));

describe("the tree", () => {
  test("index → ingress | cron | executor → shared, and every package in its place", () => {
    expect(imports.length).toBeGreaterThan(100);
    expect(imports.map(breach).filter((found) => found !== null)).toEqual([]);
  });
  test("no cycles", () => {
    expect(cycleIn(imports)).toBeNull();
  });
  test("no barrel below src/", () => {
    expect(files.filter((file) => file.endsWith("index.ts"))).toEqual(["index.ts"]);
  });
  test("errors become statuses in one file, bindings are read in one file", () => {
    expect(filesThat(/\b(401|404|409|410|413|415|422|500|503)\b/)).toEqual([
      "ingress/app.ts",
      "ingress/wire-errors.ts",
    ]);
    expect(filesThat(/"(DATABASE_URL|NEON_FETCH_ENDPOINT|AWA_[A-Z_]+)"/)).toEqual([
      "shared/env.ts",
      "shared/source-env.ts",
      "shared/worker-env.ts",
    ]);
  });
  test("the schema of this build is the newest migration", () => {
    const migrations = readdirSync(path.resolve(SRC, "../migrations")).toSorted();
    expect(`${SCHEMA_VERSION}.sql`).toBe(migrations.at(-1));
  });
});

describe("a breach is found", () => {
  const found = (from: string, line: string) => importsOf(from, line).map(breach);
  test.each([
    ["shared/job.ts", 'import { createApp } from "../ingress/app.ts";'],
    ["ingress/app.ts", 'import type { Task } from "../cron/task.ts";'],
    ["cron/task.ts", 'import { refuse } from "../ingress/context.ts";'],
    ["cron/task.ts", 'import {\n  neon,\n} from "@neondatabase/serverless";'],
    ["shared/transitions.ts", 'export { readJob } from "./db/statements/read-job.ts";'],
    ["ingress/app.ts", 'import leftPad from "left-pad";'],
  ])("%s: %s", (from, line) => {
    expect(found(from, line)).toEqual([expect.stringContaining(from)]);
  });
  test("a cycle", () => {
    const chain = [
      { from: "a.ts", to: "b.ts" },
      { from: "b.ts", to: "c.ts" },
      { from: "c.ts", to: "b.ts" },
    ];
    expect(cycleIn(chain)).toBe("b.ts -> c.ts -> b.ts");
  });
});
