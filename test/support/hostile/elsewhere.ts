import fc from "fast-check";
import { CANARY, type HeaderList, type Hostile } from "./request.ts";

/** Methods that no route of ours takes but GET, HEAD and POST; and some that nobody has heard of. */
export function badMethod(): fc.Arbitrary<string> {
  return fc.constantFrom(
    "GET",
    "HEAD",
    "PUT",
    "PATCH",
    "DELETE",
    "OPTIONS",
    "PROPFIND",
    "PURGE",
    "POSTT",
    "X",
  );
}

const NOISE: readonly HeaderList[] = [
  [],
  [],
  [["Content-Encoding", "gzip"]],
  [["Transfer-Encoding", "chunked"]],
  [["Transfer-Encoding", "gzip, chunked, identity"]],
  [["Content-Length", "0"]],
  [["Content-Length", "many"]],
  [["Content-Length", "-1"]],
  [["X-HTTP-Method-Override", "DELETE"]],
  [
    ["X-Forwarded-For", `' OR 1=1; -- ${CANARY}`],
    ["X-Forwarded-Host", "evil.example"],
    ["X-Original-URL", "/healthz"],
  ],
  [
    ["Cookie", `session=${CANARY}`],
    ["Cookie", "a=b; a=c"],
  ],
  [["Expect", "100-continue"]],
  [
    ["Accept", "text/html"],
    ["Accept", "*/*;q=0"],
  ],
  [
    ["Range", "bytes=0-0"],
    ["If-None-Match", "*"],
  ],
  [
    ["Origin", "https://evil.example"],
    ["Access-Control-Request-Method", "POST"],
  ],
  [["X-Junk", "\u00ff\u00fe\u0080"]],
  [["X-Junk", `${CANARY}${"x".repeat(8_000)}`]],
  Array.from({ length: 100 }, (_, n): [string, string] => [`X-Junk-${n}`, CANARY]),
];

/** Headers that must make no difference. */
export function noise(): fc.Arbitrary<HeaderList> {
  return fc.constantFrom(...NOISE);
}

const PATHS = [
  "",
  "/",
  "//",
  "/.env",
  "/.git/config",
  "/admin",
  "/index.html",
  "/api",
  "/api/callbacks",
  "/api/callbacks/",
  "/api/callbacks/complete",
  "/api/callbacks/../../etc/passwd",
  "/api/callbacks/%2e%2e/%2e%2e/etc/passwd",
  "/webhooks",
  "/webhooks/",
  "/webhooks//",
  "/webhooks/stripe/a/b",
  "/healthz/x",
  "/HEALTHZ",
  "/healthz%00",
  "/healthz%2f",
  "/readyz;x",
  "/__scheduled",
  "/cdn-cgi/handler/scheduled",
  "/%",
  "/%zz",
  "/%ff",
  "/%c0%ae%c0%ae/",
  "/\\..\\..",
  "/*",
  "/:callback_id/complete",
  "/api/callbacks/:callback_id",
  `/${"a/".repeat(4_000)}`,
  `/${"a".repeat(16_000)}`,
  `/?${CANARY}`,
  `/?${"a&".repeat(4_000)}`,
  "/\u0000\u202e",
  "/http://evil.example/",
];

/** Requests to everything that is no route, and to the health checks. */
export function hostileElsewhere(): fc.Arbitrary<Hostile> {
  const base: Hostile = {
    route: "no route",
    about: "path",
    method: "GET",
    path: "/",
    headers: [],
    content: null,
    sending: "whole",
    signing: null,
    answers: ["not_found"],
  };
  const method = fc.oneof(badMethod(), fc.constant("POST"));
  const segment = fc.oneof(
    fc.constantFrom("api", "callbacks", "webhooks", "complete", "..", "%2e", "%2f", "%00", ";", "__proto__"),
    fc.string({ unit: "binary", maxLength: 12 }).map((text) => encodeURIComponent(text.toWellFormed())),
    fc.string({ unit: "grapheme-ascii", maxLength: 12 }).map((text) => text.replace(/[/?#\\]/g, "")),
  );
  const nowhere = fc
    .record({
      method,
      // None of these begins like a route of ours.
      path: fc.oneof(
        fc.constantFrom(...PATHS),
        fc
          .array(segment, { maxLength: 8 })
          .map((all) => ["/x", ...all.filter((one) => !/^(\.|%2e)+$/i.test(one))].join("/")),
      ),
      more: noise(),
    })
    .map(({ method, path, more }): Hostile => ({ ...base, method, path, headers: more }));
  const health = fc
    .record({
      path: fc.constantFrom("/healthz", "/readyz", "/healthz/", "/x/../healthz", "/%68ealthz"),
      query: fc.constantFrom("", "?", `?${CANARY}`, "?%"),
      method,
      more: noise(),
    })
    .map(
      ({ path, query, method, more }): Hostile => ({
        ...base,
        route: path === "/readyz" ? "/readyz" : "/healthz",
        about: "method",
        method,
        path: `${path}${query}`,
        headers: more,
        answers: method === "GET" || method === "HEAD" ? ["ok", "ready"] : ["method_not_allowed"],
      }),
    );
  return fc.oneof({ weight: 3, arbitrary: nowhere }, { weight: 1, arbitrary: health });
}
