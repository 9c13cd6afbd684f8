import fc from "fast-check";
import { beforeAll, describe, expect, test } from "vitest";
import type { VerifyContext, WebhookRequest, WebhookScheme } from "../../../src/shared/webhooks/scheme.ts";
import { sns } from "../../../src/shared/webhooks/sns.ts";
import { spkiOf } from "../../../src/shared/webhooks/x509.ts";
import { nowOf, requestOf, type Vector, vectors } from "../../support/webhook-vectors.ts";

const TOPICS = [
  "arn:aws:sns:us-east-1:123456789012:MyTopic",
  "arn:aws:sns:us-east-2:295079676684:publish-and-verify-892f85fe-4836-424d-8188-ab85bef0f362",
  "arn:aws:sns:us-east-2:295079676684:publish-and-verify-62674b1d-4295-426b-88e7-5fb75652a04e",
];
const OUR_CERTIFICATE = "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-ours.pem";

function readyFor(scheme: WebhookScheme = sns({ topicArns: TOPICS })) {
  const ready = scheme.ready([], {});
  if (!ready.ok) throw new Error(ready.error);
  return ready.value;
}

/** A time, and what stands at some URLs. `calls` remembers what was asked for. */
function contextOf(pages: Readonly<Record<string, string>>, now: Date) {
  const calls: Request[] = [];
  const context: VerifyContext = {
    now,
    async fetch(request) {
      calls.push(request);
      const page = pages[request.url];
      return new Response(page ?? null, { status: page === undefined ? 404 : 200 });
    },
  };
  return { ...context, calls };
}
const contextOfVector = (vector: Vector) => contextOf(vector.certs ?? {}, nowOf(vector));

function withBody(request: WebhookRequest, body: unknown): WebhookRequest {
  const text = typeof body === "string" ? body : JSON.stringify(body);
  return { ...request, body: new Uint8Array(new TextEncoder().encode(text)) };
}

const cases = vectors.filter(({ scheme }) => scheme === "sns");
const valid = cases.filter(({ expect }) => expect === "valid");
const [sample] = valid;
if (sample === undefined) throw new Error("there is no valid vector of SNS");
const messageOf = (vector: Vector): Record<string, unknown> => JSON.parse(vector.body ?? "");
const refused = { ok: false, error: expect.objectContaining({ status: "refused" }) };
const unavailable = { ok: false, error: expect.objectContaining({ status: "unavailable" }) };

test.each(cases)("$id: $expect, $note", async (vector) => {
  const request = requestOf(vector);
  const context = contextOfVector(vector);
  const verdict = await readyFor().verify(request, context);
  expect(verdict).toEqual(vector.expect === "valid" ? { ok: true, value: request } : refused);
});

test("a subscription is confirmed by a GET of the URL that SNS signed", async () => {
  const vector = cases.find(({ kind }) => kind === "handshake");
  const { response, certs } = vector ?? {};
  if (vector === undefined || response?.fetch === undefined) throw new Error("there is no such vector");
  const context = contextOf({ ...certs, [response.fetch]: "<ConfirmSubscriptionResponse/>" }, nowOf(vector));
  const ready = readyFor();
  const verified = await ready.verify(requestOf(vector), context);
  expect(context.calls).toHaveLength(1);
  const answer = verified.ok ? await ready.answer?.(verified.value, context) : undefined;
  expect(answer).toEqual({ status: response.status, headers: {}, body: null });
  expect(context.calls.slice(1)).toEqual([
    expect.objectContaining({ method: "GET", url: response.fetch, redirect: "manual" }),
  ]);
});

/** Parts of a message that its signature doesn't cover, as they stand in a body. */
const UNSIGNED = /"UnsubscribeURL"\s*:\s*"[^"]*"/g;
/** While this is changed to another URL of SNS, whether the signature fits can't be told. */
const CERTIFICATE = /"SigningCertURL"\s*:\s*"[^"]*"/g;
const isWithin = (pattern: RegExp, text: string, at: number) =>
  [...text.matchAll(pattern)].some(({ index, 0: part }) => index <= at && at < index + part.length);

