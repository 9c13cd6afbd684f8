/** What is done on one connection. */
export interface RawRequest {
  readonly about: string;
  /** Sent one after the other, with a pause in between. */
  readonly pieces: readonly (string | Uint8Array)[];
  /** What then becomes of the connection: it stays, our half is closed, or it is torn down. */
  readonly end: "stay" | "half-close" | "tear";
  /** Which status answers it, where it is answered at all. */
  readonly statuses: readonly number[];
}

/** The way to complete a callback that is pending, whose signature is known to the sender. */
export interface Pending {
  readonly path: string;
  readonly signature: string;
}

const CRLF = "\r\n";
const HOST = "Host: edge.example";
export const CANARY = "canary-4929-1337";

const head = (line: string, ...headers: readonly string[]) => [line, ...headers, "", ""].join(CRLF);

/** What HTTP itself forbids. It is the runtime that answers, or hangs up. */
function badProtocol(): readonly RawRequest[] {
  const lines: readonly (string | Uint8Array)[] = [
    `${CANARY}${CRLF}${CRLF}`,
    `GET${CRLF}${CRLF}`,
    head("GET /healthz", HOST),
    head("GET /healthz HTTP/9.9", HOST),
    head("GET  /healthz  HTTP/1.1", HOST),
    head("get /healthz HTTP/1.1", HOST),
    head("BREW /healthz HTTP/1.1", HOST),
    head("CONNECT evil.example:443 HTTP/1.1", HOST),
    head("TRACE /healthz HTTP/1.1", HOST, `X-Junk: ${CANARY}`),
    head("OPTIONS * HTTP/1.1", HOST),
    head("GET http://evil.example/healthz HTTP/1.1", HOST),
    head(`GET /${"a".repeat(70_000)} HTTP/1.1`, HOST),
    head("GET /\u0000\u0001 HTTP/1.1", HOST),
    head("GET /healthz HTTP/1.1"),
    head("GET /healthz HTTP/1.1", HOST, "Host: evil.example"),
    head("GET /healthz HTTP/1.1", HOST, CANARY),
    head("GET /healthz HTTP/1.1", HOST, `X-Junk : ${CANARY}`),
    head("GET /healthz HTTP/1.1", HOST, "X-Junk: a\u0000b"),
    head("GET /healthz HTTP/1.1", HOST, "X-Junk: a", ` ${CANARY}`),
    head("GET /healthz HTTP/1.1", HOST, `X-Junk: ${"x".repeat(1_000_000)}`),
    head("GET /healthz HTTP/1.1", HOST, ...Array.from({ length: 5_000 }, (_, n) => `X-Junk-${n}: ${CANARY}`)),
    head(
      "GET /healthz HTTP/1.1",
      HOST,
      "Connection: Upgrade",
      "Upgrade: websocket",
      "Sec-WebSocket-Version: 99",
    ),
    head(
      "GET /healthz HTTP/1.1",
      HOST,
      "Connection: Upgrade, HTTP2-Settings",
      "Upgrade: h2c",
      "HTTP2-Settings: AAAA",
    ),
    `PRI * HTTP/2.0${CRLF}${CRLF}SM${CRLF}${CRLF}`,
    `GET /healthz HTTP/1.1\n${HOST}\n\n`,
    Uint8Array.from([
      0x16,
      0x03,
      0x01,
      0x02,
      0x00,
      0x01,
      0x00,
      0x01,
      0xfc,
      0x03,
      0x03,
      ...new Uint8Array(500),
    ]),
    new Uint8Array(10_000),
    new Uint8Array(10_000).fill(0xff),
  ];
  // An unknown method is told so by 501: that is the runtime's word for 405. A CONNECT it takes for a fault of the Worker, which has nothing
  // for it; no CONNECT gets through the network in front of a deployed one.
  const statuses = [101, 200, 400, 404, 405, 413, 414, 426, 431, 501, 505];
  return lines.flatMap((line, n) =>
    (["stay", "half-close", "tear"] as const).map((end) => ({
      about: `bad protocol ${n}`,
      pieces: [line],
      end,
      statuses: String(line).startsWith("CONNECT ") ? [500] : statuses,
    })),
  );
}

