import fc from "fast-check";
import { MAX_BODY_BYTES } from "../../../src/ingress/body.ts";
import { NOT_JSON, NOT_UTF8 } from "./bodies.ts";
import { badMethod, noise } from "./elsewhere.ts";
import { CANARY, type Content, type HeaderList, type Hostile, type Signing } from "./request.ts";

/** The sources of the example. */
export const SOURCES = ["stripe", "github", "carrier", "replicate"] as const;
/** An address that sends too much. */
export const LIMITED_ADDRESS = "203.0.113.9";

/** A delivery, as it was sent, or is to be. */
export interface Sent {
  readonly source: string;
  /** The provider's id of it. */
  readonly id: string;
  /** What follows the source in the URL: nothing, or a slash and a callback's id. */
  readonly path: string;
  readonly headers: HeaderList;
  readonly content: Content;
}

const JSON_HEADER: HeaderList = [["Content-Type", "application/json"]];
const TYPES = [
  "application/json",
  "text/plain",
  "application/x-www-form-urlencoded",
  "application/json; charset=utf-16",
  CANARY,
];

/** A request that signs a delivery as its provider does. */
export function signedWebhook({ source, id, path, headers, content }: Sent): Hostile {
  return {
    route: `POST /webhooks/${source}`,
    about: "signed",
    method: "POST",
    path: `/webhooks/${source}${path}`,
    headers: [...JSON_HEADER, ...headers],
    content,
    sending: "whole",
    signing: { source, id, ageSeconds: 0, by: "its secret" },
    answers: [],
  };
}

const withSigning = (request: Hostile, signing: Partial<Signing>): Hostile => ({
  ...request,
  signing: request.signing && { ...request.signing, ...signing },
});

/** A body with the same delivery's id, where that stands in the body. */
function bodyLike(source: string, id: string): fc.Arbitrary<Content> {
  const json = fc.dictionary(fc.string({ maxLength: 8 }), fc.jsonValue({ maxDepth: 2 }), { maxKeys: 3 });
  if (source === "stripe") return json.map((more) => JSON.stringify({ ...more, data: CANARY, id }));
  return fc.oneof(
    json.map((more) => JSON.stringify({ ...more, data: CANARY })),
    fc.constantFrom(...NOT_JSON.filter((body) => body !== "\0" && body !== "{}\0")),
  );
}

/**
 * Requests to the webhooks' routes, none of which may change a row.
 *
 * @param recorded deliveries that were received, and that won't be tried again
 */