describe.each(valid)("$id, changed", (vector) => {
  const request = requestOf(vector);
  const message = messageOf(vector);
  const context = contextOfVector(vector);
  const ready = readyFor();
  const isRefused = async (changed: WebhookRequest) =>
    expect(await ready.verify(changed, context)).toEqual(refused);

  test("without its headers, which aren't signed: it passes", async () => {
    const bare = { ...request, headers: new Headers() };
    expect((await ready.verify(bare, context)).ok).toBe(true);
  });
  test("in any character of its signature", async () => {
    const signature = String(message.Signature);
    for (let i = 0; i < signature.length; i += 1) {
      const other = signature[i] === "A" ? "B" : "A";
      const Signature = signature.slice(0, i) + other + signature.slice(i + 1);
      await isRefused(withBody(request, { ...message, Signature }));
    }
    for (const Signature of [
      `${signature}=`,
      signature.slice(0, -1),
      ` ${signature}`,
      "",
      null,
      [signature],
    ]) {
      await isRefused(withBody(request, { ...message, Signature }));
    }
  });
  test("in any byte of its body", async () => {
    // One byte, one character, so that the places are the same.
    const text = Array.from(request.body, (byte) => String.fromCharCode(byte)).join("");
    let covered = 0;
    for (let i = 0; i < request.body.length; i += 1) {
      if (isWithin(UNSIGNED, text, i)) continue;
      const body = request.body.map((byte, at) => (at === i ? byte ^ 1 : byte));
      const verdict = await ready.verify({ ...request, body }, context);
      expect([i, verdict]).toEqual([
        i,
        isWithin(CERTIFICATE, text, i) ? expect.objectContaining({ ok: false }) : refused,
      ]);
      covered += 1;
    }
    expect(covered).toBeGreaterThan(600);
    await isRefused({ ...request, body: request.body.slice(0, -1) });
    await isRefused({ ...request, body: new Uint8Array() });
  });
  test("without any of its fields, or with another kind of value", async () => {
    for (const name of Object.keys(message).filter((name) => name !== "UnsubscribeURL")) {
      const { [name]: _, ...rest } = message;
      for (const changed of [rest, { ...message, [name]: [message[name]] }, { ...message, [name]: 7 }]) {
        await isRefused(withBody(request, changed));
      }
      if (name !== "Subject") await isRefused(withBody(request, { ...message, [name]: null }));
    }
  });
  test.each(["3", "0", "", 1, 2, "01", "constructor", "__proto__", "toString"])(
    "with a SignatureVersion of %j",
    (SignatureVersion) => isRefused(withBody(request, { ...message, SignatureVersion })),
  );
  test.each(["notification", "Other", "constructor", "", {}])("with a Type of %j", (Type) =>
    isRefused(withBody(request, { ...message, Type })),
  );
  test("of a topic that isn't ours", async () => {
    const context = contextOfVector(vector);
    const ready = readyFor(sns({ topicArns: ["arn:aws:sns:us-east-1:123456789012:Other"] }));
    expect(await ready.verify(request, context)).toEqual(refused);
    expect(context.calls).toEqual([]);
  });
  test("sent raw", async () => {
    const headers = new Headers({ "x-amz-sns-rawdelivery": "true" });
    await isRefused({ ...request, headers });
  });
});

