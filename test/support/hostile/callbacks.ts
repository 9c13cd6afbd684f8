import fc from "fast-check";
import { badBody } from "./bodies.ts";
import { noise } from "./elsewhere.ts";
import { forged } from "./forged.ts";
import { CANARY, type Hostile } from "./request.ts";
import {
  ACTIONS,
  asking,
  bySignature,
  type Callbacks,
  contentOf,
  type Fate,
  fatesOf,
  JSON_HEADER,
  pathOf,
  signature,
  VALID,
  type Valid,
} from "./valid.ts";

/** What a valid request has to be told of a callback that it can't move; `null`: it could. */
function refusalOf(fate: Fate, valid: Valid): string | null {
  switch (fate) {
    case "pending":
      return null;
    case "running":
      return valid.action === "retry" ? "job_still_running" : null;
    case "conflict":
      return valid.fate === "completed" ? "unique_conflict" : null;
    case "poison":
      return valid.fate === "completed" ? "follow_up_failed" : null;
    case "unknown":
      return "callback_not_found";
    case "expired":
    case "cancelled":
    case "superseded":
      return `callback_${fate}`;
    default:
      return valid.fate === fate ? "duplicate" : "callback_already_resolved";
  }
}

const BAD_TYPES = [
  "",
  "text/plain",
  "text/json",
  "application/x-www-form-urlencoded",
  "multipart/form-data; boundary=x",
  "application/json; charset=utf-16",
  "application/json; charset=latin1",
  "application/json; charset=utf-8; charset=utf-7",
  "application/json, text/plain",
  "application/jsonp",
  "application/ld json",
  "*/*",
  `application/${"+".repeat(5_000)}`,
  `application/json${" ".repeat(5_000)}x`,
  `application/json; profile="${CANARY}"`,
];

/** A callback's id as it is, or in upper case: its signature is another then. */
const spelling = fc.constantFrom(
  (id: string) => id,
  (id: string) => id.toUpperCase(),
);

/** Valid requests for callbacks that they can't move. */
function repeated(callbacks: Callbacks): fc.Arbitrary<Hostile> {
  const cases = fatesOf(callbacks).flatMap((name) =>
    VALID.flatMap((one) => {
      const answer = refusalOf(name, one);
      return answer === null ? [] : [{ name, one, answer }];
    }),
  );
  return fc
    .record({
      found: fc.constantFrom(...cases),
      spell: spelling,
      inQuery: fc.boolean(),
      slash: fc.constantFrom("", "/"),
      more: noise(),
    })
    .map(({ found: { name, one, answer }, spell, inQuery, slash, more }): Hostile => {
      const id = spell(callbacks[name]);
      return {
        ...asking(one.action),
        about: `valid, but the callback is ${name}`,
        path: `${pathOf(id, one.action)}${slash}${inQuery ? `?signature=${signature(id)}&signature=${CANARY}` : ""}`,
        headers: [...more, ...JSON_HEADER, ...(inQuery ? [] : bySignature(id))],
        content: contentOf(one.body),
        answers: [answer],
      };
    });
}

/** Bodies that are refused. */
function badContent(callbacks: Callbacks): fc.Arbitrary<Hostile> {
  const fate = fc.constantFrom(...fatesOf(callbacks));
  return fc.oneof(
    ...ACTIONS.map((action) =>
      fc
        .record({
          action: fc.constant(action),
          body: badBody(action),
          name: fate,
          spell: spelling,
          more: noise(),
          inPieces: fc.boolean(),
        })
        .map(({ action, body, name, spell, more, inPieces }): Hostile => {
          const id = spell(callbacks[name]);
          return {
            ...asking(action),
            about: `body: ${body.about}`,
            path: pathOf(id, action),
            headers: [...more, ...JSON_HEADER, ...bySignature(id)],
            content: body.content,
            sending: inPieces ? "pieces" : "whole",
            answers: [body.code],
          };
        }),
    ),
  );
}

/** Valid bodies that are sent as something else, or not to their end. */
function badEnvelope(callbacks: Callbacks): fc.Arbitrary<Hostile> {
  const fate = fc.constantFrom(...fatesOf(callbacks));
  return fc
    .record({
      one: fc.constantFrom(...VALID.filter(({ body }) => body !== "")),
      name: fate,
      type: fc.constantFrom(...BAD_TYPES),
      how: fc.constantFrom("type", "type", "none", "broken", "announced"),
    })
    .map(({ one, name, type, how }): Hostile => {
      const id = callbacks[name];
      const request = {
        ...asking(one.action),
        path: pathOf(id, one.action),
        content: new TextEncoder().encode(one.body),
      };
      switch (how) {
        case "broken":
          return {
            ...request,
            about: "body breaks off",
            headers: [...JSON_HEADER, ...bySignature(id)],
            sending: "broken",
            answers: ["validation_error"],
          };
        case "announced":
          return {
            ...request,
            about: "announced as too large",
            headers: [...JSON_HEADER, ...bySignature(id), ["Content-Length", "2097153"]],
            answers: ["payload_too_large"],
          };
        default:
          return {
            ...request,
            about: "content type",
            headers: [...(how === "type" ? [["Content-Type", type] as const] : []), ...bySignature(id)],
            answers: ["unsupported_media_type"],
          };
      }
    });
}

/** Requests to the callbacks' routes, none of which may change a row. Most are signed as they should be. */
export function hostileCallback(callbacks: Callbacks): fc.Arbitrary<Hostile> {
  return fc.oneof(
    { weight: 10, arbitrary: repeated(callbacks) },
    { weight: 14, arbitrary: badContent(callbacks) },
    { weight: 5, arbitrary: badEnvelope(callbacks) },
    { weight: 14, arbitrary: forged(callbacks) },
  );
}
