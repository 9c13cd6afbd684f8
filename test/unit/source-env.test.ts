import * as v from "valibot";
import { describe, expect, test } from "vitest";
import type { Bindings } from "../../src/shared/env.ts";
import { defineRegistry } from "../../src/shared/registry/define.ts";
import { complete } from "../../src/shared/registry/source.ts";
import { ok } from "../../src/shared/result.ts";
import { parseRateLimits, parseSources } from "../../src/shared/source-env.ts";
import { accept, type WebhookScheme } from "../../src/shared/webhooks/scheme.ts";
import { adyen, discord, github, meta, sharedHeader, standardWebhooks, stripe } from "../../src/webhooks.ts";

const about = { payload: v.unknown(), meaning: () => complete() };
const WHSEC = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3";
const OTHER = "whsec_ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4";
const HEX = "0f".repeat(32);

/** A scheme that remembers what it was given. */
function remembering(over: Partial<WebhookScheme> = {}) {
  const given: { secrets: readonly string[]; variables: Readonly<Record<string, string>> }[] = [];
  const scheme: WebhookScheme = {
    name: "remembering",
    secrets: "required",
    variables: [],
    deliveryId: () => undefined,
    ready(secrets, variables) {
      given.push({ secrets, variables });
      return ok({ verify: async (request) => ok(accept(request)) });
    },
    ...over,
  };
  return { scheme, given };
}

function secretsOf(value: string): readonly string[] {
  const { scheme, given } = remembering();
  parse(scheme, { SECRET: value });
  return given[0]?.secrets ?? [];
}

function parse(scheme: WebhookScheme, env: Bindings) {
  const registry = defineRegistry({}).webhook("x", { scheme, secret: "SECRET", ...about });
  return parseSources(env, registry.sources()).get("x")?.scheme ?? expect.fail("no source");
}
function problemOf(scheme: WebhookScheme, env: Bindings): string | null {
  const parsed = parse(scheme, env);
  return parsed.ok ? null : parsed.error;
}

describe("secrets of a source", () => {
  test.each([
    ["one", "one", ["one"]],
    ["several, separated by commas, in their order", "one,two,three", ["one", "two", "three"]],
    ["white space within one belongs to it", "one two,three", ["one two", "three"]],
    ["v1,whsec_… is one", `v1,${WHSEC}`, [`v1,${WHSEC}`]],
    ["also behind another, and twice", `${OTHER},v1,${WHSEC}`, [OTHER, `v1,${WHSEC}`]],
    ["and before one", `v1,${WHSEC},v1,${OTHER},x`, [`v1,${WHSEC}`, `v1,${OTHER}`, "x"]],
    ["as is v1a,whpk_…", "v1a,whpk_AAEC,v1a,whpk_AwQF", ["v1a,whpk_AAEC", "v1a,whpk_AwQF"]],
    ["but not what only ends so", "secret-v1,two", ["secret-v1", "two"]],
    ["nor v2", "v2,two", ["v2", "two"]],
    ["a quote or an equals sign is part of it", `"a"=b,'c'`, ['"a"=b', "'c'"]],
  ])("%s", (_, value, secrets) => {
    expect(secretsOf(value)).toEqual(secrets);
  });

  test.each([
    ["standard webhooks", standardWebhooks(), WHSEC],
    ["the same without whsec_", standardWebhooks(), WHSEC.slice("whsec_".length)],
    ["the same with v1,", standardWebhooks(), `v1,${WHSEC}`],
    ["several of them", standardWebhooks(), `v1,${WHSEC},${OTHER}`],
    ["any text, which looks like base64", stripe(), WHSEC],
    ["any text", github(), "it's a sécret: 5 $"],
    ["hexadecimal digits", adyen(), HEX.toUpperCase()],
    ["a public key", discord(), HEX],
    ["a token", sharedHeader({ header: "X-Gitlab-Token" }), "tok-en"],
  ])("%s: ready", (_, scheme, secret) => {
    expect(parse(scheme, { SECRET: secret })).toMatchObject({ ok: true });
  });
});

describe("a wrong secret: the variable is named, its content isn't", () => {
  test.each<[string, WebhookScheme, unknown, RegExp]>([
    ["not set", stripe(), undefined, /^SECRET is not set: .*wrangler secret put SECRET/],
    ["empty", stripe(), "", /^SECRET is not set/],
    ["no text", stripe(), 42, /^SECRET is not a text variable/],
    [
      "an object, as vars of wrangler.toml can be",
      stripe(),
      { hunter2: 1 },
      /^SECRET is not a text variable/,
    ],
    ["nothing but white space", stripe(), " \n", /^SECRET begins or ends with white space/],
    ["a line break behind it", stripe(), "hunter2\n", /^SECRET begins or ends with white space/],
    ["a space behind the comma", stripe(), "hunter2, hunter22", /^SECRET: .*white space \(secret 2 of 2\)/],
    ["a comma too many", stripe(), "hunter2,", /^SECRET: is empty \(secret 2 of 2\)/],
    ["two commas", stripe(), "hunter2,,hunter22", /^SECRET: is empty \(secret 2 of 3\)/],
    ["of another kind", standardWebhooks(), "hunter2!", /^SECRET: is not whsec_ and base64/],
    ["the second one", standardWebhooks(), `${WHSEC},hunter2!`, /whsec_ .*\(secret 2 of 2\)$/],
    ["too short", standardWebhooks(), "whsec_aHVudGVyMg==", /^SECRET: is too short/],
    ["no hexadecimal digits", adyen(), "hunter2", /^SECRET: is not hexadecimal digits/],
    ["a public key of another length", discord(), "ab".repeat(31), /^SECRET: is not a public key/],
    ["no header's", sharedHeader({ header: "X-A" }), "hunter2é", /^SECRET: .*no header can have/],
  ])("%s", (_, scheme, value, problem) => {
    const found = problemOf(scheme, { SECRET: value });
    expect(found).toMatch(problem);
    expect(found).not.toMatch(/hunter2|aHVudGVy|MDEyMzQ1|abab/);
  });
});

