import { createServer, type Server } from "node:http";
import { HEARTBEAT_INTERVAL_MS } from "../../src/executor/heart.ts";
import { whyOtherSchema } from "../../src/shared/db/statements/read-schema-version.ts";

/** How a process is. `isReady`: it does what it is there for. */
export interface Health {
  readonly isReady: boolean;
  readonly status: string;
  /** Jobs that it runs at the moment. */
  readonly running: number;
}

/** By what a worker is judged. Times in milliseconds, of one clock. */
export interface Signs {
  /** What the database says when it is asked; `undefined`: it doesn't answer. */
  readonly schemaVersion: string | null | undefined;
  /** When the database last did something for the worker; `null`: it hasn't yet. */
  readonly lastDoneMs: number | null;
  readonly nowMs: number;
}

/**
 * How long a worker may get nothing done before it isn't ready, in milliseconds. Where every place is taken nothing is claimed, and
 * heartbeats are all there is: it is longer than between two of them.
 */
export const SILENT_AFTER_MS = 1.5 * HEARTBEAT_INTERVAL_MS;

/**
 * Says why a worker doesn't do its work; `null` where it does. That the database answers isn't enough: claims may fail all the same,
 * where it is read-only for example.
 */
export function whyNotReady({ schemaVersion, lastDoneMs, nowMs }: Signs): string | null {
  if (schemaVersion === undefined) return "database unavailable";
  const mismatch = whyOtherSchema(schemaVersion);
  if (mismatch !== null) return mismatch;
  if (lastDoneMs === null) return "the database has done nothing for the worker yet";
  return nowMs - lastDoneMs > SILENT_AFTER_MS ? "the database does nothing for the worker any more" : null;
}

/**
 * Serves the health of a process: GET /healthz says that it lives, GET /readyz whether it does its work (503 where it doesn't).
 *
 * @returns where it is, and how to close it
 * @throws Error that says what to do, where the address can't be used
 */
export async function serveHealth(
  { host, port }: { readonly host: string; readonly port: number },
  look: () => Promise<Health>,
): Promise<{ readonly url: string; close(): Promise<void> }> {
  const server = createServer(async (request, response) => {
    const [path] = (request.url ?? "").split("?");
    const send = (status: number, body: object, headers = {}) => {
      response.writeHead(status, { "Content-Type": "application/json", ...headers });
      response.end(request.method === "HEAD" ? undefined : JSON.stringify(body));
    };
    request.resume();
    if (path !== "/healthz" && path !== "/readyz") return send(404, { error: "not found" });
    if (request.method !== "GET" && request.method !== "HEAD") {
      return send(405, { error: "method not allowed" }, { Allow: "GET, HEAD" });
    }
    if (path === "/healthz") return send(200, { status: "ok" });
    const { isReady, status, running } = await look();
    send(isReady ? 200 : 503, { status, running });
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", (thrown) =>
      reject(
        new Error(
          `The health endpoint can't be at ${host}:${port} (${thrown.message}). Set AWA_WORKER_HOST and AWA_WORKER_PORT to a free address, or the port to 0 for any.`,
        ),
      ),
    );
    server.listen(port, host, resolve);
  });
  return {
    url: `http://${host}:${portOf(server)}`,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

function portOf(server: Server): number {
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("the server has no port");
  return address.port;
}