export function hostileWebhook(recorded: readonly Sent[]): fc.Arbitrary<Hostile> {
  const original = fc.constantFrom(...recorded);

  // One for each: they are made once.
  const replays = recorded.map((sent) =>
    fc
      .record({
        changed: fc.boolean(),
        body: bodyLike(sent.source, sent.id),
        type: fc.constantFrom(...TYPES),
        more: noise(),
      })
      .map(
        ({ changed, body, type, more }): Hostile => ({
          ...signedWebhook(changed ? { ...sent, content: body } : sent),
          about: changed ? "replayed with another body" : "replayed",
          headers: [
            ...more,
            ...sent.headers,
            ["Content-Type", changed && sent.source !== "stripe" ? type : "application/json"],
          ],
          answers: ["duplicate"],
        }),
      ),
  );

  const forged = fc
    .record({
      sent: original,
      how: fc.nat(8),
      other: fc.constantFrom(...SOURCES),
      age: fc.constantFrom(330, 3_600, -330, 1e9),
      more: noise(),
    })
    .map(({ sent, how, other, age, more }): Hostile => {
      const fresh = { ...sent, id: `${sent.id}-forged` };
      const request = signedWebhook(fresh);
      const signed = {
        ...request,
        about: "forged",
        headers: [...more, ...request.headers],
        answers: ["unauthorized"],
      };
      const text = typeof sent.content === "string" ? sent.content : "";
      // GitHub says nothing of the time.
      const dated = sent.source === "github" ? { by: "another secret" as const } : { ageSeconds: age };
      switch (how) {
        case 0:
          return { ...signed, about: "unsigned", signing: null };
        case 1:
          return withSigning({ ...signed, about: "signed by another secret" }, { by: "another secret" });
        case 2:
          return withSigning({ ...signed, about: "outdated" }, dated);
        case 3:
          return withSigning({ ...signed, content: `${text} ` }, { content: text });
        case 4:
          return withSigning({ ...signed, content: `\u{feff}${text}` }, { content: text });
        case 5:
          return withSigning({ ...signed, content: text.replace("{", '{"x":1,') }, { content: text });
        case 6:
          return withSigning({ ...signed, content: null }, { content: text });
        case 7:
          return other === sent.source
            ? { ...signed, signing: null }
            : withSigning({ ...signed, about: "signed for another source" }, { source: other });
        default: {
          const junk: HeaderList = ["stripe-signature", "x-hub-signature-256", "webhook-signature"].map(
            (name) => [
              name,
              [CANARY, "v1,", "t=1,v1=", "sha256=", "v1,A ".repeat(900), ","][Math.abs(age) % 6] ?? "",
            ],
          );
          return { ...signed, about: "junk for a signature", headers: [...signed.headers, ...junk] };
        }
      }
    });

  const refused = fc
    .record({
      sent: original,
      how: fc.nat(7),
      bytes: fc.constantFrom(...NOT_UTF8),
      method: badMethod(),
      text: fc.string({ unit: "binary", minLength: 1, maxLength: 20 }),
      large: fc.nat(15),
    })
    .map(({ sent, how, bytes, method, text, large }): Hostile => {
      const fresh = { ...sent, id: `${sent.id}-refused` };
      const request = signedWebhook(fresh);
      switch (how) {
        case 0:
        case 1:
          return {
            ...signedWebhook({ ...fresh, content: bytes }),
            about: "signed, and not UTF-8",
            answers: ["validation_error"],
          };
        case 2:
          return {
            ...signedWebhook({ ...fresh, content: `{"id":"${fresh.id}","x":"\0"}` }),
            about: "signed, with a NUL",
            answers: ["validation_error"],
          };
        case 3:
          return {
            ...signedWebhook({ ...fresh, path: `/x${encodeURIComponent(text.toWellFormed())}` }),
            about: "signed, callback id is none",
            answers: ["validation_error"],
          };
        case 4:
          return {
            ...request,
            about: "method",
            method,
            content: null,
            signing: null,
            answers: ["method_not_allowed"],
          };
        case 5:
          return {
            ...request,
            about: "rate limit",
            headers: [...request.headers, ["CF-Connecting-IP", LIMITED_ADDRESS]],
            answers: ["rate_limited"],
          };
        case 6:
          return { ...request, about: "body breaks off", sending: "broken", answers: ["validation_error"] };
        default:
          return large > 0
            ? {
                ...request,
                about: "announced as too large",
                headers: [...request.headers, ["Content-Length", "9".repeat(large + 7)]],
                answers: ["payload_too_large"],
              }
            : {
                ...request,
                about: "too large",
                content: { start: "", unit: "x", times: MAX_BODY_BYTES + 1, end: "" },
                signing: null,
                sending: "pieces",
                answers: ["payload_too_large"],
              };
      }
    });

  const names = [
    "nobody",
    "Stripe",
    "stripe%20",
    "stripe%00",
    "stripe;",
    "%",
    "%ff",
    "__proto__",
    "constructor",
    "toString",
    "..%2fstripe",
    "stripe%2f",
    "💶",
    "x".repeat(8_000),
  ];
  const unknown = fc
    .record({
      sent: original,
      name: fc.constantFrom(...names),
      method: fc.oneof(badMethod(), fc.constant("POST")),
    })
    .map(
      ({ sent, name, method }): Hostile => ({
        ...signedWebhook(sent),
        route: "/webhooks/…",
        about: "unknown source",
        method,
        path: `/webhooks/${name}${sent.path}`,
        signing: null,
        ...(method !== "POST" && { content: null }),
        answers: ["source_not_found"],
      }),
    );

  return fc.oneof(
    { weight: 6, arbitrary: fc.oneof(...replays) },
    { weight: 6, arbitrary: forged },
    { weight: 6, arbitrary: refused },
    { weight: 1, arbitrary: unknown },
  );
}
