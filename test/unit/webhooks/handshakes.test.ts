import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { answering } from "../../../src/shared/webhooks/challenge.ts";
import {
  cloudEventsOptions,
  eventGridToken,
  eventGridValidation,
} from "../../../src/shared/webhooks/handshakes.ts";
import { sharedHeader } from "../../../src/shared/webhooks/presets/tokens.ts";
import type { WebhookRequest, WebhookScheme } from "../../../src/shared/webhooks/scheme.ts";
import { signWebhook } from "../../../src/shared/webhooks/sign.ts";
import { token } from "../../../src/shared/webhooks/token.ts";
import { requestOf, vectors } from "../../support/webhook-vectors.ts";

const TOKEN = "a token of ours";
const context = {
  now: new Date(0),
  fetch: () => Promise.reject(new Error("nothing is to be fetched")),
};
const refused = { ok: false, error: expect.objectContaining({ status: "refused" }) };
const bearer = sharedHeader({ header: "Authorization", label: "Bearer " });

function readyFor(scheme: WebhookScheme, secrets: readonly string[] = [TOKEN]) {
  const ready = scheme.ready(secrets, { VERIFY: "verify" });
  if (!ready.ok) throw new Error(ready.error);
  return ready.value;
}

const encode = (text: string) => new Uint8Array(new TextEncoder().encode(text));
function requestWith(
  headers: Readonly<Record<string, string>>,
  more: Partial<WebhookRequest> = {},
): WebhookRequest {
  const url = "https://h.example/hook";
  return { method: "POST", url, headers: new Headers(headers), body: new Uint8Array(), ...more };
}

