import type pg from "pg";
import { createClient } from "../../src/client.ts";
import type { Task } from "../../src/cron/task.ts";
import type { ExecutorDeps } from "../../src/executor/deps.ts";
import { pgDatabase } from "../../src/shared/db/pg.ts";
import type { Database } from "../../src/shared/db/port.ts";
import { claimIfDue } from "../../src/shared/db/statements/claim-jobs.ts";
import { DEFAULT_RETENTION } from "../../src/shared/db/statements/delete-ended.ts";
import { emptyTables } from "../support/empty-tables.ts";
import { Actor } from "./actor.ts";
import { modelRegistry, QUEUE } from "./registry.ts";
import { type Found, readTables } from "./view.ts";

const BLOCKED_SQL = `SELECT count(*)::int AS blocked FROM pg_stat_activity
  WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0`;

/** The real thing: two builds of the library on one Postgres, and who has claimed what. */
export class World {
  /** The owner's, to look and to let time pass. */
  readonly pool: pg.Pool;
  /** The Worker's, for all that is tried. */
  readonly workerPool: pg.Pool;
  readonly database: Database;
  /** Everything that ever had a name, also after it was deleted. */
  readonly ids = new Map<string, string>();
  readonly #names = new Map<string, string>();
  readonly #actors = new Map<string, Actor>();
  readonly #builds;

  constructor(pool: pg.Pool, workerPool: pg.Pool) {
    this.pool = pool;
    this.workerPool = workerPool;
    this.database = pgDatabase(workerPool, { prepares: true });
    const build = (isBroken: boolean) =>
      modelRegistry(
        (context) => this.actor(`${nameOf(context.job)}/${context.job.runLease}`).run(context),
        isBroken,
      );
    this.#builds = { sound: build(false), broken: build(true) };
  }

  /** Forgets everything. */
  async reset(): Promise<void> {
    for (const names of [this.ids, this.#names, this.#actors]) names.clear();
    await emptyTables(this.pool);
  }

  /** How many wait for a lock that another one holds. */
  async blocked(): Promise<number> {
    const { rows } = await this.pool.query<{ blocked: number }>({ name: "model_blocked", text: BLOCKED_SQL });
    return rows[0]?.blocked ?? 0;
  }

  async look(): Promise<Found> {
    const found = await readTables(this.pool, this.#names);
    for (const [name, id] of found.ids) this.ids.set(name, id);
    return found;
  }

  idOf(name: string): string {
    const id = this.ids.get(name);
    if (id === undefined) throw new Error(`there was never a ${name}`);
    return id;
  }

  /** A text with the names of the jobs in it, for "#" and their ids: who has only an id may be the first to hear of a job. */
  named(text: string): string {
    return text.replaceAll(/#(\d+)/g, (unknown, id: string) => this.#names.get(id) ?? unknown);
  }

  actor(name: string): Actor {
    const actor = this.#actors.get(name);
    if (actor === undefined) throw new Error(`nobody claimed ${name}`);
    return actor;
  }

  registry(isBroken: boolean) {
    return isBroken ? this.#builds.broken : this.#builds.sound;
  }

  client(database: Database, isBroken: boolean) {
    return createClient({ database, registry: this.registry(isBroken) });
  }

  #deps(database: Database, isBroken: boolean): ExecutorDeps {
    return {
      database,
      registry: this.registry(isBroken),
      log: () => undefined,
      clock: () => performance.now(),
      env: {},
      callbacks: null,
      defer: () => undefined,
    };
  }

  /** Claims up to `most` jobs and begins to run them. @returns the names of the attempts */
  async claim(database: Database, isBroken: boolean, most: number): Promise<string[]> {
    const claimed = await database.query(
      claimIfDue([{ queue: QUEUE, maxJobs: most, deadlineSeconds: null }], {}),
    );
    return claimed.map((one) => {
      const name = `${nameOf(one.job)}/${one.job.runLease}`;
      new Actor(this.#deps(database, isBroken), one, (actor) => this.#actors.set(name, actor));
      return name;
    });
  }

  /** Runs one task of the tick. */
  async tick(database: Database, isBroken: boolean, task: Task): Promise<void> {
    const deps = this.#deps(database, isBroken);
    await task.runOnce({ ...deps, retention: DEFAULT_RETENTION, deadlineMs: Number.POSITIVE_INFINITY }, {});
  }
}

const nameOf = ({ metadata }: { readonly metadata: Readonly<Record<string, unknown>> }): string =>
  String(metadata.name);