describe("a certificate", () => {
  const request = requestOf(sample);
  const message = messageOf(sample);
  const url = String(message.SigningCertURL);
  const [PEM = ""] = Object.values(sample.certs ?? {});

  test.each([
    url.replace("https:", "http:"),
    url.replace("https://", "https://user@"),
    url.replace("https://", "https:\\\\"),
    url.replace(".com/", ".com:444/"),
    url.replace(".com/", ".com.evil.example/"),
    url.replace(".com/", ".com@evil.example/"),
    url.replace(".com/", ".com%2eevil.example/"),
    url.replace("sns.", "evil.example/sns."),
    url.replace("sns.", "xsns."),
    url.replace("sns.", "sns-"),
    url.replace("us-east-2", "s3"),
    // A bucket named "sns", at an old name of S3.
    url.replace("us-east-2", "s3-us-west-2"),
    url.replace("us-east-2", "us-east-2.evil"),
    url.replace("us-east-2.", ""),
    url.replace(".pem", ".pem?x=.pem"),
    url.replace(".pem", ".pem#"),
    url.replace(".pem", ".txt"),
    url.replace(".pem", ".pem\n"),
    url.replace("/Simple", "/?Action=Simple"),
    url.replace("/Simple", "/../Simple"),
    "",
    "sns.us-east-2.amazonaws.com",
  ])("at %j is refused, and not fetched", async (SigningCertURL) => {
    const context = contextOf({ [SigningCertURL]: PEM }, nowOf(sample));
    expect(await readyFor().verify(withBody(request, { ...message, SigningCertURL }), context)).toEqual(
      refused,
    );
    expect(context.calls).toEqual([]);
  });
  test.each([
    url.replace("us-east-2", "us-gov-west-1"),
    url.replace("us-east-2.amazonaws.com", "cn-north-1.amazonaws.com.cn"),
  ])("at %s is SNS's as well", async (SigningCertURL) => {
    const context = contextOf({ [SigningCertURL]: PEM }, nowOf(sample));
    const verdict = await readyFor().verify(withBody(request, { ...message, SigningCertURL }), context);
    expect(verdict.ok).toBe(true);
  });
  test("is fetched once a day", async () => {
    const context = contextOfVector(sample);
    const ready = readyFor();
    const later = (hours: number) => ({
      ...context,
      now: new Date(context.now.getTime() + hours * 3_600_000),
    });
    for (const hours of [0, 0, 24]) expect((await ready.verify(request, later(hours))).ok).toBe(true);
    expect(context.calls).toHaveLength(1);
    await ready.verify(request, later(24.1));
    expect(context.calls).toHaveLength(2);
  });
  test("is fetched 20 times a minute at most, whatever is asked for, and what is kept stays", async () => {
    const context = contextOfVector(sample);
    const ready = readyFor();
    await ready.verify(request, context);
    for (let i = 0; i < 100; i += 1) {
      const SigningCertURL = url.replace(/-\w+\.pem$/, `-${i}.pem`);
      expect(await ready.verify(withBody(request, { ...message, SigningCertURL }), context)).toEqual(
        unavailable,
      );
    }
    expect(context.calls).toHaveLength(20);
    expect((await ready.verify(request, context)).ok).toBe(true);
  });
  test.each(["", "<Error/>", PEM + PEM, `${PEM}x`, PEM.replace("MII", "MIJ"), PEM.slice(0, 400)])(
    "that is none leaves it open: %#",
    async (page) => {
      expect(await readyFor().verify(request, contextOf({ [url]: page }, nowOf(sample)))).toEqual(
        unavailable,
      );
    },
  );
  test("that can't be fetched leaves it open", async () => {
    const fetch = () => Promise.reject(new Error("no route"));
    expect(await readyFor().verify(request, { now: nowOf(sample), fetch })).toEqual(unavailable);
  });
  test("of another key refuses", async () => {
    const [, other = ""] = valid
      .flatMap(({ certs }) => Object.values(certs ?? {}))
      .filter((pem) => pem !== PEM);
    expect(await readyFor().verify(request, contextOf({ [url]: other }, nowOf(sample)))).toEqual(refused);
  });
});

