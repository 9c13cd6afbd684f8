import * as v from "valibot";
import { describe, expect, test } from "vitest";
import { randomSecrets } from "../../scripts/lib/source-secrets.ts";
import { registry as shop } from "../../src/registry.ts";
import { defineRegistry } from "../../src/shared/registry/define.ts";
import { complete } from "../../src/shared/registry/source.ts";
import { parseSources } from "../../src/shared/source-env.ts";
import {
  eventGridToken,
  paypal,
  sns,
  standardWebhooksByPublicKey,
  stripe,
  twilio,
} from "../../src/webhooks.ts";
import { ENTRIES, entryOf, VERIFY_TOKEN } from "../support/webhook-schemes.ts";

const about = { payload: v.unknown(), meaning: () => complete() };
/** Only their providers sign: a public key, or a certificate. */
const PROVIDERS_ALONE = ["discord", "sendgrid", "ed25519"];

function secretsOf(registry: ReturnType<typeof defineRegistry>) {
  const sources = registry.sources();
  const secrets = randomSecrets(sources);
  return { secrets, configured: parseSources(Object.fromEntries(secrets), sources) };
}

describe("a random secret for each source", () => {
  test.each(Object.keys(ENTRIES).filter((name) => !PROVIDERS_ALONE.includes(name)))(
    "%s: one that is taken and can sign, another each time",
    (name) => {
      const registry = defineRegistry({}).webhook("x", {
        scheme: entryOf(name).make(),
        secret: "SECRET",
        ...about,
      });
      const { secrets, configured } = secretsOf(registry);
      expect(configured.get("x")?.scheme).toMatchObject({
        ok: true,
        value: { signing: { mac: expect.any(Function) } },
      });
      const secret = secrets.get("SECRET") ?? "";
      expect(secret.length).toBeGreaterThanOrEqual(32);
      // It is to stand between quotes in .dev.vars.
      expect(secret).toMatch(/^[A-Za-z0-9_+/=]+$/);
      expect(secretsOf(registry).secrets.get("SECRET")).not.toBe(secret);
    },
  );

  test("none where only the provider can sign: the source says what is missing, and doesn't refuse everything", () => {
    const schemes = [...PROVIDERS_ALONE.map((name) => entryOf(name).make()), paypal()];
    for (const scheme of [...schemes, standardWebhooksByPublicKey()]) {
      const registry = defineRegistry({}).webhook("x", { scheme, secret: "SECRET", ...about });
      const { secrets, configured } = secretsOf(registry);
      expect([scheme.name, secrets.size]).toEqual([scheme.name, 0]);
      expect(configured.get("x")?.scheme).toMatchObject({
        ok: false,
        error: expect.stringContaining("SECRET"),
      });
    }
  });

  test("none where there is no secret", () => {
    const scheme = sns({ topicArns: ["arn:aws:sns:us-east-1:123456789012:MyTopic"] });
    const registry = defineRegistry({}).webhook("x", { scheme, ...about });
    expect(secretsOf(registry).secrets.size).toBe(0);
  });

  test("further variables too; sources that share a variable share its value", () => {
    const registry = defineRegistry({})
      .webhook("a", { scheme: stripe(), secret: "SHARED", ...about })
      .webhook("b", { scheme: twilio(), secret: "SHARED", ...about })
      .webhook("c", { scheme: entryOf("meta").make(), secret: "OTHER", ...about })
      .webhook("d", { scheme: eventGridToken(), secret: "THIRD", ...about });
    const { secrets, configured } = secretsOf(registry);
    expect([...secrets.keys()].toSorted()).toEqual([VERIFY_TOKEN, "OTHER", "SHARED", "THIRD"].toSorted());
    expect([...configured.values()].every(({ scheme }) => scheme.ok)).toBe(true);
  });

  test("the example's sources are all ready with theirs", () => {
    const configured = parseSources(Object.fromEntries(randomSecrets(shop.sources())), shop.sources());
    expect([...configured].map(([name, { scheme }]) => [name, scheme.ok])).toEqual([
      ["stripe", true],
      ["github", true],
      ["carrier", true],
      ["replicate", true],
    ]);
  });
});
