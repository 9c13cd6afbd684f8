// npm run soak -- [--seconds 3600] [--seed 1]: plays random scripts of everything that can happen to jobs, callbacks and
// deliveries, by several actors on a Postgres of its own, and compares the tables with a small model after every call. Ends with the
// first script after which they differ, made as small as it goes, and the seed that leads to it.

import { parseArgs } from "node:util";
import pg from "pg";
import { check, nothingPlayed, SEEDS } from "../test/model/check.ts";
import { runToEnd } from "./lib/lifecycle.ts";
import { migrate } from "./lib/migrate.ts";
import { startTemporaryPostgres } from "./lib/temporary-postgres.ts";
import { renewWorkerRole } from "./lib/worker-role.ts";

const REPORT_MS = 60_000;

await runToEnd(async (scope) => {
  const { values } = parseArgs({
    options: {
      seconds: { type: "string", default: "3600" },
      seed: { type: "string", default: String(Math.floor(Math.random() * SEEDS)) },
    },
  });
  const numberOf = (name: keyof typeof values): number => {
    const value = Number(values[name]);
    if (!Number.isInteger(value) || value < 1) throw new Error(`--${name} must be a whole number above 0`);
    return value;
  };
  const [seconds, firstSeed] = [numberOf("seconds"), numberOf("seed")];
  const postgres = await startTemporaryPostgres();
  scope.defer(() => postgres.stop());
  const workerUrl = await renewWorkerRole(postgres.url());
  await migrate({ databaseUrl: postgres.url() });
  const pool = new pg.Pool({ connectionString: postgres.url() });
  scope.defer(() => pool.end());
  const workerPool = new pg.Pool({ connectionString: workerUrl });
  scope.defer(() => workerPool.end());

  const played = nothingPlayed();
  const startedAt = performance.now();
  let reportedAt = startedAt;
  const report = (seed: number) => {
    const took = Math.round((performance.now() - startedAt) / 1000);
    const ways = Object.keys(played.answers).length;
    console.log(
      `${took} s, seed ${seed}: ${played.steps} steps, ${played.calls} calls, ${played.waits} waits, ${ways} different answers`,
    );
  };
  let seed = firstSeed;
  for (; performance.now() - startedAt < seconds * 1000 && !scope.signal.aborted; seed = (seed + 1) % SEEDS) {
    await check({ pool, workerPool }, seed, played);
    if (performance.now() - reportedAt < REPORT_MS) continue;
    report(seed);
    reportedAt = performance.now();
  }
  report(seed);
  for (const [answer, count] of Object.entries(played.answers).toSorted())
    console.log(`${String(count).padStart(9)} ${answer}`);
});