describe("CloudEvents", () => {
  const cases = vectors.filter(({ scheme }) => scheme === "cloudevents");
  const asking = (headers: Readonly<Record<string, string>>, method = "OPTIONS") =>
    requestWith({ "WebHook-Request-Origin": "eventgrid.azure.net", ...headers }, { method });

  test.each(cases)("$id: $note", async (vector) => {
    const greeted = await readyFor(cloudEventsOptions({ scheme: bearer })).greet?.(requestOf(vector));
    // What isn't the handshake isn't answered here: whoever called goes on as it does with any other method.
    expect(greeted).toEqual(
      vector.expect === "valid"
        ? { status: vector.response?.status, headers: vector.response?.headers, body: null }
        : null,
    );
  });
  test("only OPTIONS is a handshake", async () => {
    for (const method of ["POST", "GET", "options"]) {
      expect(await readyFor(cloudEventsOptions({ scheme: bearer })).greet?.(asking({}, method))).toBeNull();
    }
  });
  test.each([
    ["eventgrid.azure.net", 200],
    ["EventGrid.Azure.net", 200],
    ["evil.example", 405],
    ["sub.eventgrid.azure.net", 405],
    ["eventgrid.azure.net.evil.example", 405],
    ["*", 405],
  ])("an origin of %j, where one is allowed", async (origin, status) => {
    const scheme = cloudEventsOptions({ scheme: bearer, allowedOrigins: ["eventgrid.AZURE.net"] });
    const answer = await readyFor(scheme).greet?.(asking({ "WebHook-Request-Origin": origin }));
    expect(answer).toMatchObject({ status, headers: { Allow: "POST" } });
    expect(answer?.headers["WebHook-Allowed-Origin"]).toBe(status === 200 ? origin : undefined);
  });
  test.each(["*", "a b", "<script>", "x".repeat(256)])("an origin of %j is none", async (origin) => {
    const answer = await readyFor(cloudEventsOptions({ scheme: bearer })).greet?.(
      asking({ "WebHook-Request-Origin": origin }),
    );
    expect(answer).toEqual({ status: 405, headers: { Allow: "POST" }, body: null });
  });
  test.each([
    ["120", undefined, "120"],
    ["120", 60, "60"],
    ["60", 120, "60"],
    [undefined, 60, "60"],
    [undefined, undefined, "*"],
    ["*", undefined, "*"],
    ["*", 60, "60"],
    ["0", undefined, "*"],
    ["-1", 60, "60"],
    ["many", undefined, "*"],
  ])("a rate of %j, where %j are allowed, is %s", async (asked, requestsPerMinute, allowed) => {
    const scheme = cloudEventsOptions({
      scheme: bearer,
      ...(requestsPerMinute !== undefined && { requestsPerMinute }),
    });
    const answer = await readyFor(scheme).greet?.(
      asking({ ...(asked !== undefined && { "WebHook-Request-Rate": asked }) }),
    );
    expect(answer?.headers["WebHook-Allowed-Rate"]).toBe(allowed);
  });
  test.each([0, -1, 1.5, Number.NaN, Number.POSITIVE_INFINITY])("a rate of %d can't be allowed", (rate) => {
    expect(() => cloudEventsOptions({ scheme: bearer, requestsPerMinute: rate })).toThrow(
      "requestsPerMinute",
    );
  });
  test("events are vouched for by the wrapped scheme, and nothing else", async () => {
    const ready = readyFor(cloudEventsOptions({ scheme: bearer }));
    expect((await ready.verify(requestWith({ Authorization: `Bearer ${TOKEN}` }), context)).ok).toBe(true);
    for (const authorization of ["", TOKEN, `Bearer ${TOKEN}x`, "Bearer other"]) {
      expect(await ready.verify(requestWith({ Authorization: authorization }), context)).toEqual(refused);
    }
    expect(await ready.verify(asking({}), context)).toEqual(refused);
  });
  test("what the wrapped scheme does is kept", async () => {
    const bare = token({
      name: "wrapped",
      algorithm: "token",
      signature: { from: "header:X-Token" },
      deliveryId: "{header:X-Id}",
    });
    const wrapped = answering(bare, {
      greeting: {
        when: { "query:mode": "subscribe" },
        token: "query:token",
        variable: "VERIFY",
        respond: { text: "query:challenge" },
      },
      challenges: [{ when: { "body:type": "ping" }, respond: "nothing" }],
    });
    const scheme = cloudEventsOptions({ scheme: wrapped });
    expect(scheme).toMatchObject({ name: "wrapped", secrets: "required", variables: ["VERIFY"] });
    expect(scheme.ready([""], {}).ok).toBe(false);
    const ready = readyFor(scheme);
    const asked = requestWith(
      {},
      { method: "GET", url: "https://h.example/?mode=subscribe&token=verify&challenge=c" },
    );
    expect(await ready.greet?.(asked)).toMatchObject({ status: 200, body: "c" });
    expect(await ready.greet?.(asking({}))).toMatchObject({ status: 200, headers: { Allow: "POST" } });
    const ping = requestWith({ "X-Token": TOKEN }, { body: encode('{"type":"ping"}') });
    const verified = await ready.verify(ping, context);
    expect(verified.ok && (await ready.answer?.(verified.value, context))).toMatchObject({ status: 204 });
    expect(scheme.deliveryId(requestWith({ "X-Id": "1", "ce-id": "2", "ce-source": "s" }), {})).toBe("1");
  });
  test.each([
    [{ "ce-id": "1", "ce-source": "/s" }, undefined, "/s 1"],
    [{}, { specversion: "1.0", id: "1", source: "/s" }, "/s 1"],
    [{ "ce-id": "1" }, undefined, undefined],
    [{}, [], undefined],
  ])("a delivery's id: %j, %j", (headers, payload, id) => {
    const request = requestWith(Object.fromEntries(Object.entries(headers)));
    expect(cloudEventsOptions({ scheme: bearer }).deliveryId(request, payload)).toBe(id);
  });
});