describe("a message of our own", () => {
  const RSA = { name: "RSASSA-PKCS1-v1_5", hash: "SHA-256" };
  const request = requestOf(sample);
  const [topic = ""] = TOPICS;
  const now = new Date("2026-01-01T08:00:00Z");
  const notification = {
    Type: "Notification",
    MessageId: "22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324",
    TopicArn: topic,
    Message: "two\nlines",
    Timestamp: "2026-01-01T00:00:00.000Z",
  };
  const confirmation = {
    ...notification,
    Type: "SubscriptionConfirmation",
    Token: "2336412f37",
    SubscribeURL: "https://sns.us-east-1.amazonaws.com/?Action=ConfirmSubscription&Token=2336412f37",
  };
  let ours: Awaited<ReturnType<typeof makeKeys>>;

  const element = (tag: number, ...content: readonly Uint8Array[]) => {
    const length = content.reduce((sum, { length }) => sum + length, 0);
    return Uint8Array.from([tag, 0x82, length >> 8, length & 0xff, ...content.flatMap((part) => [...part])]);
  };
  async function makeKeys() {
    const sizes = { modulusLength: 2048, publicExponent: Uint8Array.of(1, 0, 1) };
    const pair = await crypto.subtle.generateKey({ ...RSA, ...sizes }, true, ["sign", "verify"]);
    const spki = new Uint8Array(await crypto.subtle.exportKey("spki", pair.publicKey));
    const fields = Array.from({ length: 4 }, () => element(0x30));
    const body = element(
      0x30,
      element(0xa0, Uint8Array.of(2, 1, 2)),
      Uint8Array.of(2, 1, 1),
      ...fields,
      spki,
    );
    return { privateKey: pair.privateKey, spki, body, pem: pemOf(element(0x30, body, element(0x30))) };
  }
  const pemOf = (der: Uint8Array) =>
    `-----BEGIN CERTIFICATE-----\n${Buffer.from(der).toString("base64")}\n-----END CERTIFICATE-----\n`;
  beforeAll(async () => {
    ours = await makeKeys();
  });

  async function signed(message: Readonly<Record<string, unknown>>) {
    const names = Object.keys(message).toSorted();
    const pairs = names.filter((name) => message[name] !== null).map((name) => `${name}\n${message[name]}\n`);
    const content = new TextEncoder().encode(pairs.join(""));
    const signature = Buffer.from(await crypto.subtle.sign(RSA.name, ours.privateKey, content)).toString(
      "base64",
    );
    const rest = { SignatureVersion: "2", Signature: signature, SigningCertURL: OUR_CERTIFICATE };
    return withBody(request, { ...message, ...rest });
  }
  const context = (pages: Readonly<Record<string, string>> = {}) =>
    contextOf({ [OUR_CERTIFICATE]: ours.pem, ...pages }, now);
  async function answerTo(message: Readonly<Record<string, unknown>>, at: VerifyContext) {
    const ready = readyFor();
    const verified = await ready.verify(await signed(message), at);
    return verified.ok ? await ready.answer?.(verified.value, at) : verified;
  }

  test("is an event, and no handshake", async () => {
    expect(await answerTo(notification, context())).toBeNull();
  });
  test("may have no subject, or an empty one", async () => {
    for (const Subject of [null, "", "a subject"]) {
      expect(await answerTo({ ...notification, Subject }, context())).toBeNull();
    }
  });
  test.each(["MessageId", "Subject", "Timestamp", "TopicArn"])("has no line breaks in %s", async (name) => {
    const fields: Record<string, unknown> = { Subject: "", ...notification };
    const changed = { ...fields, [name]: `${fields[name]}\nMore\nlines` };
    expect(await readyFor(sns({ topicArns: TOPICS })).verify(await signed(changed), context())).toEqual(
      refused,
    );
  });
  test.each([
    [8 * 3_600, true],
    [8 * 3_600 - 1, false],
    [undefined, true],
  ])("published eight hours ago, of at most %j s", async (maxAgeSeconds, isGood) => {
    const options = { topicArns: TOPICS, ...(maxAgeSeconds !== undefined && { maxAgeSeconds }) };
    const verdict = await readyFor(sns(options)).verify(await signed(notification), context());
    expect(verdict.ok).toBe(isGood);
  });
  test("published at no time that can be read is refused", async () => {
    const verdict = await readyFor().verify(await signed({ ...notification, Timestamp: "soon" }), context());
    expect(verdict).toEqual(refused);
  });
  test("that confirms the end of a subscription is acknowledged, and nothing is fetched", async () => {
    const at = context({ [confirmation.SubscribeURL]: "" });
    expect(await answerTo({ ...confirmation, Type: "UnsubscribeConfirmation" }, at)).toEqual({
      status: 200,
      headers: {},
      body: null,
    });
    expect(at.calls).toHaveLength(1);
  });
  test.each([
    "http://sns.us-east-1.amazonaws.com/?Action=ConfirmSubscription&Token=1",
    "https://evil.example/?Action=ConfirmSubscription&Token=1",
    "https://sns.us-east-1.amazonaws.com@evil.example/?Action=ConfirmSubscription&Token=1",
    "https://sns.us-east-1.amazonaws.com.evil.example/?Action=ConfirmSubscription&Token=1",
    "https://sns.us-east-1.amazonaws.com/?Action=Publish&Token=1",
    "https://sns.us-east-1.amazonaws.com/",
  ])("wants no GET of %s", async (SubscribeURL) => {
    const at = context({ [SubscribeURL]: "confirmed" });
    expect(await answerTo({ ...confirmation, SubscribeURL }, at)).toMatchObject({ status: 502 });
    expect(at.calls).toHaveLength(1);
  });
  test("whose confirmation fails is to come again", async () => {
    expect(await answerTo(confirmation, context())).toMatchObject({ status: 502 });
    const at = context();
    const fetch = (given: Request) =>
      given.url === OUR_CERTIFICATE ? at.fetch(given) : Promise.reject(new Error("no route"));
    expect(await answerTo(confirmation, { ...at, fetch })).toMatchObject({ status: 502 });
    expect(await answerTo(confirmation, context({ [confirmation.SubscribeURL]: "" }))).toMatchObject({
      status: 200,
    });
  });
  test("has a certificate whose key is found, wherever it is cut off", () => {
    const { spki, body, pem } = ours;
    expect(spkiOf(pem, { chain: false })).toEqual(spki);
    expect(spkiOf(`${pem}\n${pem}`, { chain: true })).toEqual(spki);
    expect(spkiOf(`${pem}\n${pem}`, { chain: false })).toBeNull();
    const whole = element(0x30, body, element(0x30));
    for (let i = 0; i < whole.length; i += 1)
      expect(spkiOf(pemOf(whole.slice(0, i)), { chain: false })).toBeNull();
    // A length that claims more than there is, of no bytes, of too many, or without end.
    for (const bytes of [
      [0x30, 0x84, 1, 1, 1, 1],
      [0x30, 0x80, 0x30, 0],
      [0x30, 0xff],
      [0x30, 5, 0x30, 0],
      [4, 0],
    ]) {
      expect(spkiOf(pemOf(Uint8Array.from(bytes)), { chain: false })).toBeNull();
    }
  });
  test("has a certificate, of which any byte may be anything", () => {
    fc.assert(
      fc.property(fc.nat(), fc.nat(255), fc.string(), (at, byte, text) => {
        const whole = element(0x30, ours.body, element(0x30));
        whole[at % whole.length] = byte;
        expect(() => spkiOf(pemOf(whole), { chain: true })).not.toThrow();
        expect(spkiOf(text, { chain: true })).toBeNull();
      }),
    );
  });
});

