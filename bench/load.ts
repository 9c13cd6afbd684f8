// npm run load: signed callbacks and webhooks at a steady rate, some of them twice, some through connections that break, while the
// database fails now and then and the tick runs. Then every job is looked at: completed once, followed up once. Everything is on
// loopback, and of this run alone. Exit code 1 if anything was lost or done twice, or an error came that nobody injected.

import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { runToEnd } from "../scripts/lib/lifecycle.ts";
import { Sender } from "./load/sender.ts";
import { type LoadOptions, type LoadStage, setUp } from "./load/stage.ts";
import { blocksRead, openFollowUps, STATISTICS_MS, tables, wrongs } from "./load/verdict.ts";

const USAGE = `npm run load -- [options]

  --rate <n>         new callbacks and webhooks a second (default: 500)
  --seconds <n>      for how long (default: 300)
  --webhooks <x>     the share of them that are webhooks, 0 to 1 (default: 0.3)
  --duplicates <x>   the share that is sent a second time (default: 0.1)
  --faults <x>       the share of connections cut by the sender, and of the database's requests that fail (default: 0.01)
  --tick <n>         seconds between two ticks (default: 5)
  --at-once <n>      requests under way at most (default: 64)`;

/** Longer than it takes to find that a claim was lost. */
const MAX_DRAIN_MS = 240_000;

const options = readOptions(process.argv.slice(2));
await runToEnd(async (scope) => {
  const stage = await setUp(scope, options);
  const { owner, faults, jobs, webhooks } = stage;
  const { rate, seconds } = options;
  console.log(`${jobs} jobs are parked; sending ${rate} callbacks and webhooks a second for ${seconds} s …`);

  const sender = new Sender(stage);
  const ticking = startTicking(stage);
  // What grows with what was done shows in the quarters, whatever else the machine does.
  const look = async () => ({
    memoryMib: stage.memoryMib(),
    answers: sender.tookMs.length,
    requests: stage.counted().requests,
    blocks: await blocksRead(owner),
  });
  const looks = [await look()];
  const startedAt = performance.now();
  let behindMs = 0;
  for (let n = 0; n < jobs; n++) {
    const dueMs = startedAt + (n * 1000) / rate;
    if (dueMs > performance.now() + 1)
      await sleep(dueMs - performance.now(), undefined, { signal: scope.signal });
    await sender.hasRoom();
    behindMs = Math.max(behindMs, performance.now() - dueMs);
    sender.send(n);
    if ((n + 1) % Math.ceil(jobs / 4) === 0 || n === jobs - 1) looks.push(await look());
  }
  await sender.isDone();
  const tookSeconds = (performance.now() - startedAt) / 1000;
  const left = await openFollowUps(owner);
  const { statements, requests } = stage.counted();
  const injected = faults.count;

  // What the faults have left is the tick's, and the Worker's that begins again.
  faults.stop();
  console.log(`All are answered; ${left.due + left.running} follow-ups are to be run …`);
  const deadline = performance.now() + MAX_DRAIN_MS;
  while (performance.now() < deadline) {
    const { due, running } = await openFollowUps(owner);
    if (due + running === 0) break;
    await sleep(1_000, undefined, { signal: scope.signal });
  }
  const ticks = await ticking.stop();
  await sleep(STATISTICS_MS, undefined, { signal: scope.signal });

  const answers = sender.tookMs.length;
  const quarters = looks.slice(1).map((end, at) => {
    const start = looks[at] ?? end;
    const tookMs = sender.tookMs.slice(start.answers, end.answers);
    return {
      p50: percentile(tookMs, 50),
      p99: percentile(tookMs, 99),
      blocks: Math.round((end.blocks - start.blocks) / (end.requests - start.requests)),
      memoryMib: end.memoryMib,
    };
  });
  const byQuarter = (what: keyof (typeof quarters)[number]) =>
    quarters.map((quarter) => quarter[what]).join(", ");
  console.log(`
sent                  ${jobs} jobs' callbacks and webhooks, ${sender.sentTwice} of them twice, in ${tookSeconds.toFixed(1)} s
rate reached          ${(jobs / tookSeconds).toFixed(0)} new ones a second; at most ${(behindMs / 1000).toFixed(1)} s behind
answers               ${answers}: ${sender.sum("resolved")} resolved, ${sender.sum("duplicates")} duplicate, ${sender.sum("unavailable")} unavailable
answered in           p50 ${percentile(sender.tookMs, 50)} ms, p99 ${percentile(sender.tookMs, 99)} ms; by quarter p50 ${byQuarter("p50")} ms, p99 ${byQuarter("p99")} ms
faults injected       ${sender.sum("cuts")} connections cut by the sender, ${injected} requests to the database failed
follow-ups due        at most ${ticks.most.due}, for ${ticks.most.oldestSeconds.toFixed(1)} s; ${left.due} when the last answer came
ticks                 ${ticks.fired}, of which ${ticks.failed} failed
receiving             ${(faults.receiving / answers).toFixed(3)} requests to the database for each answer
all of it             ${(requests / jobs).toFixed(2)} requests and ${(statements / jobs).toFixed(2)} statements a job, its follow-ups included
blocks read           ${byQuarter("blocks")} for each request to the database, by quarter
memory of workerd     ${byQuarter("memoryMib")} MiB at the end of each quarter
`);
  console.table(await tables(owner));
  const wrong = {
    ...(await wrongs(owner, jobs, webhooks)),
    ...sender.unexpected(),
    "ticks failed with no fault injected": ticks.unexplained,
  };
  console.table(wrong);
  if (Object.values(wrong).some((count) => count !== 0)) throw new Error("Something is wrong: see above.");
  console.log("Nothing lost, nothing twice, no error but the injected ones.");
});

