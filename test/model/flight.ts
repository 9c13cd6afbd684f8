import type pg from "pg";
import { DatabaseError, toDatabaseError } from "../../src/shared/db/errors.ts";
import { type Database, decodeAll, type Row, type Statement } from "../../src/shared/db/port.ts";
import type { Operation } from "./operation.ts";
import type { World } from "./world.ts";

type AnyStatement = Pick<Statement<unknown>, "text" | "values">;

/**
 * An operation under way: each of its calls of the database waits to be let go. Where it is slow, so does each statement within a call,
 * and the commit: what it has written and locked by then is held meanwhile.
 */
export class Flight {
  readonly name: string;
  readonly operation: Operation;
  readonly isSlow: boolean;
  calls = 0;
  commits = 0;
  /** Nobody else has done anything since its first call, or can have been in the middle of something. */
  isAlone: boolean;
  /** It has a transaction open. */
  holds = false;
  /** It has been let go, and has neither come to its next call nor to its end: it waits for what another one holds. */
  isMoving = true;
  /** What it may say in the end, by what was there at its calls. */
  readonly possible = new Set<string>();
  /** What it said; `null`: it is still under way. */
  answer: string | null = null;
  readonly #world: World;
  #turn: PromiseWithResolvers<void> | null = null;
  #stop = Promise.withResolvers<void>();

  constructor(name: string, operation: Operation, world: World, isSlow: boolean) {
    this.name = name;
    this.operation = operation;
    this.isSlow = isSlow;
    this.isAlone = !isSlow;
    this.#world = world;
    operation
      .run(world, this.#database())
      .catch((thrown: unknown) => {
        const isContended = thrown instanceof DatabaseError && thrown.kind === "contended";
        return isContended ? CONTENDED : `threw ${String(thrown)}`;
      })
      .then((answer) => {
        this.answer = answer;
        this.#halt();
      });
  }

  get hasEnded(): boolean {
    return this.answer !== null;
  }
  /** Resolves when it has come to its next call, or to its end. */
  get stopped(): Promise<void> {
    return this.#stop.promise;
  }

  /** Lets it make its call. */
  goOn(): void {
    const turn = this.#turn;
    if (turn === null) throw new Error(`${this.name} makes no call`);
    this.calls++;
    this.#turn = null;
    this.isMoving = true;
    this.#stop = Promise.withResolvers();
    turn.resolve();
  }

  /** Has it end, whatever it was about to do. */
  async abandon(): Promise<void> {
    for (; !this.hasEnded; await this.stopped) {
      const turn = this.#turn;
      if (turn === null) continue;
      this.#turn = null;
      this.#stop = Promise.withResolvers();
      turn.reject(new Error("abandoned"));
    }
  }

  #halt(): void {
    this.isMoving = false;
    this.#stop.resolve();
  }

  async #gate(): Promise<void> {
    this.#turn = Promise.withResolvers();
    this.#halt();
    await this.#turn.promise;
  }

  #database(): Database {
    const { database } = this.#world;
    return {
      query: async (statement) => {
        if (this.isSlow) return statement.decode((await this.#slowly([statement]))[0] ?? []);
        await this.#gate();
        return database.query(statement);
      },
      batch: async (statements) => {
        if (this.isSlow) return decodeAll(statements, await this.#slowly(statements));
        await this.#gate();
        return database.batch(statements);
      },
    };
  }

  async #slowly(statements: readonly AnyStatement[]): Promise<readonly (readonly Row[])[]> {
    await this.#gate();
    const client: pg.PoolClient = await this.#world.workerPool.connect();
    try {
      await client.query("BEGIN ISOLATION LEVEL READ COMMITTED");
      this.holds = true;
      const results: Row[][] = [];
      for (const [i, { text, values }] of statements.entries()) {
        if (i > 0) await this.#gate();
        results.push((await client.query<Record<string, unknown>>(text, [...values])).rows);
      }
      await this.#gate();
      await client.query("COMMIT");
      return results;
    } catch (thrown) {
      await client.query("ROLLBACK");
      throw thrown instanceof Error && thrown.message === "abandoned" ? thrown : toDatabaseError(thrown);
    } finally {
      this.holds = false;
      client.release();
    }
  }
}

/** What one says who met others again and again, or in a deadlock. */
export const CONTENDED = "contended";
