import type pg from "pg";
import * as v from "valibot";
import { defineRegistry } from "../../src/shared/registry/define.ts";
import { complete } from "../../src/shared/registry/handler.ts";

/** Where runs are recorded: one row each, and a second run of the same attempt is refused. */
export const RUNS_TABLE = `CREATE TABLE runs (
  job_id bigint NOT NULL, run_lease bigint NOT NULL, who text NOT NULL, UNIQUE (job_id, run_lease))`;
/** A `slow` job's handler doesn't end while there is a row in this table. */
export const GATE_TABLE = "CREATE TABLE gate (closed boolean)";

/**
 * A registry whose handlers record each run, many together: `quick` ends at once, `slow` waits until the gate opens and has a follow-up
 * on completion, `stray` leaves a rejection that nobody waits for, and `thrown` an exception that nobody can catch; they record nothing.
 *
 * @param who is recorded with each run
 */
export function recordingRegistry(pool: pg.Pool, who: string) {
  let batch: [string, string][] = [];
  let flushed: Promise<unknown> | null = null;

  function record(jobId: string, runLease: string): Promise<unknown> {
    batch.push([jobId, runLease]);
    flushed ??= new Promise((resolve) => setTimeout(resolve, 2)).then(() => {
      const runs = batch;
      batch = [];
      flushed = null;
      return pool.query(
        "INSERT INTO public.runs SELECT id, lease, $3 FROM unnest($1::bigint[], $2::bigint[]) AS r(id, lease)",
        [runs.map(([id]) => id), runs.map(([, lease]) => lease), who],
      );
    });
    return flushed;
  }

  const registry = defineRegistry({
    quick: v.object({}),
    slow: v.object({}),
    stray: v.object({}),
    thrown: v.object({}),
    after: v.object({ of: v.string() }),
  });
  registry
    .queue("default", { concurrency: 50 })
    .handle("quick", async ({ job }) => {
      await record(job.id, job.runLease);
      return complete();
    })
    .handle("slow", async ({ job }) => {
      await record(job.id, job.runLease);
      while (((await pool.query("SELECT FROM public.gate")).rowCount ?? 0) > 0) {
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
      return complete();
    })
    .handle("stray", () => {
      void Promise.reject(new TypeError("hunter2"));
      return complete();
    })
    .handle("thrown", () => {
      setTimeout(() => {
        throw new RangeError("hunter2");
      });
      return complete();
    })
    .onCompletedEnqueue("slow", (_, job) => registry.enqueue("after", { of: job.id }, { queue: "not-run" }));
  return registry;
}