describe("Event Grid", () => {
  const vector = vectors.find(({ scheme }) => scheme === "eventgrid");
  if (vector === undefined) throw new Error("there is no vector of Event Grid");
  const [event] = JSON.parse(vector.request?.body ?? "");
  const url = `https://h.example/hook?code=${encodeURIComponent(TOKEN)}`;
  const request = { ...requestOf(vector), url };
  const answerTo = async (given: WebhookRequest, scheme = eventGridValidation()) => {
    const ready = readyFor(scheme);
    const verified = await ready.verify(given, context);
    return verified.ok ? await ready.answer?.(verified.value, context) : verified;
  };

  test(`${vector.id}: ${vector.note}`, async () => {
    const answer = await answerTo(request);
    expect(answer).toEqual({
      status: vector.response?.status,
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(vector.response?.json),
    });
  });
  test.each([
    "https://h.example/hook",
    "https://h.example/hook?code=",
    "https://h.example/hook?code=other",
    `${url}x`,
    url.slice(0, -1),
    url.replace("code", "Code"),
    `https://h.example/hook?code=other&code=${encodeURIComponent(TOKEN)}`,
    "not a URL",
  ])("at %s it is refused, unanswered", async (other) => {
    expect(await answerTo({ ...request, url: other })).toEqual(refused);
  });
  test("by either of two tokens", async () => {
    const ready = readyFor(eventGridToken(), ["new", "old"]);
    for (const code of ["new", "old"]) {
      expect((await ready.verify({ ...request, url: `https://h.example/?code=${code}` }, context)).ok).toBe(
        true,
      );
    }
  });
  const withBody = (body: unknown) => ({ ...request, body: encode(JSON.stringify(body)) });
  test.each([
    ["an event", { ...request, headers: new Headers({ "aeg-event-type": "Notification" }) }],
    ["no such header", { ...request, headers: new Headers() }],
    ["another event's type", withBody([{ ...event, eventType: "Microsoft.Storage.BlobCreated" }])],
    ["two events", withBody([event, event])],
    ["no list", withBody(event)],
    ["no code", withBody([{ ...event, data: {} }])],
    ["a code that is no text", withBody([{ ...event, data: { validationCode: {} } }])],
    ["no JSON", { ...request, body: encode("[") }],
  ])("isn't asked by %s", async (_, given) => {
    expect(await answerTo(given)).toBeNull();
  });
  test("is answered whatever vouches for it, whose own answers stay", async () => {
    const bare = token({ name: "wrapped", algorithm: "token", signature: { from: "header:X-Token" } });
    const wrapped = answering(bare, {
      challenges: [{ when: { "body:type": "ping" }, respond: "nothing" }],
    });
    const scheme = eventGridValidation({ scheme: wrapped });
    const headers = { "aeg-event-type": "SubscriptionValidation", "X-Token": TOKEN };
    expect(await answerTo({ ...request, headers: new Headers(headers) }, scheme)).toMatchObject({
      status: 200,
    });
    expect(
      await answerTo({ ...withBody({ type: "ping" }), headers: new Headers(headers) }, scheme),
    ).toMatchObject({
      status: 204,
    });
  });
  test("a request of our own is signed by the first token", async () => {
    const ready = readyFor(eventGridValidation());
    const bare = { ...request, url: "https://h.example/hook?a=1" };
    const signed = await signWebhook(ready, bare, { now: new Date(0), id: "1" });
    expect((await ready.verify(signed ?? bare, context)).ok).toBe(true);
  });
  test("a delivery's id is its only event's", () => {
    expect(eventGridToken().deliveryId(request, [event])).toBe(event.id);
    for (const payload of [undefined, [], [event, event], [{}], event]) {
      expect(eventGridToken().deliveryId(request, payload)).toBeUndefined();
    }
  });
  test.each(["", " token", "tokén"])("a token of %j is refused, unquoted", (secret) => {
    const ready = eventGridValidation().ready([secret], {});
    expect(ready).toEqual({ ok: false, error: expect.not.stringContaining("tok") });
  });
});

test("whatever comes is neither greeted nor accepted nor answered, and nothing is thrown", async () => {
  const cloudEvents = readyFor(cloudEventsOptions({ scheme: bearer }));
  const eventGrid = readyFor(eventGridValidation());
  const text = fc.string({ unit: "grapheme-ascii" });
  const names = ["WebHook-Request-Origin", "WebHook-Request-Rate", "aeg-event-type", "Authorization"];
  await fc.assert(
    fc.asyncProperty(
      fc.constantFrom("OPTIONS", "POST"),
      fc.dictionary(fc.constantFrom(...names), text, { noNullPrototype: true }),
      fc.oneof(fc.webUrl({ withQueryParameters: true }), fc.string()),
      fc.uint8Array(),
      async (method, headers, url, body) => {
        const request = { method, headers: new Headers(headers), url, body: Uint8Array.from(body) };
        const greeted = await cloudEvents.greet?.(request);
        if (method === "POST") expect(greeted).toBeNull();
        expect(await cloudEvents.verify(request, context)).toEqual(refused);
        expect(await eventGrid.verify(request, context)).toEqual(refused);
      },
    ),
  );
});
