// npm run bench: what a claim costs in a queue with much behind it and much ahead of it, against the same claim in a small one.
// One run, two databases on one server, taking turns: the ratio says something, the milliseconds are this machine's.

import pg from "pg";
import { runToEnd } from "../scripts/lib/lifecycle.ts";
import { migrate } from "../scripts/lib/migrate.ts";
import { startTemporaryPostgres } from "../scripts/lib/temporary-postgres.ts";
import { claimIfDue } from "../src/shared/db/statements/claim-jobs.ts";

const CLAIM = 100;
const ROUNDS = 30;
const WARM_UP = 5;
const MAX_RATIO = 2;

interface Size {
  readonly finished: number;
  readonly due: number;
  /** How many ordering keys the due jobs share; 0: they have none. */
  readonly keys: number;
}
const SMALL: Size = { finished: 0, due: CLAIM * (ROUNDS + WARM_UP + 5), keys: 0 };
const LARGE: Size = { finished: 1_000_000, due: 100_000, keys: 0 };
/** The worst that ordering keys can do: everything stands in one line, behind a job that is under way. */
const KEYED: Size = { finished: 0, due: 100_000, keys: 1 };

const statement = claimIfDue([{ queue: "default", maxJobs: CLAIM, deadlineSeconds: null }], {});

await runToEnd(async (scope) => {
  const postgres = await startTemporaryPostgres();
  scope.defer(() => postgres.stop());
  const small = await fill(postgres.url(), "small", SMALL);
  const large = await fill(postgres.url(), "large", LARGE);
  const keyed = await fill(postgres.url(), "keyed", KEYED);
  for (const pool of [small, large, keyed]) scope.defer(() => pool.end());

  const whole = await tablesReadWhole(large);
  console.log(
    `claim of ${CLAIM}, 1,000,000 finished and 100,000 due: tables read whole: ${whole.join(", ") || "none"}`,
  );
  const ms = { small: [] as number[], large: [] as number[], keyed: [] as number[] };
  for (let round = 0; round < WARM_UP + ROUNDS; round++) {
    const took = {
      small: await claim(small),
      large: await claim(large),
      keyed: await claim(keyed, round === 0 ? 1 : 0),
    };
    if (round < WARM_UP) continue;
    for (const name of ["small", "large", "keyed"] as const) ms[name].push(took[name]);
  }
  const ratio = median(ms.large) / median(ms.small);
  console.log(
    `median of ${ROUNDS}: small ${median(ms.small).toFixed(2)} ms, large ${median(ms.large).toFixed(2)} ms: ratio ${ratio.toFixed(2)} of ${MAX_RATIO} allowed`,
  );
  console.log(
    `100,000 due jobs in the line of one ordering key, none of which may be claimed: ${median(ms.keyed).toFixed(2)} ms`,
  );
  if (whole.length > 0 || ratio > MAX_RATIO) throw new Error("a claim costs more than it may");
});

async function fill(serverUrl: string, name: string, { finished, due, keys }: Size): Promise<pg.Pool> {
  const admin = new pg.Client({ connectionString: serverUrl });
  await admin.connect();
  await admin.query(`CREATE DATABASE ${name}`);
  await admin.end();
  const url = new URL(serverUrl);
  url.pathname = `/${name}`;
  await migrate({ databaseUrl: url.href });
  const pool = new pg.Pool({ connectionString: url.href, max: 1 });
  await pool.query(
    `INSERT INTO awa_edge.jobs (kind, state, attempt, run_lease, finalized_at)
     SELECT 'order', 'completed', 1, 1, now() FROM generate_series(1, $1::int)`,
    [finished],
  );
  await pool.query(
    `INSERT INTO awa_edge.jobs (kind, priority, run_at, ordering_key)
     SELECT 'order', 1 + n % 4, now() - n * interval '1 millisecond', CASE WHEN $2::int > 0 THEN 'key-' || n % $2::int END
     FROM generate_series(1, $1::int) n`,
    [due, keys],
  );
  await pool.query("VACUUM ANALYZE awa_edge.jobs");
  return pool;
}

async function claim(pool: pg.Pool, expected = CLAIM): Promise<number> {
  const startedAt = performance.now();
  const { rowCount } = await pool.query(statement.text, [...statement.values]);
  const took = performance.now() - startedAt;
  if (rowCount !== expected) throw new Error(`claimed ${rowCount} instead of ${expected}`);
  return took;
}

interface Node {
  readonly "Node Type": string;
  readonly "Relation Name"?: string;
  readonly Plans?: readonly Node[];
}

async function tablesReadWhole(pool: pg.Pool): Promise<string[]> {
  const { rows } = await pool.query<{ "QUERY PLAN": [{ Plan: Node }] }>(
    `EXPLAIN (FORMAT JSON) ${statement.text}`,
    [...statement.values],
  );
  const found: string[] = [];
  const walk = (node: Node) => {
    // The settings of queues: one row for each queue that has some.
    if (node["Node Type"] === "Seq Scan" && node["Relation Name"] !== "queues") {
      found.push(node["Relation Name"] ?? "?");
    }
    node.Plans?.forEach(walk);
  };
  for (const row of rows) walk(row["QUERY PLAN"][0].Plan);
  return found;
}

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? Number.NaN;
}
