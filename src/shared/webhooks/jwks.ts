import { err, ok, type Result } from "../result.ts";
import { type Bytes, concat, fromBase64 } from "./encoding.ts";
import { parseJson } from "./places.ts";
import type { NotVerified, VerifyContext } from "./scheme.ts";

/** Less than what the most hurried provider waits for our answer. */
const FETCH_TIMEOUT_MS = 5_000;
/** Key sets and certificates have a few thousand. */
const MAX_PUBLISHED_BYTES = 65_536;
/** So many for each source and isolate: whoever sends us requests must not be able to make us flood a provider. */
const MAX_FETCHES_PER_MINUTE = 20;
const MAX_KEPT = 16;

/** What providers publish, fetched, read and kept for a while. */
export interface Published<T> {
  /**
   * What stands at a URL. The caller has looked at its host: it may have come with a request that nobody vouches for.
   *
   * @param maxAgeSeconds what was fetched longer ago is fetched again
   */
  get(url: string, maxAgeSeconds: number, context: VerifyContext): Promise<Result<T, NotVerified>>;
}

/**
 * Keeps what a scheme's provider publishes. Only values are kept, never a fetch under way: on Workers that belongs to the request
 * that began it, so that two requests that come at once may both fetch.
 *
 * @param read makes a value of a text; `null`, or a throw, where it isn't what it should be
 */
export function published<T>(read: (text: string) => Promise<T | null>): Published<T> {
  const kept = new Map<string, { readonly at: number; readonly value: T }>();
  let starts: readonly number[] = [];
  return {
    async get(url, maxAgeSeconds, context) {
      const at = context.now.getTime();
      const found = kept.get(url);
      if (found !== undefined && Math.abs(at - found.at) <= maxAgeSeconds * 1000) return ok(found.value);
      starts = starts.filter((start) => Math.abs(at - start) < 60_000);
      if (starts.length >= MAX_FETCHES_PER_MINUTE) {
        return unavailable("the provider's keys were asked for too often in the last minute");
      }
      starts = [...starts, at];
      const value = await fetched(url, read, context);
      if (value === null) return unavailable("the provider's keys couldn't be fetched");
      kept.delete(url);
      const [oldest] = kept.keys();
      if (oldest !== undefined && kept.size >= MAX_KEPT) kept.delete(oldest);
      kept.set(url, { at, value });
      return ok(value);
    },
  };
}

function unavailable(reason: string): Result<never, NotVerified> {
  return err({ status: "unavailable", reason });
}

/** Fetches and reads a text; `null` where that fails in any way. Redirects aren't followed: they could lead anywhere. */
async function fetched<T>(
  url: string,
  read: (text: string) => Promise<T | null>,
  { fetch }: VerifyContext,
): Promise<T | null> {
  try {
    const signal = AbortSignal.timeout(FETCH_TIMEOUT_MS);
    const { status, body } = await fetch(new Request(url, { redirect: "manual", signal }));
    if (status !== 200 || body === null) {
      await body?.cancel();
      return null;
    }
    const pieces: Uint8Array[] = [];
    let length = 0;
    for await (const piece of body) {
      pieces.push(piece);
      length += piece.length;
      if (length > MAX_PUBLISHED_BYTES) return null;
    }
    return await read(new TextDecoder().decode(concat(pieces)));
  } catch {
    return null;
  }
}

/** Reads base64url as JWK and JWT have it, without padding; `null` for anything else, and for nothing. */
export function fromBase64Url(text: string): Bytes | null {
  if (!/^[\w-]+$/.test(text)) return null;
  const padding = "=".repeat(-text.length & 3);
  return fromBase64(text.replaceAll("-", "+").replaceAll("_", "/") + padding);
}

/** The fields of a JSON object; none of anything else. */
export function fieldsOf(json: unknown): Readonly<Record<string, unknown>> {
  return typeof json === "object" && json !== null ? { ...json } : {};
}

/** A key of Web Crypto: the types of Node know it by no name. */
export type PublicKey = Awaited<ReturnType<typeof crypto.subtle.importKey>>;

/** A key of a set, and the name that the set has for it. */
export interface JwksKey {
  readonly id: unknown;
  readonly key: PublicKey;
}

/** How long a set is kept: revoked keys are trusted for as long at most. fal allows 24 hours. */
const MAX_AGE_SECONDS = 21_600;
/** How soon a set is fetched again where none of its keys fits: bad signatures may come by the thousand. */
const MIN_REFETCH_SECONDS = 60;
const MAX_KEYS = 32;

/** The keys that a provider publishes at one URL. */
export interface Jwks {
  /** Whether one of the keys fits. Where none does, the set is fetched again, since it may have been changed, but not too often. */
  fits(
    matches: (key: JwksKey) => Promise<boolean>,
    context: VerifyContext,
  ): Promise<Result<null, NotVerified>>;
}

/**
 * A JSON Web Key Set, kept for up to 6 hours. https://www.rfc-editor.org/rfc/rfc7517#section-5
 *
 * @param importKey makes a key of a member of the set; `null`, or a throw, for one of another kind, which is passed over
 */
export function jwks(
  url: string,
  importKey: (jwk: Readonly<Record<string, unknown>>) => Promise<PublicKey | null>,
): Jwks {
  const sets = published(async (text) => {
    const { keys } = fieldsOf(parseJson(new TextEncoder().encode(text)));
    if (!Array.isArray(keys)) return null;
    const read = await Promise.all(
      keys.slice(0, MAX_KEYS).map(async (item: unknown) => {
        const jwk = fieldsOf(item);
        const key = await importKey(jwk).catch(() => null);
        return key === null ? [] : [{ id: jwk.kid, key }];
      }),
    );
    const usable = read.flat();
    return usable.length > 0 ? usable : null;
  });
  return {
    async fits(matches, context) {
      const set = await sets.get(url, MAX_AGE_SECONDS, context);
      if (!set.ok) return set;
      if (await someMatch(set.value, matches)) return ok(null);
      const newer = await sets.get(url, MIN_REFETCH_SECONDS, context);
      if (!newer.ok) return newer;
      return newer.value !== set.value && (await someMatch(newer.value, matches))
        ? ok(null)
        : err({ status: "refused", reason: "its signature fits none of the provider's keys" });
    },
  };
}

async function someMatch(
  keys: readonly JwksKey[],
  matches: (key: JwksKey) => Promise<boolean>,
): Promise<boolean> {
  for (const key of keys) if (await matches(key).catch(() => false)) return true;
  return false;
}
