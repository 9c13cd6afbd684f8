import type pg from "pg";
import { createClient } from "../../src/client.ts";
import type { Task } from "../../src/cron/task.ts";
import { Attempt as RealAttempt } from "../../src/executor/attempt.ts";
import type { ExecutorDeps } from "../../src/executor/deps.ts";
import { pgDatabase } from "../../src/shared/db/pg.ts";
import { claimIfDue } from "../../src/shared/db/statements/claim-jobs.ts";
import { DEFAULT_RETENTION } from "../../src/shared/db/statements/delete-ended.ts";
import { Actor } from "./actor.ts";
import { modelRegistry, QUEUE } from "./registry.ts";

/** The real thing: the library on Postgres, and who has claimed what. */
export class World {
  readonly pool: pg.Pool;
  readonly database;
  readonly registry;
  readonly client;
  readonly deps: ExecutorDeps;
  /** By job and lease. */
  readonly actors = new Map<string, Actor>();
  broken = false;

  constructor(pool: pg.Pool) {
    this.pool = pool;
    this.database = pgDatabase(pool, { prepares: true });
    this.registry = modelRegistry(
      (context) => {
        const actor = this.actors.get(`${context.job.id}/${context.job.runLease}`);
        if (actor === undefined) throw new Error("nobody claimed this");
        return actor.run(context);
      },
      () => this.broken,
    );
    this.client = createClient({ database: this.database, registry: this.registry });
    this.deps = {
      database: this.database,
      registry: this.registry,
      log: () => undefined,
      clock: () => performance.now(),
      env: {},
      callbacks: null,
      defer: () => undefined,
    };
  }

  /** Forgets everything. */
  async reset(): Promise<void> {
    this.actors.clear();
    this.broken = false;
    await this.pool.query(`DELETE FROM awa_edge.jobs; DELETE FROM awa_edge.rescue_followups; DELETE FROM awa_edge.deliveries;
      DELETE FROM awa_edge.queues; ALTER SEQUENCE awa_edge.jobs_id_seq RESTART`);
  }

  /** Claims up to `most` jobs and begins to run them. */
  async claim(most: number): Promise<readonly { readonly job: string; readonly lease: number }[]> {
    const { deps } = this;
    const claimed = await this.database.query(
      claimIfDue([{ queue: QUEUE, maxJobs: most, deadlineSeconds: null }], {}),
    );
    return claimed.map((one) => {
      const { id, runLease } = one.job;
      new Actor(deps, new RealAttempt(one, deps.clock, deps.clock()), (actor) =>
        this.actors.set(`${id}/${runLease}`, actor),
      );
      return { job: id, lease: Number(runLease) };
    });
  }

  actor({ job, lease }: { readonly job: string; readonly lease: number }): Actor {
    const actor = this.actors.get(`${job}/${lease}`);
    if (actor === undefined) throw new Error(`nobody claimed job ${job} under lease ${lease}`);
    return actor;
  }

  /** Runs one task of the tick. */
  async tick(task: Task): Promise<void> {
    await task.runOnce({ ...this.deps, retention: DEFAULT_RETENTION, deadlineMs: Infinity }, {});
  }
}
