import { randomBytes } from "node:crypto";
import { createServer } from "node:http";
import pg from "pg";
import { createClient, pgDatabase } from "../../src/client.ts";
import { registry } from "../../src/registry.ts";
import type { JobRow } from "../../src/shared/job.ts";
import { signCallbackId } from "../../src/shared/signature.ts";
import { fireScheduled } from "../lib/cron.ts";
import type { Scope } from "../lib/lifecycle.ts";
import { startOwnDatabase } from "../lib/own-database.ts";
import { signedWebhook } from "../lib/signed-webhook.ts";
import { startWrangler } from "../lib/wrangler.ts";

/** What a callback or a webhook was answered. */
export interface Answer {
  readonly status: number;
  readonly body: { readonly state?: string; readonly status?: string; readonly code?: string };
  readonly text: string;
  /** When the answer was there, in milliseconds since 1970. */
  readonly at: number;
}

/** What the label printer of the shop answers. */
export interface LabelAnswer {
  readonly status: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body: unknown;
}

export type Stage = Awaited<ReturnType<typeof setUp>>;

/** Starts all that the story needs, on parts of its own that leave nothing behind. */
export async function setUp(scope: Scope, secret: string) {
  // All of it runs with the rights of the Worker's role; the owner makes the tables.
  const { workerUrl: databaseUrl, neon } = await startOwnDatabase(scope);
  const labels = await startLabelService(scope);
  const sourceSecrets = { GITHUB_WEBHOOK_SECRET: randomBytes(32).toString("hex") };
  const workerUrl = await startWrangler(scope, {
    name: "wrangler-demo",
    prints: false,
    vars: {
      DATABASE_URL: databaseUrl,
      NEON_FETCH_ENDPOINT: neon.endpoint,
      AWA_CALLBACK_HMAC_SECRET: secret,
      AWA_CALLBACK_ALLOW_UNSIGNED: "false",
      AWA_CALLBACK_PATH_PREFIX: "",
      LABEL_SERVICE_URL: labels.url,
      ...sourceSecrets,
    },
  });
  const pool = new pg.Pool({ connectionString: databaseUrl });
  scope.defer(() => pool.end());
  const client = createClient({
    database: pgDatabase(pool),
    registry,
    callbacks: { baseUrl: workerUrl, secrets: [secret] },
  });

  async function jobOf(id: string): Promise<JobRow> {
    const job = await client.getJob(id);
    if (job === null) throw new Error(`job ${id} is gone`);
    return job;
  }

  return {
    client,
    workerUrl,
    labels,
    jobOf,
    tick: () => fireScheduled(scope, workerUrl, "* * * * *"),

    /** The follow-ups of an outcome. */
    async followUpsOf(id: string, outcome: string): Promise<readonly JobRow[]> {
      return (await client.getFollowUps(id)).filter((job) => job.trigger?.outcome === outcome);
    },

    /** The only job of a kind. */
    async onlyJob(kind: string): Promise<JobRow> {
      const { rows } = await pool.query<{ id: string }>("SELECT id FROM awa_edge.jobs WHERE kind = $1", [
        kind,
      ]);
      if (rows[0] === undefined || rows.length > 1) throw new Error(`${rows.length} jobs are ${kind}`);
      return jobOf(rows[0].id);
    },

    /** Sends a webhook of GitHub's, signed as GitHub does. */
    async github(event: string, deliveryId: string, body: unknown): Promise<Answer> {
      const { url, method, headers, ...signed } = await signedWebhook(registry, sourceSecrets, {
        source: "github",
        body: JSON.stringify(body),
        baseUrl: workerUrl,
        deliveryId,
        headers: [["X-GitHub-Event", event]],
        now: new Date(),
      });
      return answerOf(await fetch(url, { method, headers, body: signed.body }));
    },

    /** The callback that a job waits for: its name, and a way to answer it. */
    async waitOf(id: string) {
      const pending = (await client.getCallbacks(id)).find((callback) => callback.state === "pending");
      if (pending === undefined) return null;
      const url = `${workerUrl}/api/callbacks/${pending.id}/complete`;
      const signature = signCallbackId(secret, pending.id);
      return {
        name: pending.name,
        resume: (payload: unknown) => call(url, signature, { payload, resume: true }),
      };
    },
  };
}

/** Calls back, as the outside world would. */
export async function call(url: string | null, signature: string | null, body: unknown): Promise<Answer> {
  if (url === null || signature === null) throw new Error("the parked job came without a callback URL");
  const response = await fetch(url, {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Awa-Signature": signature },
    body: JSON.stringify(body),
  });
  return answerOf(response);
}

async function answerOf(response: Response): Promise<Answer> {
  const text = await response.text();
  const at = Date.now();
  return { status: response.status, body: JSON.parse(text), text: `HTTP ${response.status} ${text}`, at };
}

/** A service somewhere else, which answers what it is told to. */
async function startLabelService(scope: Scope) {
  let next: LabelAnswer = { status: 200, body: {} };
  const server = createServer((request, response) => {
    const { status, headers, body } = next;
    request.resume();
    response.writeHead(status, { "Content-Type": "application/json", ...headers });
    response.end(JSON.stringify(body));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  scope.defer(() => {
    server.closeAllConnections();
    server.close();
  });
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("the label service has no port");
  return {
    url: `http://127.0.0.1:${address.port}/labels`,
    /** What it answers from now on. */
    answers(answer: LabelAnswer): void {
      next = answer;
    },
  };
}
