import { DatabaseError } from "../db/errors.ts";
import type { Database, Statement } from "../db/port.ts";
import type { NewCallback } from "../db/statements/attempt-callbacks.ts";
import {
  type EarlyDelivery,
  type EarlyLook,
  LEAVE_TO_TICK,
  readEarlyDeliveries,
  type SettledEarly,
  settleEarly,
} from "../db/statements/early-deliveries.ts";
import type { MoveResult, PlannedMove } from "../db/statements/move-job.ts";
import { lockTarget, moveForDelivery } from "../db/statements/record-delivery.ts";
import { TERMINAL_STATES } from "../job.ts";
import type { RegistryView } from "../registry/define.ts";
import { err, ok, type Result } from "../result.ts";
import { decideByRules, type Waiting } from "../transitions.ts";
import { type Moved, movedBy, planMove } from "./resolve-callback.ts";

/** A job that is about to wait, as it will be once its callback is registered. */
export interface AboutToWait {
  readonly job: Waiting;
  readonly keepsDeadLetters: boolean;
}

/** A planned registration, not yet run. */
export interface Registration<R> {
  readonly statement: (look: EarlyLook) => Statement<R>;
  /** The job as it will be; `null` where nobody needs to know. */
  readonly about: AboutToWait | null;
}

/** What became of a registration. */
export interface Registered<R> {
  readonly result: R;
  /** An early delivery moved the job, in the transaction that registered its callback. */
  readonly moved: Moved | null;
}

/** Rounds of read, plan and write. Each further one needs a delivery to have come in between. */
const MAX_ROUNDS = 5;
const ONE_PENDING = "callbacks_one_pending_per_correlation_key";
const TAKEN = "another callback is waiting for this correlationKey of the source";

/**
 * Registers a callback with its correlation key, and in the same transaction consumes what came for it early: the first delivery that
 * resolves it does so, and the others are settled.
 *
 * Whoever parks a delivery for the key, and whoever registers a callback for it, take the same lock before they look, so that either
 * the registration finds the delivery, or the delivery finds the callback. A delivery that comes between our reading and our
 * lock is seen by the registration's guard, and then we read again.
 *
 * @param prepare plans the registration, or says why it can't be. Where something came early it has to say how the job will be
 * @param heldBack whether it registered nothing because of a delivery that wasn't seen
 * @returns what it came to, or why it couldn't be planned
 * @throws DatabaseError where the database failed, or deliveries kept coming
 */
export async function registerWithEarly<R>(
  database: Database,
  registry: RegistryView,
  callback: NewCallback & { readonly source: string; readonly correlationKey: string },
  prepare: (isFound: boolean) => Promise<Result<Registration<R>, string>>,
  heldBack: (result: R) => boolean,
): Promise<Result<Registered<R>, string>> {
  const { id, source, correlationKey } = callback;
  const lock = lockTarget(source, { correlationKey });
  let consumes = true;
  for (let round = 1; round <= MAX_ROUNDS; round++) {
    const { deliveries, isAll, now } = await database.query(readEarlyDeliveries(source, correlationKey));
    const prepared = await prepare(deliveries.length > 0);
    if (!prepared.ok) return prepared;
    const { statement, about } = prepared.value;
    const plan =
      about === null || now === null || !consumes
        ? { ...NOTHING, isWhole: deliveries.length === 0 }
        : planEarly(registry, callback, { ...about, now }, deliveries);
    const look = plan.isWhole && isAll ? { seen: deliveries.map((delivery) => delivery.id) } : LEAVE_TO_TICK;
    try {
      const { result, move } = await write(database, id, lock, statement(look), plan);
      if (!heldBack(result)) {
        // Where nothing was registered the move found nothing to move either.
        const moved = plan.move === null || move === null ? null : movedBy(registry, plan.move.planned, move);
        return ok({ result, moved });
      }
    } catch (thrown) {
      if (!(thrown instanceof DatabaseError)) throw thrown;
      if (thrown.constraint === ONE_PENDING) return err(TAKEN);
      // Rolled back whole: a deadlock, or somebody else took a delivery that we were to consume.
      if (thrown.kind === "contended") continue;
      if (plan.move === null) throw thrown;
      // The follow-up of an early delivery was refused. The registration must not fail for it: the tick tries again, and tells.
      if (thrown.kind === "rejected" || thrown.kind === "unique_violation") consumes = false;
      else throw thrown;
    }
  }
  throw new DatabaseError("contended", null);
}

