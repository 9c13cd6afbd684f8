import type { StandardSchemaV1 } from "@standard-schema/spec";
import type { JobRow } from "../job.ts";
import type { Outcome, OutcomeContext } from "../outcome.ts";
import { type EnqueueOptions, FOLLOW_UP, type FollowUp } from "./follow-up.ts";

/** Job kinds and the schemas of their args (any Standard Schema library: valibot, zod, arktype …). */
export type Kinds = Readonly<Record<string, StandardSchemaV1>>;

/** The args of a kind as closures, hooks and handlers get them: what its schema puts out. */
export type Args<K extends Kinds, N extends keyof K> = StandardSchemaV1.InferOutput<K[N]>;

/** The args of a kind as they are enqueued and stored: what its schema takes in. */
export type ArgsInput<K extends Kinds, N extends keyof K> = StandardSchemaV1.InferInput<K[N]>;

/** The states a job can be in right after an outcome. */
export type StateAfter = {
  readonly completed: "completed";
  /** `available` where a callback asked for the retry, `retryable` where the attempt failed. */
  readonly retried: "available" | "retryable";
  readonly exhausted: "failed";
  readonly cancelled: "cancelled";
  readonly waiting_for_callback: "waiting_external";
  /** `failed` where the rescue found no attempt left. */
  readonly rescued: "retryable" | "failed";
};

/** What an `onEvent` hook gets: a committed outcome. */
export type JobEvent<A = unknown> = {
  [O in Outcome]: {
    readonly outcome: O;
    readonly args: A;
    readonly job: JobRow<StateAfter[O]>;
  } & OutcomeContext[O];
}[Outcome];

/** One registration: kind × outcome → closure, its types erased. */
export type Closure = (args: unknown, job: JobRow, context: unknown) => FollowUp;
/** One observation hook, its types erased. */
export type Hook = (event: JobEvent) => void | Promise<void>;

type TypedClosure<A, O extends Outcome> = (
  args: A,
  job: JobRow<StateAfter[O]>,
  context: OutcomeContext[O],
) => FollowUp;

/** What planning and maintenance read of a registry, whatever its kinds. */
export interface RegistryView {
  readonly kinds: Kinds;
  /** Whether this build knows a kind. */
  knows(kind: string): boolean;
  /** The closures of (kind, outcome) in the order of their registration. */
  closures(kind: string, outcome: Outcome): readonly Closure[];
  /** The hooks of a kind in the order of their registration. */
  hooks(kind: string): readonly Hook[];
  /** The kinds that have a follow-up for an outcome. */
  kindsWithFollowUp(outcome: Outcome): readonly string[];
  /** The kinds that are observed. */
  kindsWithHook(): readonly string[];
}

/**
 * Job kinds, what follows each outcome of each, and who watches. One per build, made by {@link defineRegistry}.
 *
 * Every `on…Enqueue` may be called several times for one kind: each adds one follow-up, in the order of registration. A
 * closure is synchronous and pure, and returns exactly one follow-up made with {@link Registry.enqueue}; what it throws,
 * or returns instead, stops the whole transition with nothing written (a rescue stands, and its follow-ups are tried again).
 */
export class Registry<K extends Kinds> implements RegistryView {
  readonly kinds: K;
  readonly #closures = new Map<string, Closure[]>();
  readonly #hooks = new Map<string, Hook[]>();

  constructor(kinds: K) {
    this.kinds = kinds;
  }

  /** Describes a follow-up. Nothing happens until a closure returns it. */
  readonly enqueue = <N extends keyof K & string>(
    kind: N,
    args: ArgsInput<K, N>,
    options: EnqueueOptions = {},
  ): FollowUp => ({ [FOLLOW_UP]: true, kind, args, options });

