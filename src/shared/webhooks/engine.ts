import { err, ok, type Result } from "../result.ts";
import { type Compiled, compile } from "./compiled.ts";
import type { WebhookDescription } from "./description.ts";
import { type Key, whyBadText } from "./keys.ts";
import { type Source, sourceOf, textOf } from "./places.ts";
import { accept, type WebhookScheme } from "./scheme.ts";
import { fill, fillText } from "./template.ts";

/**
 * Makes a scheme of a description: what `hmac`, `publicKey` and `token` have in common.
 *
 * A signature is looked for, its timestamp compared with the clock, and only then is the content put together, byte for byte as it
 * came, and the signature compared with it in constant time. JSON is parsed only where a place in the body is named.
 *
 * @param keyOf makes a key of a secret that has no white space around it, or says what is wrong with it, without quoting it
 * @throws Error for a description that can't be meant
 */
export function describedScheme<D extends WebhookDescription>(
  description: D,
  keyOf: (secret: string, description: D) => Result<Key, string>,
): WebhookScheme {
  const compiled = compile(description);
  return {
    name: description.name,
    secrets: "required",
    variables: [],
    deliveryId(request, payload) {
      const source = { request, json: () => payload };
      for (const template of compiled.deliveryIds) {
        const id = fillText(template, source);
        if (id !== undefined) return id;
      }
      return undefined;
    },
    ready(secrets) {
      const keys: Key[] = [];
      for (const [i, secret] of secrets.entries()) {
        const reason = whyBadText(secret);
        const key = reason === null ? keyOf(secret, description) : err(reason);
        if (!key.ok) {
          return secrets.length === 1 ? key : err(`${key.error} (secret ${i + 1} of ${secrets.length})`);
        }
        keys.push(key.value);
      }
      const [first] = keys;
      if (first === undefined) return err("is missing");
      return ok({
        async verify(request, { now }) {
          const reason = await whyRefused(compiled, keys, sourceOf(request), now);
          return reason === null ? ok(accept(request)) : err({ status: "refused", reason });
        },
        ...(first.sign !== undefined && { signing: { description, mac: first.sign } }),
      });
    },
  };
}

/** Why a request isn't genuine, or `null`. Doesn't throw. */
async function whyRefused(
  compiled: Compiled,
  keys: readonly Key[],
  source: Source,
  now: Date,
): Promise<string | null> {
  const items = compiled.items(source);
  const signatures = items
    .filter((item) => item !== "" && item.startsWith(compiled.label))
    .map((item) => compiled.decode(item.slice(compiled.label.length)))
    .filter((signature) => signature !== null);
  if (signatures.length === 0) return "it has no signature of the right form";
  if (signatures.length > compiled.maxSignatures) return "it has too many signatures";
  const timestamp = timestampOf(compiled, items, source, now);
  if (!timestamp.ok) return timestamp.error;
  const content = await fill(compiled.content, source, timestamp.value);
  if (typeof content === "string") return `${content} is signed, and it has no such value, or has it twice`;
  let isGenuine = false;
  let reason = "its signature doesn't fit";
  for (const key of keys) {
    try {
      isGenuine = (await key.matches(content, signatures)) || isGenuine;
    } catch {
      // A public key that is none, which only Web Crypto can tell; or content that isn't text, where only text can be signed.
      reason = "its signature can't be checked by this key";
    }
  }
  return isGenuine ? null : reason;
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
