import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import getPort from "get-port";
import pg from "pg";
import { withExplicitSslMode } from "./connection-string.ts";
import { control } from "./neon-control.ts";
import { type Journal, JournalKeeper } from "./neon-journal.ts";
import { parseSqlRequest, type SqlRequest } from "./neon-request.ts";
import { type Answer, type Hooks, runSqlRequest, toAnswer } from "./neon-run.ts";

/** How the server is started. */
export interface NeonServerOptions {
  /** A connection string: which Postgres to speak to, and how (sslmode and the like). Its login isn't used. */
  readonly upstream: string;
  /** The port to prefer; another one is taken where this one isn't free. Default: any. */
  readonly port?: number;
  readonly hooks?: Hooks;
  /** Serves the journal and the faults under /control, for tests. Default: false. */
  readonly control?: boolean;
}

/** A server that speaks Neon's HTTP protocol. */
export interface NeonServer extends Journal {
  /** For NEON_FETCH_ENDPOINT. */
  readonly endpoint: string;
  readonly port: number;
  /** Ends all connections. A statement that still runs is left to Postgres. */
  close(): Promise<void>;
}

/** What is sent: an answer, maybe not as JSON or not to its end; or nothing. */
type Outcome = (Answer & { readonly text?: string; readonly isTruncated?: boolean }) | "cut";

const HOST = "127.0.0.1";
/** As on Neon. */
const MAX_BODY_BYTES = 64 * 1024 * 1024;
const CONNECTIONS_PER_LOGIN = 20;
const CONNECT_TIMEOUT_MS = 10_000;
/** Longer than any client keeps an idle connection: the side that closes first risks the other's next request. */
const KEEP_ALIVE_MS = 600_000;
const CLOSE_TIMEOUT_MS = 1_000;

/**
 * Starts a server that speaks the protocol of Neon's serverless driver in front of any Postgres, on 127.0.0.1.
 *
 * `POST /sql` takes one query or a batch. Database, user and password come from the caller's connection string, so that a
 * wrong password fails as it does on Neon; host and port always are the upstream's, so that nothing else can be
 * reached through this server. Where a client goes away in the middle, its statements run to their end.
 */
export async function startNeonServer(options: NeonServerOptions): Promise<NeonServer> {
  const { upstream, hooks = {}, control: hasControl = false } = options;
  const journal = new JournalKeeper();
  const pools = new Map<string, pg.Pool>();

  function poolOf({ user, password, database }: SqlRequest["login"]): pg.Pool {
    const key = JSON.stringify([user, password, database]);
    let pool = pools.get(key);
    if (pool === undefined) {
      const url = new URL(withExplicitSslMode(upstream));
      Object.assign(url, { username: user, password, pathname: `/${database}` });
      pool = new pg.Pool({
        connectionString: url.href,
        max: CONNECTIONS_PER_LOGIN,
        connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
      });
      // An idle connection that Postgres ended: the pool opens another one when it needs it.
      pool.on("error", () => undefined);
      pools.set(key, pool);
    }
    return pool;
  }

  const countingHooks: Hooks = {
    ...hooks,
    async beforeStatement(statement) {
      journal.onStatement(statement);
      await hooks.beforeStatement?.(statement);
    },
  };

  async function answerSql(request: IncomingMessage, body: Buffer): Promise<Outcome> {
    const sqlRequest = parseSqlRequest(request.headers, body);
    const fault = journal.onRequest(sqlRequest);
    const run = (endBefore?: number) =>
      runSqlRequest(poolOf(sqlRequest.login), sqlRequest, countingHooks, endBefore);
    if (fault === undefined) return run();
    if (fault === "cut-before") return "cut";
    if (typeof fault === "object") {
      if ("status" in fault) {
        const { status, text } = fault;
        return {
          status,
          body: { message: "a fault that was asked for" },
          ...(text !== undefined && { text }),
        };
      }
      if ("endBefore" in fault) return run(fault.endBefore);
      if ("delayMs" in fault) await sleep(fault.delayMs, undefined, { ref: false });
      const answer = await run();
      if ("hangMs" in fault) await sleep(fault.hangMs, undefined, { ref: false });
      return answer;
    }
    const answer = await run();
    return fault === "cut-after" ? "cut" : { ...answer, isTruncated: true };
  }

  async function answer(request: IncomingMessage): Promise<Outcome> {
    const url = new URL(request.url ?? "/", "http://localhost");
    const isControl = hasControl && url.pathname.startsWith("/control/");
    if (url.pathname !== "/sql" && !isControl) return { status: 404, body: { message: "not found" } };
    // A page in the developer's browser may point a name of its own at this address; it can't forge this header.
    if (!/^(127\.0\.0\.1|localhost)(:\d+)?$/.test(request.headers.host ?? "")) {
      return { status: 403, body: { message: "this server answers to 127.0.0.1 and localhost only" } };
    }
    if (!isControl && request.method !== "POST") return { status: 405, body: { message: "POST only" } };
    const body = await readBody(request);
    if (body === "too large") return { status: 413, body: { message: "the body is larger than 64 MiB" } };
    return isControl ? control(journal, request.method ?? "", url, body) : answerSql(request, body);
  }

  const server = createServer((request, response) => {
    answer(request)
      .catch(toAnswer)
      .then((outcome) => (outcome === "cut" ? request.socket.destroy() : send(response, outcome)));
  });
  server.keepAliveTimeout = KEEP_ALIVE_MS;
  const port = await getPort({ host: HOST, ...(options.port !== undefined && { port: options.port }) });
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, HOST, resolve);
  });

  return Object.assign(journal, {
    endpoint: `http://${HOST}:${port}/sql`,
    port,
    async close() {
      const closed = new Promise((resolve) => server.close(resolve));
      server.closeAllConnections();
      await closed;
      const ended = Promise.all([...pools.values()].map((pool) => pool.end()));
      await Promise.race([ended, sleep(CLOSE_TIMEOUT_MS, undefined, { ref: false })]);
    },
  });
}

async function readBody(request: IncomingMessage): Promise<Buffer | "too large"> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request) {
    size += chunk.length;
    // Read to the end, so that the client gets to see the answer; keep nothing.
    if (size > MAX_BODY_BYTES) chunks.length = 0;
    else chunks.push(chunk);
  }
  return size > MAX_BODY_BYTES ? "too large" : Buffer.concat(chunks);
}

function send(response: ServerResponse, outcome: Exclude<Outcome, "cut">): void {
  if (response.destroyed) return;
  const { status, body, text, isTruncated = false } = outcome;
  if (text !== undefined) {
    response.writeHead(status, { "content-type": "text/html" }).end(text);
    return;
  }
  const whole = JSON.stringify(body);
  response.writeHead(status, {
    "content-type": "application/json",
    "content-length": Buffer.byteLength(whole),
  });
  if (!isTruncated) response.end(whole);
  else response.write(whole.slice(0, whole.length / 2), () => response.destroy());
}
