import type { StandardSchemaV1 } from "@standard-schema/spec";
import type { JobRow } from "../job.ts";
import type { Outcome, OutcomeContext } from "../outcome.ts";
import type { RuleEngine } from "../rules.ts";
import { type EnqueueOptions, FOLLOW_UP, type FollowUp } from "./follow-up.ts";
import type { Handler, HandlerOptions, QueueOptions, RegisteredHandler, RegisteredQueue } from "./handler.ts";
import type { Kinds } from "./kinds.ts";
import { whyNoDeadline, whyNoInteger, whyNoName } from "./options.ts";
import { checkPeriodic, type PeriodicOptions, type RegisteredSchedule } from "./periodic.ts";
import { checkSource, type RegisteredSource, type SourceOptions } from "./source.ts";

export type { Kinds } from "./kinds.ts";

/** Jobs of one queue that one process runs at the same time, where the registry doesn't say. */
const DEFAULT_CONCURRENCY = 10;

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

/** What an `onEvent` hook gets: a committed outcome, or that an attempt was claimed and starts. */
export type JobEvent<A = unknown> =
  | { readonly type: "started"; readonly args: A; readonly job: JobRow<"running"> }
  | {
      [O in Outcome]: {
        readonly type: O;
        readonly args: A;
        readonly job: JobRow<StateAfter[O]>;
      } & OutcomeContext[O] &
        (O extends "completed" ? { readonly durationMs: number } : unknown);
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
  /** What runs the jobs of a kind; `undefined` where this build has nothing. */
  handler(kind: string): RegisteredHandler | undefined;
  /** The longest that one attempt may run, in seconds, by kind. */
  kindDeadlines(): Readonly<Record<string, number>>;
  /** The queues that this build runs, in the order of their registration. */
  queues(): readonly RegisteredQueue[];
  /** The periodic jobs of this build, in the order of their registration. */
  schedules(): readonly RegisteredSchedule[];
  /** What rules of callbacks are evaluated with; `null`: this build has none. */
  ruleEngine(): RuleEngine | null;
  /** A source of webhooks by its name; `undefined` where this build has none of that name. */
  source(name: string): RegisteredSource | undefined;
  /** The sources of webhooks of this build, in the order of their registration. */
  sources(): readonly RegisteredSource[];
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
  readonly #handlers = new Map<string, RegisteredHandler>();
  readonly #queues = new Map<string, RegisteredQueue>();
  readonly #schedules = new Map<string, RegisteredSchedule>();
  readonly #sources = new Map<string, RegisteredSource>();
  #ruleEngine: RuleEngine | null = null;

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

  /**
   * Says what runs the jobs of a kind.
   *
   * @throws Error where the kind has a handler already, or the deadline isn't above 0 and at most 31,536,000 seconds
   */
  handle<N extends keyof K & string>(
    kind: N,
    handler: Handler<Args<K, N>>,
    options: HandlerOptions = {},
  ): this {
    this.#mustKnow(kind);
    if (this.#handlers.has(kind)) throw new Error(`the kind has a handler already: ${kind}`);
    mustBeDeadline(options.deadlineSeconds);
    this.#handlers.set(kind, { ...options, run: handler as Handler });
    return this;
  }

  /**
   * Makes the build run a queue: every job that is due in it, of whatever kind. A job whose kind has no handler here fails for good.
   *
   * @throws Error where the name isn't 1 to 200 characters, the queue was registered before, or an option is out of range
   */
  queue(queue: string, { concurrency = DEFAULT_CONCURRENCY, deadlineSeconds }: QueueOptions = {}): this {
    const wrong = whyNoName(queue, "queue") ?? whyNoInteger(concurrency, "concurrency", 1, 1000);
    if (wrong !== null) throw new Error(wrong);
    if (this.#queues.has(queue)) throw new Error(`the queue is registered already: ${queue}`);
    mustBeDeadline(deadlineSeconds);
    this.#queues.set(queue, { queue, concurrency, deadlineSeconds: deadlineSeconds ?? null });
    return this;
  }

  /**
   * Enqueues a job whenever a cron expression fires: once for each fire, by the first tick that comes after it. Fires count from
   * the first tick that knows the name; a later build may change all the rest of it.
   *
   * @param name 1 to 200 characters: the identity of the schedule over builds, and what pauses, resumes and triggers it
   * @param expression five parts, or six with seconds first, in the local time of the zone
   * @param followUp what each fire enqueues, without `runAt`; a fire whose unique key is taken counts as done
   * @throws Error where the name is taken or wrong, the expression or zone is, or the job can't be enqueued
   * @example
   * registry.periodic("nightly_report", "0 3 * * *", enqueue("send_report", {}), { timezone: "Europe/Vienna" });
   */
  periodic(name: string, expression: string, followUp: FollowUp, options: PeriodicOptions = {}): this {
    if (this.#schedules.has(name)) throw new Error(`the periodic job is registered already: ${name}`);
    const checked = checkPeriodic(this.kinds, name, expression, followUp, options);
    if (!checked.ok) throw new Error(`periodic job ${name}: ${checked.error}`);
    this.#schedules.set(name, checked.value);
    return this;
  }

  /**
   * Accepts the webhooks of a provider, at `/webhooks/<name>` and `/webhooks/<name>/<callback id>`.
   *
   * @param name 1 to 200 letters, digits and . _ ~ -: it stands in the URL, and in the database beside every delivery
   * @throws Error where the name is taken or wrong, or something in the options is
   * @example
   * registry.webhook("github", { scheme: github(), secret: "GITHUB_WEBHOOK_SECRET", headers: ["x-github-event"],
   *   payload: v.object({ … }), callback: ({ payload }) => ({ correlationKey: … }), meaning: ({ payload }) => … });
   */
  webhook<S extends StandardSchemaV1>(name: string, options: SourceOptions<S>): this {
    if (this.#sources.has(name)) throw new Error(`the source is registered already: ${name}`);
    const checked = checkSource(name, options);
    if (!checked.ok) throw new Error(`source ${name}: ${checked.error}`);
    this.#sources.set(name, checked.value);
    return this;
  }

  /** Lets callbacks have rules: `registry.withRules(celRules)`, with `celRules` from src/shared/cel-rules.ts. */
  withRules(engine: RuleEngine): this {
    this.#ruleEngine = engine;
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
  handler(kind: string): RegisteredHandler | undefined {
    return this.#handlers.get(kind);
  }
  kindDeadlines(): Readonly<Record<string, number>> {
    const deadlines: Record<string, number> = {};
    for (const [kind, { deadlineSeconds }] of this.#handlers) {
      if (deadlineSeconds !== undefined) deadlines[kind] = deadlineSeconds;
    }
    return deadlines;
  }
  queues(): readonly RegisteredQueue[] {
    return [...this.#queues.values()];
  }
  schedules(): readonly RegisteredSchedule[] {
    return [...this.#schedules.values()];
  }
  ruleEngine(): RuleEngine | null {
    return this.#ruleEngine;
  }
  source(name: string): RegisteredSource | undefined {
    return this.#sources.get(name);
  }
  sources(): readonly RegisteredSource[] {
    return [...this.#sources.values()];
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

function mustBeDeadline(seconds: number | undefined): void {
  const wrong = seconds === undefined ? null : whyNoDeadline(seconds);
  if (wrong !== null) throw new Error(wrong);
}

function key(kind: string, outcome: Outcome): string {
  return `${outcome}\0${kind}`;
}

function append<T>(map: Map<string, T[]>, name: string, item: T): void {
  const list = map.get(name);
  if (list === undefined) map.set(name, [item]);
  else list.push(item);
}
