import type { StandardSchemaV1 } from "@standard-schema/spec";
import type { JobState } from "../job.ts";
import { type Json, type JsonObject, storableText, whyUnstorable } from "../json.ts";
import { err, ok, type Result } from "../result.ts";
import { uniqueKey } from "../unique-key.ts";
import type { EnqueueOptions } from "./follow-up.ts";
import type { Kinds } from "./kinds.ts";
import {
  whyNoDeadline,
  whyNoInteger,
  whyNoName,
  whyNoObject,
  whyNoTags,
  whyNoTime,
  whyNotUnique,
} from "./options.ts";

/** A job to be inserted, checked: every constraint of the table holds. */
export interface JobInsert {
  readonly kind: string;
  readonly queue: string;
  readonly args: Json;
  readonly priority: number;
  readonly maxAttempts: number;
  /** `null`: at once. */
  readonly runAt: Date | null;
  readonly metadata: JsonObject;
  readonly tags: readonly string[];
  readonly uniqueKey: string | null;
  readonly uniqueStates: readonly JobState[] | null;
  readonly deadlineSeconds: number | null;
  readonly orderingKey: string | null;
}

export const DEFAULT_QUEUE = "default";
export const DEFAULT_PRIORITY = 2;
export const DEFAULT_MAX_ATTEMPTS = 25;

/** Why a job can't be enqueued or run. */
export interface Fault {
  /** Quotes nothing of the job: it may be logged. */
  readonly reason: string;
  /** Which fields it is about: not for the log, as their names are the keys of args. `null`: there are none to name. */
  readonly detail: string | null;
}

/** Says all of a fault, for whoever the args are no secret to, and for the job's own record. */
export function inFull({ reason, detail }: Fault): string {
  // A schema may name a field as it likes.
  return storableText(detail === null ? reason : `${reason}: ${detail}`);
}

/** As {@link examineJobInsert}; the error is the fault in full. */
export function checkJobInsert(...job: Parameters<typeof examineJobInsert>): Result<JobInsert, string> {
  const examined = examineJobInsert(...job);
  return examined.ok ? examined : err(inFull(examined.error));
}

/**
 * Checks a job before it is enqueued: its kind, its args against the kind's schema, its options against the table's
 * constraints. A violation found here costs nothing; found by Postgres it would roll the whole transition back.
 *
 * Args are stored as they were given, not as the schema puts them out: they pass the schema again when they are read.
 *
 * @param now decides the period of a unique key
 * @returns the insert, or why it can't be, without quoting any value
 */
export function examineJobInsert(
  kinds: Kinds,
  job: { readonly kind: string; readonly args: unknown; readonly options: EnqueueOptions },
  now: Date,
): Result<JobInsert, Fault> {
  const schema = Object.hasOwn(kinds, job.kind) ? kinds[job.kind] : undefined;
  if (schema === undefined) return fault("its kind isn't in the registry");
  const args = job.args;
  const unstorable = whyUnstorable(args, "args");
  if (unstorable !== null) return fault(unstorable);
  const decoded = decodeArgs(schema, args);
  if (!decoded.ok) return decoded;

  const {
    queue = DEFAULT_QUEUE,
    priority = DEFAULT_PRIORITY,
    maxAttempts = DEFAULT_MAX_ATTEMPTS,
  } = job.options;
  const { metadata = {}, tags = [], unique = false, runAt, deadlineSeconds, orderingKey } = job.options;
  const wrong =
    whyNoName(queue, "queue") ??
    whyNoInteger(priority, "priority", 1, 4) ??
    whyNoInteger(maxAttempts, "maxAttempts", 1, 1000) ??
    whyNoObject(metadata, "metadata") ??
    whyNoTags(tags) ??
    (runAt === undefined ? null : whyNoTime(runAt, "runAt")) ??
    (deadlineSeconds === undefined ? null : whyNoDeadline(deadlineSeconds)) ??
    (orderingKey === undefined ? null : whyNoName(orderingKey, "orderingKey")) ??
    whyNotUnique(unique);
  if (wrong !== null) return fault(wrong);

  const kind = job.kind;
  const stored = plainCopy(args);
  const key =
    unique === false ? null : uniqueKey({ kind, queue, args: stored }, unique === true ? {} : unique, now);
  return ok({
    kind,
    queue,
    args: stored,
    priority,
    maxAttempts,
    runAt: runAt ?? null,
    metadata,
    tags,
    uniqueKey: key?.key ?? null,
    uniqueStates: key?.states ?? null,
    deadlineSeconds: deadlineSeconds ?? null,
    orderingKey: orderingKey ?? null,
  });
}

/**
 * Runs stored args through their kind's schema.
 *
 * @returns the schema's output, or that they don't fit, with the paths of the fields and without their values
 */
export function decodeArgs(schema: StandardSchemaV1, args: unknown): Result<unknown, Fault> {
  const result = schema["~standard"].validate(args);
  if (result instanceof Promise) return fault("the schema of its args is asynchronous");
  if (result.issues === undefined) return ok(result.value);
  const paths = result.issues.map(
    ({ path = [] }) =>
      path.map((part) => String(typeof part === "object" ? part.key : part)).join(".") || "(whole)",
  );
  return fault("its args don't fit the kind's schema", `at ${[...new Set(paths)].slice(0, 5).join(", ")}`);
}

function fault(reason: string, detail: string | null = null): Result<never, Fault> {
  return err({ reason, detail });
}

/** JSON's own view of a value that `whyUnstorable` let pass: without the properties that are `undefined`. */
function plainCopy(value: unknown): Json {
  return JSON.parse(JSON.stringify(value)) as Json;
}
