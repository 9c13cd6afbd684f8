import type { StandardSchemaV1 } from "@standard-schema/spec";
import type { JobState } from "../job.ts";
import { type Json, type JsonObject, whyUnstorable } from "../json.ts";
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

/**
 * Checks a job before it is enqueued: its kind, its args against the kind's schema, its options against the table's
 * constraints. A violation found here costs nothing; found by Postgres it would roll the whole transition back.
 *
 * Args are stored as they were given, not as the schema puts them out: they pass the schema again when they are read.
 *
 * @param now decides the period of a unique key
 * @returns the insert, or why it can't be, without quoting any value
 */
export function checkJobInsert(
  kinds: Kinds,
  job: { readonly kind: string; readonly args: unknown; readonly options: EnqueueOptions },
  now: Date,
): Result<JobInsert, string> {
  const schema = Object.hasOwn(kinds, job.kind) ? kinds[job.kind] : undefined;
  if (schema === undefined) return err("its kind isn't in the registry");
  const args = job.args;
  const unstorable = whyUnstorable(args, "args");
  if (unstorable !== null) return err(unstorable);
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
  if (wrong !== null) return err(wrong);

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
 * @returns the schema's output, or which fields don't fit, by path and without their values
 */
export function decodeArgs(schema: StandardSchemaV1, args: unknown): Result<unknown, string> {
  const result = schema["~standard"].validate(args);
  if (result instanceof Promise) return err("the schema of its args is asynchronous");
  if (result.issues === undefined) return ok(result.value);
  const paths = result.issues.map(
    ({ path = [] }) =>
      path.map((part) => String(typeof part === "object" ? part.key : part)).join(".") || "(whole)",
  );
  return err(`its args don't fit the kind's schema, at ${[...new Set(paths)].slice(0, 5).join(", ")}`);
}

/** JSON's own view of a value that `whyUnstorable` let pass: without the properties that are `undefined`. */
function plainCopy(value: unknown): Json {
  return JSON.parse(JSON.stringify(value)) as Json;
}
