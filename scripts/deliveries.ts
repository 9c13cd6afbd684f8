// npm run deliveries -- list | show | replay: the inbox of webhooks, for an operator.

import path from "node:path";
import { parseArgs } from "node:util";
import pg from "pg";
import { createClient, pgDatabase } from "../src/client.ts";
import { registry } from "../src/registry.ts";
import { DELIVERY_STATES, type DeliveryState } from "../src/shared/delivery.ts";
import { printableJson } from "../src/shared/json.ts";
import type { Replay } from "../src/shared/use-cases/deliveries.ts";
import { withExplicitSslMode } from "./lib/connection-string.ts";
import { readDevVars } from "./lib/dev-vars.ts";
import { REPOSITORY } from "./lib/local-stack.ts";
import { errorMessage } from "./lib/processes.ts";

const USAGE = `npm run deliveries -- list [--source <name>] [--state <state>] [--after <id>] [--limit <n>]
npm run deliveries -- show <source> <delivery id>
npm run deliveries -- replay <source> <delivery id>
npm run deliveries -- replay --state <state> [--source <name>]

A state is one of: ${DELIVERY_STATES.join(", ")}. The database is that of DATABASE_URL, or else of .dev.vars.`;

try {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      source: { type: "string" },
      state: { type: "string" },
      after: { type: "string" },
      limit: { type: "string" },
    },
  });
  const { source } = values;
  const state = values.state === undefined ? undefined : stateOf(values.state);
  const filter = { ...(source !== undefined && { source }), ...(state !== undefined && { state }) };
  const [command, one, two, ...more] = positionals;
  const names = one !== undefined && two !== undefined && more.length === 0 ? ([one, two] as const) : null;
  await withClient(async ({ deliveries }) => {
    if (command === "list" && one === undefined) {
      const page = await deliveries.list({
        ...filter,
        ...(values.after !== undefined && { after: values.after }),
        ...(values.limit !== undefined && { limit: Number(values.limit) }),
      });
      // One line each, without the body: that is for show.
      for (const { body: _, meaning: __, ...delivery } of page.deliveries)
        console.log(printableJson(delivery));
      if (page.next !== null) console.error(`There are more: --after ${page.next}`);
    } else if (command === "show" && names !== null) {
      const delivery = await deliveries.get(...names);
      if (delivery === null) throw new Error("There is no such delivery.");
      console.log(printableJson(delivery, 2));
    } else if (command === "replay" && names !== null) {
      const replay = await deliveries.replay(...names);
      if (replay.status === "not_found") throw new Error("There is no such delivery.");
      console.log(printableJson(replay.status === "moved" ? withoutJob(replay) : replay));
      // What its code threw stands in the delivery's last error.
      if (replay.status === "failed")
        throw new Error(`It failed again: npm run deliveries -- show ${names.join(" ")}`);
    } else if (command === "replay" && one === undefined && state !== undefined && state !== "resolved") {
      console.log(printableJson(await deliveries.replayAll({ ...filter, state })));
    } else {
      throw new Error(USAGE);
    }
  });
} catch (thrown) {
  console.error(errorMessage(thrown));
  process.exitCode = 1;
}

/** The job's args and result are its customer's, and nobody has asked for them here. */
function withoutJob({ status, jobId, kind, state, followUps }: Extract<Replay, { status: "moved" }>) {
  return { status, jobId, kind, state, followUps };
}

function stateOf(text: string): DeliveryState {
  const state = DELIVERY_STATES.find((known) => known === text);
  if (state === undefined) throw new Error(`--state is one of: ${DELIVERY_STATES.join(", ")}.`);
  return state;
}

async function withClient(
  work: (client: ReturnType<typeof createClient<typeof registry.kinds>>) => Promise<void>,
): Promise<void> {
  const devVars = readDevVars(path.join(REPOSITORY, ".dev.vars"));
  const connectionString = process.env.DATABASE_URL || devVars.get("DATABASE_URL");
  if (!connectionString)
    throw new Error("DATABASE_URL is not set, and there is no .dev.vars: set it to the database.");
  if (!/^postgres(ql)?:$/.test(URL.parse(connectionString)?.protocol ?? ""))
    throw new Error(
      "DATABASE_URL is not a postgres:// URL: set it to postgres://user:password@host/database.",
    );
  const pool = new pg.Pool({
    connectionString: withExplicitSslMode(connectionString),
    max: 2,
    connectionTimeoutMillis: 10_000,
    statement_timeout: 30_000,
  });
  pool.on("error", () => undefined);
  try {
    await work(createClient({ database: pgDatabase(pool), registry }));
  } finally {
    await pool.end();
  }
}
