import { randomBytes, randomUUID } from "node:crypto";
import * as v from "valibot";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { randomSecrets } from "../../../scripts/lib/source-secrets.ts";
import { createApp } from "../../../src/ingress/app.ts";
import { pgDatabase } from "../../../src/shared/db/pg.ts";
import { resolve } from "../../../src/shared/registry/source.ts";
import { signCallbackId } from "../../../src/shared/signature.ts";
import { parseSources } from "../../../src/shared/source-env.ts";
import { signWebhook } from "../../../src/shared/webhooks/sign.ts";
import { awa, eventGridToken, fal, googleOidc, paypal, sns, twilio } from "../../../src/webhooks.ts";
import { type Canary, canary, secretsOf, shownIn, spellingsOf } from "../../support/canaries.ts";
import { createTestDatabase, type TestDatabase } from "../../support/database.ts";
import { makeWaiting } from "../../support/factory.ts";
import { ingressDeps } from "../../support/ingress.ts";
import { everythingStored, watchOutside } from "../../support/outside.ts";
import { testRegistry } from "../../support/registry.ts";
import { ENTRIES, VERIFY_TOKEN } from "../../support/webhook-schemes.ts";

// Whatever a request brings, rightly signed or not: no secret and no signature in the log, an answer or the database; of what it
// brings besides, nothing in the log or an answer.

let db: TestDatabase;
beforeAll(async () => {
  db = await createTestDatabase();
});
afterAll(() => db.drop());
const outside = watchOutside();

const [newSecret, oldSecret] = [randomBytes(32).toString("hex"), randomBytes(32).toString("hex")];
const content = canary("content");
const header = canary("header");
const brought: readonly Canary[] = [
  { what: "the content", text: content },
  { what: "a header", text: header },
];
const HEADERS = {
  Authorization: `Bearer ${header}`,
  Cookie: `session=${header}`,
  "User-Agent": header,
  "X-Forwarded-For": header,
};

const SECRETLESS = {
  sns: sns({ topicArns: ["arn:aws:sns:eu-west-1:1:topic"] }),
  fal: fal(),
  "google-oidc": googleOidc({ audience: "https://h.example", email: "a@b.example" }),
};
const schemes = {
  ...Object.fromEntries(Object.entries(ENTRIES).map(([name, { make }]) => [name, make()])),
  awa: awa({ after: "awa" }),
  "event-grid": eventGridToken(),
  twilio: twilio(),
  paypal: paypal(),
};
const registry = testRegistry();
for (const [name, scheme] of Object.entries({ ...schemes, ...SECRETLESS })) {
  registry.webhook(name, {
    scheme,
    ...(scheme.secrets === "required" && { secret: `SECRET_OF_${name.replaceAll("-", "_")}` }),
    payload: v.unknown(),
    callback: () => ({ correlationKey: name }),
    meaning: ({ payload }) => {
      const text = JSON.stringify(payload) ?? "";
      if (text.includes("broken")) throw new TypeError(`can't take ${text}`);
      return resolve(content);
    },
  });
}
const sourceSecrets = {
  ...Object.fromEntries(randomSecrets(registry.sources())),
  [VERIFY_TOKEN]: canary("token"),
  SECRET_OF_paypal: canary("paypal"),
};
/** Only their providers can sign. */
const PUBLIC_KEYS = ["discord", "sendgrid", "ed25519"];
const publicKeys = Object.fromEntries(
  PUBLIC_KEYS.map((name) => [`SECRET_OF_${name}`, ENTRIES[name]?.otherSecret ?? ""]),
);
const secrets = () => secretsOf({ db: db.workerUrl, newSecret, oldSecret, ...sourceSecrets });

function ingress(env: Readonly<Record<string, string>> = {}) {
  const bindings = {
    DATABASE_URL: db.workerUrl,
    AWA_CALLBACK_HMAC_SECRET: `${newSecret},${oldSecret}`,
    ...publicKeys,
    ...sourceSecrets,
    ...env,
  };
  return createApp(
    ingressDeps(bindings, {
      registry,
      log: outside.log,
      database: () => pgDatabase(db.workerPool),
      fetch: () => Promise.reject(new Error(`can't fetch for ${content} ${newSecret}`)),
    }),
  );
}
const waiting = {
  waitUntil: () => undefined,
  passThroughOnException: () => undefined,
  props: {},
};

