import type { CallbackId, JobId, RunLease } from "../../src/shared/ids.ts";
import type { JobRow } from "../../src/shared/job.ts";

export const NOW = new Date("2026-01-02T03:04:05.678Z");

const fields = {
  id: "7" as JobId,
  kind: "order",
  queue: "default",
  args: { n: 1 },
  priority: 2,
  attempt: 1,
  maxAttempts: 25,
  runAt: NOW,
  runLease: "1" as RunLease,
  attemptedAt: NOW,
  createdAt: NOW,
  deadlineSeconds: null,
  errors: [],
  metadata: {},
  progress: null,
  result: null,
  tags: [],
  uniqueKey: null,
  uniqueStates: null,
  orderingKey: null,
  trigger: null,
  heartbeatAt: null,
  deadlineAt: null,
  finalizedAt: null,
  callbackId: null,
  deadLetter: null,
} as const;
const callbackId = "00000000-0000-4000-8000-000000000001" as CallbackId;

type Fields = Partial<Pick<JobRow, "attempt" | "maxAttempts" | "errors" | "args" | "kind" | "progress">>;

/** A job parked on its callback. */
export function waitingJob(other: Fields = {}): JobRow<"waiting_external"> {
  return { ...fields, ...other, state: "waiting_external", callbackId };
}

/** A running job with a registered callback. */
export function runningJob(other: Fields = {}): JobRow<"running"> {
  return { ...fields, ...other, state: "running", heartbeatAt: NOW, callbackId };
}

/** A job that has completed. */
export function completedJob(other: Fields = {}): JobRow<"completed"> {
  return { ...fields, ...other, state: "completed", finalizedAt: NOW };
}