interface EarlyPlan {
  readonly move: { readonly planned: PlannedMove; readonly statement: Statement<MoveResult> } | null;
  readonly settled: readonly SettledEarly[];
  /** Every delivery has its place in it; the rest is the tick's. */
  readonly isWhole: boolean;
}
const NOTHING = { move: null, settled: [] } as const;

/** Goes through the early deliveries in the order in which they came, as if each had come right after the registration. Pure. */
function planEarly(
  registry: RegistryView,
  callback: NewCallback,
  { job, now, keepsDeadLetters }: AboutToWait & { readonly now: Date },
  deliveries: readonly EarlyDelivery[],
): EarlyPlan {
  let move: EarlyPlan["move"] = null;
  const settled: SettledEarly[] = [];
  const { id, source, correlationKey, name, rules, awaitedInAttempt } = callback;
  const { id: jobId, runLease } = job;
  const pending = {
    id,
    jobId,
    runLease,
    name,
    source,
    correlationKey,
    rules,
    awaitedInAttempt,
    state: "pending",
  } as const;
  const unresolved = {
    timeoutAt: now,
    createdAt: now,
    resolvedAt: null,
    resolvedTo: null,
    payload: null,
    error: null,
  };
  const reading = { callback: { ...pending, ...unresolved }, job, now, keepsDeadLetters };
  for (const delivery of deliveries) {
    const { meaning } = delivery;
    const target = { correlationKey: callback.correlationKey ?? "" };
    if (move !== null) {
      // A job that goes on may register the same key again: then it is early still, as if it had come after the move.
      if (TERMINAL_STATES.some((state) => state === move?.planned.move.job.state)) {
        settled.push({
          id: delivery.id,
          state: "late",
          reason: "its callback was resolved by an earlier delivery",
        });
      }
      continue;
    }
    // The tick has its source's code say it again.
    if (meaning === null) return { move, settled, isWhole: false };
    const action =
      meaning.type === "resolve" ? decideByRules(meaning.payload, callback, registry.ruleEngine()) : meaning;
    if (action.type === "undecided") return { move, settled, isWhole: false };
    if (action.type === "ignore" || action.type === "heartbeat") {
      const reason = action.type === "ignore" ? action.reason : "it came before its callback";
      settled.push({ id: delivery.id, state: "ignored", reason });
      continue;
    }
    const planned = planMove(registry, reading, action);
    // A retry waits for its job to be parked, and a follow-up that can't be planned is recorded by the tick. Nothing overtakes either.
    if (!planned.ok) return { move, settled, isWhole: false };
    const record = {
      delivery,
      state: "resolved",
      target,
      meaning,
      jobId,
      reason: null,
      error: null,
    } as const;
    move = { planned: planned.value, statement: moveForDelivery(planned.value, record) };
  }
  return { move, settled, isWhole: true };
}

async function write<R>(
  database: Database,
  callbackId: string,
  lock: Statement<void>,
  register: Statement<R>,
  { move, settled }: EarlyPlan,
): Promise<{ readonly result: R; readonly move: MoveResult | null }> {
  const settle = settleEarly(callbackId, settled);
  if (move !== null) {
    const [, result, moved] = await database.batch([lock, register, move.statement, settle]);
    return { result, move: moved };
  }
  const [, result] =
    settled.length > 0
      ? await database.batch([lock, register, settle])
      : await database.batch([lock, register]);
  return { result, move: null };
}
