import fc from "fast-check";
import { badMethod } from "./elsewhere.ts";
import { CANARY, type HeaderList, type Hostile, pathnameOf } from "./request.ts";
import {
  asking,
  bySignature,
  type Callbacks,
  contentOf,
  fatesOf,
  JSON_HEADER,
  pathOf,
  signature,
  VALID,
} from "./valid.ts";

/** Ids that are none. Each is one segment of a path. */
const BAD_IDS = [
  "x",
  "0",
  "null",
  "%00",
  "%0a",
  "%ff",
  "%",
  "%zz",
  "%25",
  "%2525",
  "..%2f..%2fhealthz",
  "%2e%2e%2f",
  "%5c",
  ";",
  "'%20OR%201=1--",
  "a".repeat(8_000),
  "💶",
  "%F0%9F%92%B6",
  "{0a1b2c3d-4e5f-4a6b-8c7d-9e0f1a2b3c4d}",
  "urn:uuid:0a1b2c3d-4e5f-4a6b-8c7d-9e0f1a2b3c4d",
  "0a1b2c3d4e5f4a6b8c7d9e0f1a2b3c4d",
  "0a1b2c3d-4e5f-4a6b-8c7d-9e0f1a2b3c4d%20",
  "0a1b2c3d-4e5f-4a6b-8c7d-9e0f1a2b3c4d%0a",
  "0a1b2c3d-4e5f-4a6b-8c7d-9e0f1a2b3c4",
  "0a1b2c3d-4e5f-4a6b-8c7d-9e0f1a2b3c4g",
  "0a1b2c3d-4e5f-4a6b-8c7d-9e0f1a2b3c4%64",
  "__proto__",
];

const valid = fc.constantFrom(...VALID);

function badSignature(callbacks: Callbacks): fc.Arbitrary<Hostile> {
  const fate = fc.constantFrom(...fatesOf(callbacks));
  return fc
    .record({
      one: valid,
      name: fate,
      other: fate,
      how: fc.nat(15),
      text: fc.string({ unit: "grapheme-ascii", maxLength: 80 }),
    })
    .filter(({ name, other }) => name !== other)
    .map(({ one, name, other, how, text }): Hostile => {
      const id = callbacks[name];
      const right = signature(id);
      const headers: readonly HeaderList[] = [
        [],
        [["X-Awa-Signature", ""]],
        [["X-Awa-Signature", right.slice(0, -1)]],
        [["X-Awa-Signature", `${right}0`]],
        [["X-Awa-Signature", right.replace(/[a-f]/, (digit) => digit.toUpperCase())]],
        [["X-Awa-Signature", signature(id, "ab".repeat(32))]],
        [["X-Awa-Signature", signature(callbacks[other])]],
        [["X-Awa-Signature", signature(id.toUpperCase())]],
        [
          ["X-Awa-Signature", right],
          ["X-Awa-Signature", right],
        ],
        [["X-Awa-Signature", `sha256=${right}`]],
        [["X-Awa-Signature", Buffer.from(right, "hex").toString("base64")]],
        [["X-Awa-Signature", `${right.slice(1)}${right.startsWith("0") ? "1" : "0"}`]],
        [["X-Awa-Signature", "0".repeat(64)]],
        [["X-Awa-Signature", text]],
        [["Authorization", `Bearer ${right}`]],
        [["X-Awa-Signature", "f".repeat(10_000)]],
      ];
      const queries = [
        "",
        `?signature=${right.slice(1)}`,
        `?Signature=${right}`,
        `?signature=&signature=${right}`,
        `?signature[]=${right}`,
        `?sig=${right}&x=${CANARY}`,
        "?signature=%",
        "?signature=%ff%zz",
      ];
      return {
        ...asking(one.action),
        about: "signature",
        path: `${pathOf(id, one.action)}${queries[(how + text.length) % queries.length]}`,
        headers: [...JSON_HEADER, ...(headers[how] ?? [])],
        content: contentOf(one.body),
        answers: ["unauthorized"],
      };
    });
}

function badId(): fc.Arbitrary<Hostile> {
  return fc
    .record({
      one: valid,
      id: fc.oneof(
        fc.constantFrom(...BAD_IDS),
        fc
          .string({ unit: "binary", minLength: 1, maxLength: 40 })
          .map((text) => `x${encodeURIComponent(text.toWellFormed())}`),
      ),
    })
    .map(({ one, id }): Hostile => {
      const segment = pathnameOf(pathOf(id, one.action)).split("/").at(-2) ?? "";
      return {
        ...asking(one.action),
        about: "id, signed as it stands",
        path: pathOf(id, one.action),
        headers: [...JSON_HEADER, ...bySignature(segment)],
        content: contentOf(one.body),
        answers: ["validation_error"],
      };
    });
}

/** Were one of these taken for the route that it resembles, it would move a pending callback. */
function badPath(callbacks: Callbacks): fc.Arbitrary<Hostile> {
  return fc
    .record({ one: valid, how: fc.nat(11), isMethod: fc.boolean(), method: badMethod() })
    .map(({ one, how, isMethod, method }): Hostile => {
      const id = callbacks.pending;
      const { action } = one;
      const paths = [
        `/api/callbacks/${id}/${action}//`,
        `/api/callbacks//${id}/${action}`,
        `//api/callbacks/${id}/${action}`,
        `/api/callbacks/${id}/${action.toUpperCase()}`,
        `/API/callbacks/${id}/${action}`,
        `/api/callbacks/${id}%2f${action}`,
        `/api/callbacks/${id}/${action}%20`,
        `/api/callbacks/${id}/${action};x`,
        `/api/callbacks/${id}/${action}%00`,
        `/v1/api/callbacks/${id}/${action}`,
        `/api/callbacks/${id}/${action}s`,
        `/api/callbacks/${id}/${encodeURIComponent(`%${action}`)}`,
      ];
      const request = { ...asking(action), headers: [...JSON_HEADER, ...bySignature(id)] };
      return isMethod
        ? { ...request, about: "method", method, path: pathOf(id, action), answers: ["method_not_allowed"] }
        : {
            ...request,
            about: "path",
            path: paths[how] ?? "",
            content: contentOf(one.body),
            answers: ["not_found"],
          };
    });
}

/** Requests to the callbacks' routes with a signature, an id, a path or a method that isn't right. */
export function forged(callbacks: Callbacks): fc.Arbitrary<Hostile> {
  return fc.oneof(
    { weight: 6, arbitrary: badSignature(callbacks) },
    { weight: 4, arbitrary: badId() },
    { weight: 4, arbitrary: badPath(callbacks) },
  );
}
