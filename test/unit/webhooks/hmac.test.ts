import { blake3 } from "@noble/hashes/blake3.js";
import { bytesToHex, utf8ToBytes } from "@noble/hashes/utils.js";
import { describe, expect, test } from "vitest";
import { signCallbackId } from "../../../src/shared/signature.ts";
import {
  accepts,
  contextAt,
  ENTRIES,
  readyWith,
  schemeOf,
  VERIFY_TOKEN,
} from "../../support/webhook-schemes.ts";
import { nowOf, requestOf, type Vector, vectors } from "../../support/webhook-vectors.ts";

/** Verified by code of their own, and tested beside it. */
const OWN_CODE = ["twilio", "sns", "fal", "pubsub-oidc", "paypal", "cloudevents", "eventgrid"];
/** Refused before any request: its secret is a public key, where a secret one is wanted. */
const BAD_SECRET = "sw-v1a-label-confusion";

const own = vectors.filter(({ scheme }) => scheme in ENTRIES);
const isGreeting = ({ request }: Vector) => request?.method === "GET";
const secretOf = ({ secret }: Vector) => secret ?? "";

test("every scheme of the vectors is tested here, or is one of those with code of their own", () => {
  const named = new Set(vectors.map(({ scheme }) => scheme));
  expect(new Set([...Object.keys(ENTRIES), ...OWN_CODE, "blake3-keyed"])).toEqual(named);
});

describe("known answers", () => {
  test.each(own.filter((vector) => !isGreeting(vector) && vector.id !== BAD_SECRET))(
    "$scheme $id: $expect",
    async (vector) => {
      const ready = readyWith(schemeOf(vector), secretOf(vector));
      expect(await accepts(ready, requestOf(vector), nowOf(vector))).toBe(vector.expect === "valid");
    },
  );
  test("an Ed25519 public key isn't taken for the key of an HMAC", () => {
    const [vector] = vectors.filter(({ id }) => id === BAD_SECRET);
    expect(vector && schemeOf(vector).ready([secretOf(vector)], {})).toEqual({
      ok: false,
      error: "is a key for Ed25519, and not whsec_ and base64",
    });
  });
});

describe("BLAKE3", () => {
  const known = vectors.filter(({ scheme }) => scheme === "blake3-keyed");
  test.each(known)("$id", (vector) => {
    const key = utf8ToBytes(secretOf(vector));
    const { body } = requestOf(vector);
    expect(bytesToHex(blake3(body, { key }))).toBe(vector.headers.expected);
    // Bytes above 127 aren't text.
    if (body.length > 128) return;
    expect(signCallbackId(bytesToHex(key), new TextDecoder().decode(body))).toBe(vector.headers.expected);
  });
});

describe("handshakes", () => {
  const handshakes = own.filter(({ response }) => response !== undefined);
  test.each(handshakes)("$scheme $id", async (vector) => {
    const ready = readyWith(schemeOf(vector), secretOf(vector));
    const [request, context] = [requestOf(vector), contextAt(nowOf(vector))];
    const verdict = isGreeting(vector) ? null : await ready.verify(request, context);
    const answer =
      verdict === null
        ? await ready.greet?.(request)
        : verdict.ok && (await ready.answer?.(verdict.value, context));
    if (!answer || vector.response === undefined) throw new Error("no answer");
    const { status, headers, body, json } = vector.response;
    expect(answer.status).toBe(status);
    const isJson = { "Content-Type": "application/json" };
    const isText = { "Content-Type": "text/plain" };
    expect(answer.headers).toEqual(
      headers ?? (json !== undefined ? isJson : body !== undefined ? isText : {}),
    );
    if (json === undefined) expect(answer.body).toBe(body ?? null);
    else expect(JSON.parse(answer.body ?? "")).toEqual(json);
  });
  test("an event is no handshake", async () => {
    const isEvent = ({ id, response, expect }: Vector) =>
      response === undefined && expect === "valid" && id !== "discord-uppercase-hex"; // A ping, too.
    const events = own.filter(isEvent);
    expect(events.length).toBeGreaterThan(60);
    for (const vector of events) {
      const ready = readyWith(schemeOf(vector), secretOf(vector));
      const context = contextAt(nowOf(vector));
      const verdict = await ready.verify(requestOf(vector), context);
      if (!verdict.ok) throw new Error(vector.id);
      expect((await ready.answer?.(verdict.value, context)) ?? null).toBeNull();
      expect((await ready.greet?.(verdict.value)) ?? null).toBeNull();
    }
  });
});

describe("Meta's greeting", () => {
  const url = "https://h.example/hook?hub.mode=subscribe&hub.challenge=7";
  const [vector] = vectors.filter(({ id }) => id === "meta-verify-ok");
  if (vector === undefined) throw new Error("no vector");
  const scheme = schemeOf(vector);
  const greet = (method: string, address: string) =>
    readyWith(scheme, "right").greet?.({
      method,
      url: address,
      headers: new Headers(),
      body: new Uint8Array(),
    });

  test("the token comes from the variable", async () => {
    expect(scheme.variables).toEqual([VERIFY_TOKEN]);
    expect(await greet("GET", `${url}&hub.verify_token=right`)).toMatchObject({ status: 200, body: "7" });
    for (const token of ["", "&hub.verify_token=", "&hub.verify_token=righ", "&hub.verify_token=right%20"]) {
      expect(await greet("GET", url + token)).toEqual({ status: 403, headers: {}, body: null });
    }
  });
  test("nothing to give back is refused; another mode, a POST and no URL are no greeting", async () => {
    const bare = "https://h.example/hook?hub.mode=subscribe&hub.verify_token=right";
    expect(await greet("GET", bare)).toMatchObject({ status: 403 });
    expect(await greet("GET", bare.replace("subscribe", "unsubscribe"))).toBeNull();
    expect(await greet("POST", `${url}&hub.verify_token=right`)).toBeNull();
    expect(await greet("GET", "no URL")).toBeNull();
  });
  test("without the variable the source isn't ready", () => {
    expect(scheme.ready(["secret"], {})).toEqual({
      ok: false,
      error: `needs another variable, ${VERIFY_TOKEN}, which is empty`,
    });
  });
});