describe("further variables of a scheme", () => {
  const scheme = () => remembering({ variables: ["ONE", "TWO"] });

  test("are handed over whole, commas and all, beside the secrets", () => {
    const { scheme: remembers, given } = scheme();
    parse(remembers, { SECRET: "a,b", ONE: "1,2", TWO: "v1,x", THREE: "not asked for" });
    expect(given).toEqual([{ secrets: ["a", "b"], variables: { ONE: "1,2", TWO: "v1,x" } }]);
  });
  test.each<[Bindings, string]>([
    [{ SECRET: "a", ONE: "1" }, "TWO is not set"],
    [{ SECRET: "a", TWO: "2" }, "ONE is not set"],
    [{ SECRET: "a", ONE: "1 ", TWO: "2" }, "ONE begins or ends with white space"],
    [{ ONE: "1", TWO: "2" }, "SECRET is not set"],
  ])("%j: %s, and the scheme isn't asked", (env, problem) => {
    const { scheme: remembers, given } = scheme();
    expect(problemOf(remembers, env)).toContain(problem);
    expect(given).toEqual([]);
  });
  test("without a secret of its own a scheme gets none, whatever is set", () => {
    const { scheme: remembers, given } = remembering({ secrets: "none", variables: ["ONE"] });
    const registry = defineRegistry({}).webhook("x", { scheme: remembers, ...about });
    parseSources({ SECRET: "a", ONE: "1" }, registry.sources());
    expect(given).toEqual([{ secrets: [], variables: { ONE: "1" } }]);
  });
  test("a wrong secret names all the variables that the scheme reads", () => {
    const parsed = problemOf(meta({ verifyTokenVariable: "TOKEN" }), { SECRET: "a,", TOKEN: "hunter2" });
    expect(parsed).toBe("SECRET, TOKEN: is empty (secret 2 of 2)");
  });
});

describe("several sources", () => {
  const registry = defineRegistry({})
    .webhook("first", { scheme: stripe(), secret: "FIRST", ...about })
    .webhook("second", { scheme: standardWebhooks(), secret: "SECOND", ...about })
    .webhook("third", { scheme: github(), secret: "FIRST", ...about });
  const readyIn = (env: Bindings) =>
    [...parseSources(env, registry.sources())].map(([name, { scheme }]) => [name, scheme.ok]);

  test("each has its own problem, and the others go on; a variable may serve several", () => {
    const all = (first: boolean, second: boolean) => [
      ["first", first],
      ["second", second],
      ["third", first],
    ];
    expect(readyIn({ FIRST: "a", SECOND: WHSEC })).toEqual(all(true, true));
    expect(readyIn({ FIRST: "a" })).toEqual(all(true, false));
    expect(readyIn({ FIRST: "a", SECOND: "hunter2!" })).toEqual(all(true, false));
    expect(readyIn({ SECOND: WHSEC })).toEqual(all(false, true));
    expect(readyIn({})).toEqual(all(false, false));
  });
  test("a registry without sources has none", () => {
    expect(parseSources({ FIRST: "a" }, defineRegistry({}).sources()).size).toBe(0);
  });
  test("what every object has isn't a secret", () => {
    const proto = defineRegistry({}).webhook("x", { scheme: stripe(), secret: "constructor", ...about });
    expect(parseSources({}, proto.sources()).get("x")?.scheme.ok).toBe(false);
  });
});

describe("rate limiters", () => {
  const limiter = () => ({ limit: async () => ({ success: true }) });

  test("where neither is bound there is no limit", () => {
    expect(parseRateLimits({})).toEqual(ok({ source: null, address: null }));
    expect(parseRateLimits({ AWA_WEBHOOK_SOURCE_LIMITER: null })).toEqual(
      ok({ source: null, address: null }),
    );
  });
  test("either, or both", () => {
    const [source, address] = [limiter(), limiter()];
    expect(parseRateLimits({ AWA_WEBHOOK_SOURCE_LIMITER: source })).toEqual(ok({ source, address: null }));
    expect(parseRateLimits({ AWA_WEBHOOK_ADDRESS_LIMITER: address })).toEqual(ok({ source: null, address }));
    const both = parseRateLimits({
      AWA_WEBHOOK_SOURCE_LIMITER: source,
      AWA_WEBHOOK_ADDRESS_LIMITER: address,
    });
    expect(both.ok && [both.value.source, both.value.address]).toEqual([source, address]);
  });
  test.each([
    ["a text", "hunter2"],
    ["a switch", true],
    ["an object without limit", { hunter2: 1 }],
    ["one whose limit is no function", { limit: 100 }],
    ["a binding of another kind", { get: async () => "hunter2" }],
  ])("%s is none: it is named, for each of the two", (_, binding) => {
    for (const name of ["AWA_WEBHOOK_SOURCE_LIMITER", "AWA_WEBHOOK_ADDRESS_LIMITER"]) {
      const parsed = parseRateLimits({ [name]: binding });
      expect(parsed).toEqual({
        ok: false,
        error: `${name} is not a rate-limiting binding: bind it as one in wrangler.toml, or remove it`,
      });
    }
  });
});