/** Bodies whose length isn't what was said, that break off, or that don't end. Were one taken for whole, it would move a callback. */
function badBodies({ path, signature }: Pending): readonly RawRequest[] {
  const post = (...headers: readonly string[]) =>
    head(
      `POST ${path} HTTP/1.1`,
      HOST,
      `X-Awa-Signature: ${signature}`,
      "Content-Type: application/json",
      ...headers,
    );
  const whole = '{"payload":1}';
  const chunked = post("Transfer-Encoding: chunked");
  const megabyte = `100000${CRLF}${" ".repeat(0x100000)}${CRLF}`;
  const lengths = ["-1", "abc", "1e3", "0x10", "99999999999999999999", "5, 6", "", "13 13"];
  const cut = (about: string, pieces: readonly string[], end: RawRequest["end"]): RawRequest => ({
    about,
    pieces,
    end,
    statuses: [400],
  });
  const ends = ["half-close", "tear"] as const;
  return [
    ...lengths.map((length) =>
      cut(`Content-Length: ${length}`, [post(`Content-Length: ${length}`), '{"payload":'], "stay"),
    ),
    cut("two Content-Lengths", [post("Content-Length: 5", "Content-Length: 6"), whole.slice(0, 6)], "stay"),
    cut("a Content-Length that is too short", [post("Content-Length: 5"), whole], "half-close"),
    cut(
      "both lengths",
      [post("Content-Length: 5", "Transfer-Encoding: chunked"), `5${CRLF}{"pay${CRLF}0${CRLF}${CRLF}`],
      "stay",
    ),
    cut(
      "unknown transfer encoding",
      [post("Transfer-Encoding: gzip, chunked"), whole.slice(0, 5)],
      "half-close",
    ),
    ...ends.flatMap((end) => [
      cut("body breaks off", [post("Content-Length: 100"), whole], end),
      cut("body never comes", [post("Content-Length: 100")], end),
      cut("body drips and breaks off", [post("Content-Length: 14"), ...whole], end),
      cut("chunks break off", [chunked, `d${CRLF}${whole}${CRLF}`], end),
      cut("a chunk breaks off", [chunked, `ffff${CRLF}${whole}`], end),
      cut("no size of a chunk", [chunked, `zz${CRLF}${whole}${CRLF}0${CRLF}${CRLF}`], end),
      cut("a chunk of too many digits", [chunked, `${"f".repeat(40)}${CRLF}${whole}`], end),
      cut("a chunk longer than it says", [chunked, `2${CRLF}${whole}${CRLF}0${CRLF}${CRLF}`], end),
    ]),
    {
      about: "announced as too large",
      pieces: [post("Content-Length: 2097153")],
      end: "stay",
      statuses: [413],
    },
    {
      about: "announced as huge",
      pieces: [post("Content-Length: 1099511627776")],
      end: "stay",
      statuses: [413],
    },
    {
      about: "too large in chunks",
      pieces: [chunked, megabyte, megabyte, megabyte],
      end: "stay",
      statuses: [413],
    },
    {
      about: "too large in chunks, torn",
      pieces: [chunked, megabyte, megabyte, megabyte],
      end: "tear",
      statuses: [413],
    },
    {
      about: "compressed",
      pieces: [post("Content-Encoding: gzip", "Content-Length: 4"), Uint8Array.from([0x1f, 0x8b, 8, 0])],
      end: "stay",
      statuses: [400],
    },
    {
      about: "waits to be told to go on",
      pieces: [post("Expect: 100-continue", "Content-Length: 100")],
      end: "tear",
      statuses: [100, 400],
    },
    {
      about: "many at once, and no answer read",
      pieces: [head("GET /readyz HTTP/1.1", HOST).repeat(100)],
      end: "tear",
      statuses: [200],
    },
    {
      about: "a webhook that breaks off",
      pieces: [
        head("POST /webhooks/stripe HTTP/1.1", HOST, "Stripe-Signature: t=1,v1=00", "Content-Length: 100"),
        whole,
      ],
      end: "half-close",
      statuses: [400],
    },
  ];
}

/** What a Request object can't express: each a connection of its own. Bad bodies come more often, as they reach the Worker. */
export function rawRequests(pending: Pending): readonly RawRequest[] {
  const bodies = badBodies(pending);
  return [...badProtocol(), ...bodies, ...bodies, ...bodies, ...bodies];
}
