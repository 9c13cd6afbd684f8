import type { Database } from "../../src/shared/db/port.ts";
import type { Operation } from "./operation.ts";
import type { World } from "./world.ts";

/** An operation under way: each of its calls of the database waits to be let go. */
export class Flight {
  readonly name: string;
  readonly operation: Operation;
  calls = 0;
  commits = 0;
  /** Nobody else has done anything since its first call. */
  isAlone = true;
  /** What it may say in the end, by what was there at its calls. */
  readonly possible = new Set<string>();
  /** What it said; `null`: it is still under way. */
  answer: string | null = null;
  #thrown: { readonly error: unknown } | null = null;
  #release: (() => void) | null = null;
  /** Resolves when it waits at its next call, or has ended. */
  #stop = Promise.withResolvers<void>();

  constructor(name: string, operation: Operation, world: World) {
    this.name = name;
    this.operation = operation;
    const held = async <R>(call: () => Promise<R>): Promise<R> => {
      await new Promise<void>((resolve) => {
        this.#release = resolve;
        this.#stop.resolve();
      });
      return call();
    };
    const database: Database = {
      query: (statement) => held(() => world.database.query(statement)),
      batch: (statements) => held(() => world.database.batch(statements)),
    };
    operation
      .run(world, database)
      .then(
        (answer) => {
          this.answer = answer;
        },
        (error: unknown) => {
          this.#thrown = { error };
          this.answer = `threw ${String(error)}`;
        },
      )
      .finally(() => this.#stop.resolve());
  }

  get hasEnded(): boolean {
    return this.answer !== null;
  }

  /** What it threw, which no operation does. */
  get thrown(): unknown {
    return this.#thrown?.error;
  }

  /** Waits until it wants to make a call, or has ended. */
  async ready(): Promise<void> {
    await this.#stop.promise;
  }

  /** Lets it make its call, and waits until it wants to make the next one, or has ended. */
  async goOn(): Promise<void> {
    const release = this.#release;
    if (release === null) throw new Error(`${this.name} makes no call`);
    this.calls++;
    this.#release = null;
    this.#stop = Promise.withResolvers();
    release();
    await this.#stop.promise;
  }
}