  /** A job completed: by its handler or by its callback, whose payload is `job.result`. */
  onCompletedEnqueue<N extends keyof K & string>(
    kind: N,
    closure: TypedClosure<Args<K, N>, "completed">,
  ): this {
    return this.#addClosure(kind, "completed", closure);
  }
  /** An attempt ended and the job will run again at `nextRunAt`. */
  onRetriedEnqueue<N extends keyof K & string>(kind: N, closure: TypedClosure<Args<K, N>, "retried">): this {
    return this.#addClosure(kind, "retried", closure);
  }
  /** A job failed for good: a callback said so, an error was terminal, or no attempt is left. */
  onExhaustedEnqueue<N extends keyof K & string>(
    kind: N,
    closure: TypedClosure<Args<K, N>, "exhausted">,
  ): this {
    return this.#addClosure(kind, "exhausted", closure);
  }
  /** A job was cancelled, for `reason`. */
  onCancelledEnqueue<N extends keyof K & string>(
    kind: N,
    closure: TypedClosure<Args<K, N>, "cancelled">,
  ): this {
    return this.#addClosure(kind, "cancelled", closure);
  }
  /** A job was parked; `job.callbackId` is what it waits for. */
  onWaitingForCallbackEnqueue<N extends keyof K & string>(
    kind: N,
    closure: TypedClosure<Args<K, N>, "waiting_for_callback">,
  ): this {
    return this.#addClosure(kind, "waiting_for_callback", closure);
  }
  /** Maintenance ended a lost attempt; `job.state` says whether the job was given up. */
  onRescuedEnqueue<N extends keyof K & string>(kind: N, closure: TypedClosure<Args<K, N>, "rescued">): this {
    return this.#addClosure(kind, "rescued", closure);
  }

  /**
   * Observes every outcome of a kind after its commit: best-effort, in this process, for metrics and logs. What must happen
   * belongs into a follow-up. A hook that throws harms nobody.
   */
  onEvent<N extends keyof K & string>(
    kind: N,
    hook: (event: JobEvent<Args<K, N>>) => void | Promise<void>,
  ): this {
    this.#mustKnow(kind);
    append(this.#hooks, kind, hook as Hook);
    return this;
  }

  knows(kind: string): boolean {
    return Object.hasOwn(this.kinds, kind);
  }
  closures(kind: string, outcome: Outcome): readonly Closure[] {
    return this.#closures.get(key(kind, outcome)) ?? [];
  }
  hooks(kind: string): readonly Hook[] {
    return this.#hooks.get(kind) ?? [];
  }
  kindsWithFollowUp(outcome: Outcome): readonly string[] {
    return Object.keys(this.kinds).filter((kind) => this.closures(kind, outcome).length > 0);
  }
  kindsWithHook(): readonly string[] {
    return [...this.#hooks.keys()];
  }

  #addClosure<A, O extends Outcome>(kind: string, outcome: O, closure: TypedClosure<A, O>): this {
    this.#mustKnow(kind);
    // The one place where a closure's types are erased: plan.ts gives it args that passed the kind's schema, and the job of
    // the outcome it was registered for.
    append(this.#closures, key(kind, outcome), closure as Closure);
    return this;
  }

  #mustKnow(kind: string): void {
    if (!this.knows(kind)) throw new Error(`no such job kind in this registry: ${kind}`);
  }
}

/**
 * Starts a registry.
 *
 * @param kinds each job kind (1 to 200 characters) with the schema of its args
 * @throws Error where a kind's name is empty, too long or holds a NUL character
 * @example
 * const registry = defineRegistry({ charge_card: v.object({ orderId: v.string() }), send_receipt: … });
 * registry.onCompletedEnqueue("charge_card", ({ orderId }) => registry.enqueue("send_receipt", { orderId }));
 */
export function defineRegistry<const K extends Kinds>(kinds: K): Registry<K> {
  for (const kind of Object.keys(kinds)) {
    if ([...kind].length < 1 || [...kind].length > 200 || kind.includes("\0")) {
      throw new Error(`a job kind has 1 to 200 characters and no NUL: ${JSON.stringify(kind)}`);
    }
  }
  return new Registry(kinds);
}

function key(kind: string, outcome: Outcome): string {
  return `${outcome}\0${kind}`;
}

function append<T>(map: Map<string, T[]>, name: string, item: T): void {
  const list = map.get(name);
  if (list === undefined) map.set(name, [item]);
  else list.push(item);
}