test.each(spellingsOf('postgres://user:pass word@host/db?x="1"'))(
  "a canary is found %s",
  (spelling, written) => {
    const found = shownIn(
      [`{"reason":"…${written}…"}`],
      [{ what: "it", text: 'postgres://user:pass word@host/db?x="1"' }],
    );
    expect(found.join()).toContain(`it ${spelling}`);
  },
);

describe("callbacks", () => {
  const BODIES = {
    complete: [`{"payload":{"${content}":["${content}"]}}`, `{"resume":true,"payload":"${content}"}`],
    fail: [`{"error":"${content}"}`],
    retry: ["{}"],
    heartbeat: [`{"timeout_seconds":60}`],
  };
  const MALFORMED = [`{"payload":"${content}`, `["${content}"]`, `{"payload":"${content}\\u0000"}`, content];
  const actions = Object.entries(BODIES).flatMap(([action, bodies]) =>
    [...bodies, ...MALFORMED].map((body) => ({ action, body })),
  );

  test("every action, well-formed and not, by the right signature and by others, in the header and the URL", async () => {
    const app = ingress();
    const signatures: Canary[] = [];
    const statuses = new Set<number>();
    for (const { action, body } of actions) {
      const { callbackId } = await makeWaiting(db.pool);
      const [right, old] = [newSecret, oldSecret].map((secret) => signCallbackId(secret, callbackId));
      const wrong = randomBytes(32).toString("hex");
      signatures.push(...[right, old, wrong].map((text) => ({ what: "a signature", text: text ?? "" })));
      const path = `/api/callbacks/${callbackId}/${action}`;
      const requests: [path: string, signature: string | undefined][] = [
        [path, undefined],
        [path, wrong],
        [path, `${wrong}${header}`],
        [`${path}?signature=${wrong}&x=${content}`, undefined],
        [`${path}?signature=${right}&x=${content}`, undefined],
        [path, old],
        [path, right],
      ];
      for (const [url, signature] of requests) {
        const headers = {
          ...HEADERS,
          "Content-Type": "application/json",
          ...(signature !== undefined && { "X-Awa-Signature": signature }),
        };
        const answer = await outside.answer(
          await app.request(url, { method: "POST", headers, body }, {}, waiting),
        );
        statuses.add(answer.status);
      }
    }
    expect([...statuses].sort()).toEqual([200, 400, 401, 422]);
    expect(outside.leaks([...secrets(), ...signatures, ...brought])).toEqual([]);
    const stored = await everythingStored(db.pool);
    expect(shownIn(stored, [...secrets(), ...signatures])).toEqual([]);
    expect(stored.join()).toContain(content);
  });

  test("what has no route, and a source that there isn't", async () => {
    const paths = [
      `/${content}`,
      `/api/callbacks/${content}/complete`,
      `/webhooks/${content}`,
      `/readyz?${content}`,
    ];
    for (const path of paths)
      for (const method of ["GET", "POST", "PUT"])
        await outside.answer(await ingress().request(path, { method, headers: HEADERS }, {}, waiting));
    expect(outside.leaks([...secrets(), ...brought])).toEqual([]);
  });
});

