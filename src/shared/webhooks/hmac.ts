import { err, ok, type Result } from "../result.ts";
import { answerOf, compileChallenges, greetingOf } from "./challenge.ts";
import { type Compiled, compile } from "./compiled.ts";
import type { WebhookDescription } from "./description.ts";
import { type Key, keyOf, whyBadText } from "./keys.ts";
import { type Source, sourceOf, textOf } from "./places.ts";
import { accept, type WebhookScheme } from "./scheme.ts";
import { fill, fillText } from "./template.ts";

/**
 * Describes how a provider signs, in one go and without code: by HMAC, by Ed25519 or ECDSA, by BLAKE3, or by nothing but a token.
 * The presets are made of it; so is a provider that has none.
 *
 * A signature is looked for, its timestamp compared with the clock, and only then is the content put together, byte for byte as it
 * came, and the signature compared with it in constant time. JSON is parsed only where a place in the body is named.
 *
 * @param description see {@link WebhookDescription}; times in seconds
 * @returns the scheme of a source. Its secrets are checked when the source is made ready: white space around them, keys that aren't
 *   what `key` says, and keys that are too short are refused by name. All secrets verify, the first one signs, unless they are the
 *   provider's public keys. A signed request lacks its signature where it lacks something that is signed.
 * @throws Error for a description that can't be meant
 *
 * @example A provider that sends `Acme-Signature: t=1700000000,v1=5257a8…`
 * ```ts
 * hmac({
 *   name: "acme",
 *   algorithm: "hmac-sha256",
 *   key: "utf8",
 *   signature: { from: "header:Acme-Signature", separator: ",", label: "v1=", encoding: "hex" },
 *   timestamp: { from: "field:t", unit: "s", toleranceSeconds: 300 },
 *   content: "{timestamp}.{body}",
 *   deliveryId: "{body:id}",
 * })
 * ```
 */
export function hmac(description: WebhookDescription): WebhookScheme {
  const compiled = compile(description);
  const challenges = compileChallenges(description);
  const { name, greeting } = description;
  return {
    name,
    secrets: "required",
    variables: greeting === undefined ? [] : [greeting.variable],
    deliveryId(request, payload) {
      const source = { request, json: () => payload };
      for (const template of compiled.deliveryIds) {
        const id = fillText(template, source);
        if (id !== undefined) return id;
      }
      return undefined;
    },
    ready(secrets, variables) {
      const keys: Key[] = [];
      for (const [i, secret] of secrets.entries()) {
        const key = keyOf(secret, description);
        if (!key.ok) {
          return secrets.length === 1 ? key : err(`${key.error} (secret ${i + 1} of ${secrets.length})`);
        }
        keys.push(key.value);
      }
      const [first] = keys;
      if (first === undefined) return err("is missing");
      const token = greeting && (variables[greeting.variable] ?? "");
      const reason = token === undefined ? null : whyBadText(token);
      if (reason !== null) return err(`needs another variable, ${greeting?.variable}, which ${reason}`);
      return ok({
        async verify(request, { now }) {
          const key = await keyThatSigned(compiled, keys, sourceOf(request), now);
          return key.ok ? ok(accept(request)) : err({ status: "refused", reason: key.error });
        },
        ...(challenges.length > 0 && {
          answer: async (request, { now }) => {
            const source = sourceOf(request);
            // While secrets rotate, a provider wants to be answered by the one that it signs by.
            return answerOf(challenges, source, async () => {
              const key = await keyThatSigned(compiled, keys, source, now);
              return key.ok ? key.value : first;
            });
          },
        }),
        ...(greeting !== undefined && token !== undefined && { greet: greetingOf(greeting, token) }),
        ...(first.sign !== undefined && { signing: { description, mac: first.sign } }),
      });
    },
  };
}

/** The key by which a request is signed, or why it isn't genuine. Doesn't throw. */
async function keyThatSigned(
  compiled: Compiled,
  keys: readonly Key[],
  source: Source,
  now: Date,
): Promise<Result<Key, string>> {
  const items = compiled.items(source);
  const signatures = items
    .filter((item) => item !== "" && item.startsWith(compiled.label))
    .map((item) => compiled.decode(item.slice(compiled.label.length)))
    .filter((signature) => signature !== null);
  if (signatures.length === 0) return err("it has no signature of the right form");
  if (signatures.length > compiled.maxSignatures) return err("it has too many signatures");
  const timestamp = timestampOf(compiled, items, source, now);
  if (!timestamp.ok) return timestamp;
  const content = await fill(compiled.content, source, timestamp.value);
  if (typeof content === "string") {
    return err(`${content} is signed, and it has no such value, or has it twice`);
  }
  let found: Key | undefined;
  let reason = "its signature doesn't fit";
  for (const key of keys) {
    try {
      if (await key.matches(content, signatures)) found ??= key;
    } catch {
      // A public key that is none, which only Web Crypto can tell; or content that isn't text, where only text can be signed.
      reason = "its signature can't be checked by this key";
    }
  }
  return found === undefined ? err(reason) : ok(found);
}

/** The timestamp of a request as it was received; "" where the provider sends none. */
function timestampOf(
  { time }: Compiled,
  items: readonly string[],
  source: Source,
  now: Date,
): Result<string, string> {
  if (time === undefined) return ok("");
  const { label, read, unit, toleranceSeconds } = time;
  const fields = items.filter((item) => label !== undefined && item.startsWith(label));
  // Two that differ: which of them is signed, and which was added to look fresh?
  if (new Set(fields).size > 1) return err("it has two timestamps");
  const text = label === undefined ? textOf(read(source)) : fields[0]?.slice(label.length);
  if (text === undefined) return err("it has no timestamp");
  const away = Math.abs(now.getTime() - MILLISECONDS[unit](text));
  if (Number.isNaN(away)) return err("its timestamp can't be read");
  return away <= toleranceSeconds * 1000
    ? ok(text)
    : err(`its timestamp is more than ${toleranceSeconds} s away from now`);
}

const RFC3339 = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:(\.\d{1,3})\d*)?(Z|[+-]\d\d:\d\d)$/;

/** Milliseconds since 1970, by the unit of a text; NaN for what isn't one. */
const MILLISECONDS = {
  s: (text: string) => (/^\d+$/.test(text) ? Number(text) * 1000 : Number.NaN),
  ms: (text: string) => (/^\d+$/.test(text) ? Number(text) : Number.NaN),
  // Some providers send nanoseconds.
  rfc3339: (text: string) => {
    const [, seconds, fraction = "", zone] = RFC3339.exec(text) ?? [];
    return seconds === undefined ? Number.NaN : Date.parse(`${seconds}${fraction}${zone}`);
  },
};
