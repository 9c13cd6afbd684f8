// npm run dev: the database, the Worker and its scheduled trigger, until Ctrl-C, with a job to try a callback on.

import path from "node:path";
import { startCron } from "./lib/cron.ts";
import { runUntilStopped } from "./lib/lifecycle.ts";
import { type LocalStack, REPOSITORY, startLocalStack } from "./lib/local-stack.ts";
import { errorMessage } from "./lib/processes.ts";
import { startWrangler } from "./lib/wrangler.ts";

const JOBS =
  "SELECT id, kind, state, trigger_job_id, trigger_outcome FROM awa_edge.jobs ORDER BY id DESC LIMIT 10";

await runUntilStopped(async (scope) => {
  const stack = await startLocalStack(scope);
  const workerUrl = await startWrangler(scope);
  const crons = await cronExpressions();
  startCron(scope, workerUrl, crons);
  console.log(`
The Worker is running at ${workerUrl} until you press Ctrl-C.

  Postgres         ${stack.printedDatabaseUrl}
  Neon's protocol  ${stack.neonEndpoint}
  Scheduled        ${crons.map((cron) => `"${cron}"`).join(", ") || "never"}: fired from here

${await sampleJob(stack, workerUrl)}
`);
});

async function cronExpressions(): Promise<readonly string[]> {
  // Imported late: it is large, and the database is up sooner without it.
  const { unstable_readConfig: readConfig } = await import("wrangler");
  const config = readConfig({ config: path.join(REPOSITORY, "wrangler.toml") }, { hideWarnings: true });
  return config.triggers.crons ?? [];
}

/** How to try a callback; or why not, which is no reason to stop: it depends on the registry that users edit. */
async function sampleJob(stack: LocalStack, workerUrl: string): Promise<string> {
  try {
    const { parkSampleJob } = await import("./lib/sample-job.ts");
    const { jobId, completeCommand } = await parkSampleJob(stack, workerUrl);
    return `Job ${jobId} is parked, waiting for its callback. Complete it:

  ${completeCommand}

and look at what that set off:

  curl ${stack.neonEndpoint} -H "Neon-Connection-String: ${stack.printedDatabaseUrl}" -d '${JSON.stringify({ query: JOBS })}'`;
  } catch (thrown) {
    return `No job was parked to try a callback on: ${errorMessage(thrown)}`;
  }
}