/** Fires the tick again and again, and looks at what is to be run by then. */
function startTicking({ scope, options: { tick }, faults, owner, tick: fire }: LoadStage) {
  const counts = { fired: 0, failed: 0, unexplained: 0 };
  const most = { due: 0, oldestSeconds: 0 };
  const stopped = new AbortController();
  const signal = AbortSignal.any([scope.signal, stopped.signal]);
  const loop = (async () => {
    while (!signal.aborted) {
      const open = await openFollowUps(owner);
      most.due = Math.max(most.due, open.due);
      most.oldestSeconds = Math.max(most.oldestSeconds, open.oldestSeconds);
      const faultsBefore = faults.count;
      counts.fired++;
      await fire().catch(() => {
        counts.failed++;
        if (faults.count === faultsBefore) counts.unexplained++;
      });
      await sleep(tick * 1000, undefined, { signal }).catch(() => undefined);
    }
  })();
  return {
    async stop() {
      stopped.abort();
      await loop;
      return { ...counts, most };
    },
  };
}

/** @returns what a share of the values is at most, in whole numbers */
function percentile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return Math.round(sorted[Math.max(0, Math.ceil((sorted.length * share) / 100) - 1)] ?? Number.NaN);
}

function readOptions(args: string[]): LoadOptions {
  const number = { type: "string" } as const;
  try {
    const { values } = parseArgs({
      args,
      options: {
        rate: number,
        seconds: number,
        webhooks: number,
        duplicates: number,
        faults: number,
        tick: number,
        "at-once": number,
        help: { type: "boolean" },
      },
    });
    if (values.help === true) {
      console.log(USAGE);
      process.exit(0);
    }
    return {
      rate: within(values.rate, 500, 1, 10_000),
      seconds: within(values.seconds, 300, 1, 86_400),
      webhooks: within(values.webhooks, 0.3, 0, 1),
      duplicates: within(values.duplicates, 0.1, 0, 1),
      faults: within(values.faults, 0.01, 0, 0.5),
      tick: within(values.tick, 5, 1, 3600),
      atOnce: within(values["at-once"], 64, 1, 1000),
    };
  } catch {
    console.error(USAGE);
    process.exit(1);
  }
}

/** @throws Error where it isn't a number in this range */
function within(given: string | undefined, fallback: number, min: number, max: number): number {
  const number = given === undefined ? fallback : Number(given);
  if (given === "" || !(number >= min && number <= max)) throw new Error("out of range");
  return number;
}