test.each([
  [[]],
  [["MyTopic"]],
  [["arn:aws:sns:us-east-1:123456789012:*"]],
  [["arn:aws:sqs:us-east-1:123456789012:q"]],
])("topics of %j are refused at once", (topicArns) => {
  expect(() => sns({ topicArns })).toThrow("webhook scheme sns");
});

test("a delivery's id is the message's", () => {
  const request = requestOf(sample);
  expect(sns({ topicArns: TOPICS }).deliveryId(request, { MessageId: "m1" })).toBe("m1");
  for (const payload of [undefined, null, [], "text", { MessageId: {} }]) {
    expect(sns({ topicArns: TOPICS }).deliveryId(request, payload)).toBeUndefined();
  }
});

test("whatever comes is refused, and nothing is thrown", async () => {
  const ready = readyFor();
  const context = contextOfVector(sample);
  const message = messageOf(sample);
  const names = Object.keys(message).filter((name) => !["UnsubscribeURL", "SigningCertURL"].includes(name));
  const bodies = fc.oneof(
    fc.uint8Array().map((bytes) => Uint8Array.from(bytes)),
    fc.json().map((json) => withBody(requestOf(sample), json).body),
    fc
      .tuple(fc.constantFrom(...names), fc.jsonValue())
      .map(([name, value]) => withBody(requestOf(sample), { ...message, [name]: value }).body),
  );
  await fc.assert(
    fc.asyncProperty(bodies, async (body) => {
      expect(await ready.verify({ ...requestOf(sample), body }, context)).toEqual(refused);
    }),
  );
});
