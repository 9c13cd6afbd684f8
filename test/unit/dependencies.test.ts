import { readFileSync } from "node:fs";
import path from "node:path";
import { describe, expect, test } from "vitest";

// What the threat model says of the packages that are deployed.

interface Locked {
  readonly version?: string;
  readonly integrity?: string;
  readonly hasInstallScript?: boolean;
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly dev?: boolean;
  readonly optional?: boolean;
  readonly devOptional?: boolean;
}
const read = (file: string) =>
  JSON.parse(readFileSync(path.resolve(import.meta.dirname, "../..", file), "utf8"));
const asked: Record<"dependencies" | "devDependencies", Record<string, string>> = read("package.json");
const locked: Record<string, Locked> = read("package-lock.json").packages;
const deployed = Object.entries(locked).filter(
  ([folder, { dev, optional, devOptional }]) => folder !== "" && !dev && !optional && !devOptional,
);

test("only what package.json asks for is deployed: nothing comes along with it", () => {
  expect(deployed.map(([folder]) => folder).toSorted()).toEqual(
    Object.keys(asked.dependencies)
      .map((name) => `node_modules/${name}`)
      .toSorted(),
  );
});

test("every version that is asked for is an exact one, and the one that is installed", () => {
  for (const [name, version] of Object.entries({ ...asked.dependencies, ...asked.devDependencies })) {
    expect(version, name).toMatch(/^\d+\.\d+\.\d+(-[\w.]+)?$/);
    expect(locked[`node_modules/${name}`]?.version, name).toBe(version);
  }
});

describe.each(deployed)("%s", (_, { integrity, hasInstallScript, dependencies }) => {
  test("is known by its hash, runs nothing when it is installed, and needs no other package", () => {
    expect(integrity).toMatch(/^sha512-/);
    expect(hasInstallScript).toBeUndefined();
    expect(dependencies).toBeUndefined();
  });
});
