import { randomBytes } from "node:crypto";
import type { RegisteredSource } from "../../src/shared/registry/source.ts";

/** What a secret can look like: most schemes take any text, some base64 after a prefix, some hexadecimal digits. */
const FORMS = [
  () => `whsec_${randomBytes(24).toString("base64")}`,
  () => randomBytes(32).toString("hex"),
] as const;

/**
 * Random values for the variables that sources need, by name, so that they can be tried with `npm run sign`. A source that only its
 * provider can sign for gets none: with a random public key it would refuse everything, instead of saying that its own is missing.
 */
export function randomSecrets(sources: readonly RegisteredSource[]): ReadonlyMap<string, string> {
  const values = new Map<string, string>();
  for (const { scheme, secret } of sources) {
    const variables = Object.fromEntries(
      scheme.variables.map((name) => [name, values.get(name) ?? randomBytes(16).toString("hex")]),
    );
    for (const [name, value] of Object.entries(variables)) values.set(name, value);
    if (secret === null || values.has(secret)) continue;
    const value = FORMS.map((form) => form()).find((candidate) => {
      const ready = scheme.ready([candidate], variables);
      return ready.ok && ready.value.signing !== undefined;
    });
    if (value !== undefined) values.set(secret, value);
  }
  return values;
}