describe("webhooks, of every scheme", () => {
  /** Signs as the provider does. `null`: only the provider can. */
  async function signedAs(name: string, body: string, by: Readonly<Record<string, string>>) {
    const scheme = parseSources(by, registry.sources()).get(name)?.scheme;
    if (scheme?.ok !== true) expect.fail(`${name} isn't ready`);
    const url = `http://localhost/webhooks/${name}${name === "awa" ? `/${randomUUID()}` : ""}`;
    const request = {
      method: "POST",
      url,
      headers: new Headers({ ...HEADERS, "Content-Type": "application/json" }),
      body: new Uint8Array(new TextEncoder().encode(body)),
    };
    return signWebhook(scheme.value, request, { now: new Date(), id: randomUUID() });
  }
  /** What is secret of a request's headers, other than those that we gave it. */
  function signaturesIn(headers: Headers): Canary[] {
    return [...headers]
      .filter(([name]) => !["authorization", "cookie", "user-agent", "x-forwarded-for"].includes(name))
      .flatMap(([, value]) => value.split(/[\s,;]/))
      .map((item) => item.replace(/^\w+=(?=.)/, ""))
      .filter((item) => item.length >= 24 && !/^[0-9a-f-]{36}$/.test(item))
      .map((text) => ({ what: "a signature", text }));
  }

  test("signed by the secret, by another one and by none; understood by the source's code and not", async () => {
    const app = ingress();
    const otherSecrets = {
      ...publicKeys,
      ...sourceSecrets,
      ...Object.fromEntries(randomSecrets(registry.sources())),
    };
    const signatures: Canary[] = [];
    const became = new Map<string, number>();
    for (const name of Object.keys(schemes)) {
      for (const about of ["fine", "broken", "forged", "unsigned"]) {
        const event = { id: randomUUID(), event_id: randomUUID(), about, content };
        const adyen = { pspReference: event.id, merchantAccountCode: "m", eventCode: "e", success: "true" };
        const item = { NotificationRequestItem: { ...event, ...adyen, additionalData: {} } };
        const body = JSON.stringify(name === "adyen" ? { notificationItems: [item] } : event);
        const by = about === "forged" ? otherSecrets : { ...publicKeys, ...sourceSecrets };
        const signed = await signedAs(name, body, by);
        if (signed === null) continue;
        signatures.push(...signaturesIn(signed.headers));
        const { url, headers } = signed;
        const request =
          about === "unsigned"
            ? new Request(`http://localhost/webhooks/${name}`, { method: "POST", headers: HEADERS, body })
            : new Request(url, { method: "POST", headers, body: signed.body });
        const { text } = await outside.answer(await app.fetch(request, {}, waiting));
        const { status, code }: { status?: string; code?: string } = JSON.parse(text);
        const key = `${about}: ${status ?? code}`;

        became.set(key, (became.get(key) ?? 0) + 1);
      }
    }
    const signing = Object.keys(schemes).length - PUBLIC_KEYS.length - 1;
    expect(Object.fromEntries(became)).toEqual({
      "fine: parked": signing,
      "broken: delivery_failed": signing,
      "forged: unauthorized": signing,
      "unsigned: unauthorized": signing,
    });
    expect(outside.leaks([...secrets(), ...signatures, ...brought])).toEqual([]);
    const stored = await everythingStored(db.pool);
    expect(shownIn(stored, [...secrets(), ...signatures, { what: "a header", text: header }])).toEqual([]);
    expect(stored.filter((row) => row.includes(`can't take`) && row.includes(content))).toHaveLength(signing);
  });

  test("by keys that their providers publish, which can't be fetched", async () => {
    const codes = new Set<string>();
    for (const name of [...PUBLIC_KEYS, ...Object.keys(SECRETLESS), "paypal"]) {
      const body = JSON.stringify({ Type: "Notification", Message: content, Signature: content });
      const headers = {
        ...HEADERS,
        "X-Signature-Ed25519": content,
        "PAYPAL-CERT-URL": `https://x/${content}`,
      };
      const request = new Request(`http://localhost/webhooks/${name}`, { method: "POST", headers, body });
      const { text } = await outside.answer(await ingress().fetch(request, {}, waiting));
      codes.add(JSON.parse(text).code);
    }
    expect([...codes]).toEqual(["unauthorized"]);
    expect(outside.leaks([...secrets(), ...brought])).toEqual([]);
  });

  test("greeted by its verify token, and by another", async () => {
    const greet = (token: string) =>
      ingress().request(
        `/webhooks/meta?hub.mode=subscribe&hub.verify_token=${token}&hub.challenge=1158201444`,
        { headers: HEADERS },
        {},
        waiting,
      );
    expect(await outside.answer(await greet(sourceSecrets[VERIFY_TOKEN] ?? ""))).toMatchObject({
      status: 200,
    });
    expect(await outside.answer(await greet(content))).toMatchObject({ status: 403 });
    expect(outside.leaks([...secrets(), ...brought])).toEqual([]);
  });
});
