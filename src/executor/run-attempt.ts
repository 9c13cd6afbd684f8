import { type AttemptEnd, WAITED_WITHOUT_CALLBACK } from "../shared/end-attempt.ts";
import { storableText, whyUnstorable, whyUnstorableText } from "../shared/json.ts";
import { type HandlerOutcome, TerminalError } from "../shared/registry/handler.ts";
import { decodeArgs, inFull } from "../shared/registry/job-insert.ts";
import { runHooks, runStartedHooks } from "../shared/registry/plan.ts";
import { err, ok, type Result } from "../shared/result.ts";
import { messageOf, nameOf } from "../shared/thrown.ts";
import type { Attempt } from "./attempt.ts";
import type { ExecutorDeps } from "./deps.ts";
import { type Finished, finishAttempt } from "./finish-attempt.ts";
import { handlerContext } from "./handler-context.ts";

/** The longest pause that a handler may ask for, in seconds: a year. */
const MAX_PAUSE_SECONDS = 31_536_000;
const SECONDS = `0 to ${MAX_PAUSE_SECONDS} seconds`;

/**
 * Runs one claimed job: its handler, and then the guarded statement that ends the attempt. Reports it in the log and to the hooks.
 *
 * Never rejects: what a handler throws ends its attempt. `null`: a fault of our own, logged; the job will be rescued.
 */
export async function runAttempt(deps: ExecutorDeps, attempt: Attempt): Promise<Finished | null> {
  const { registry, log, defer } = deps;
  const { id: jobId, kind } = attempt.job;
  const reportHook = (reason: string) => log({ level: "warn", event: "hook_failed", jobId, kind, reason });
  const isObserved = registry.hooks(kind).length > 0;
  if (isObserved) defer(runStartedHooks(registry, attempt.job, reportHook));

  const finished = await runToItsEnd(deps, attempt).catch((thrown: unknown) => {
    const reason = `unexpected ${nameOf(thrown)}: the job will be rescued`;
    log({ level: "error", event: "attempt", jobId, kind, reason });
    attempt.abort("lease_lost");
    return null;
  });
  if (finished === null) return null;
  note(deps, attempt, finished);
  if (isObserved && finished.status === "moved" && finished.move.ended !== null) {
    defer(runHooks(registry, finished.move.ended, reportHook, Math.round(attempt.durationMs)));
  }
  return finished;
}

async function runToItsEnd(deps: ExecutorDeps, attempt: Attempt): Promise<Finished> {
  let suspend: (finished: Finished) => void = () => undefined;
  const suspended = new Promise<Finished>((resolve) => {
    suspend = resolve;
  });
  const ran = handle(deps, attempt, suspend).then((end) => finish(deps, attempt, end));
  const finished = await Promise.race([suspended, ran]);
  // Whatever the handler has left running can stop.
  attempt.abort(finished.status === "moved" ? "ended" : "lease_lost");
  return finished;
}

/** Runs the handler, up to how it ends its attempt. A handler that is suspended never comes to an end. */
async function handle(
  deps: ExecutorDeps,
  attempt: Attempt,
  suspend: (finished: Finished) => void,
): Promise<AttemptEnd> {
  const { registry } = deps;
  const { kind, args } = attempt.job;
  const handler = registry.handler(kind);
  const schema = registry.kinds[kind];
  if (handler === undefined || schema === undefined) {
    return { type: "fail_terminally", error: `unknown job kind: ${kind}`, reason: "terminal_error" };
  }
  const decoded = decodeSafely(schema, structuredClone(args));
  if (!decoded.ok) {
    const error = `failed to deserialize args: ${decoded.error}`;
    return { type: "fail_terminally", error, reason: "terminal_error" };
  }
  try {
    return endOf(await handler.run(handlerContext(deps, attempt, decoded.value, suspend)), attempt);
  } catch (thrown) {
    return failureOf(thrown, attempt);
  }
}

function decodeSafely(...[schema, args]: Parameters<typeof decodeArgs>): Result<unknown, string> {
  try {
    const decoded = decodeArgs(schema, args);
    return decoded.ok ? decoded : err(inFull(decoded.error));
  } catch (thrown) {
    return err(`the kind's schema threw ${nameOf(thrown)}`);
  }
}

async function finish(deps: ExecutorDeps, attempt: Attempt, end: AttemptEnd): Promise<Finished> {
  const finished = await finishAttempt(deps, attempt, end);
  // The callback was resumed before the job was parked: the handler is to go on at once.
  return finished.status === "resumed_early" ? finishAttempt(deps, attempt, { type: "hand_back" }) : finished;
}

/** What a handler's return value asks for. Typed handlers can't get it wrong; what slips through fails the attempt. */
function endOf(returned: unknown, attempt: Attempt): AttemptEnd {
  if (returned === undefined) return { type: "complete", result: null };
  const checked = check(returned, attempt);
  return checked.ok ? checked.value : { type: "fail", error: checked.error };
}

function check(returned: unknown, { callbackId }: Attempt): Result<AttemptEnd, string> {
  if (!isOutcome(returned)) return err("the handler returned something that is no outcome");
  switch (returned.type) {
    case "complete": {
      const wrong = whyUnstorable(returned.result, "the handler's result");
      return wrong === null ? ok({ type: "complete", result: returned.result }) : err(wrong);
    }
    case "retry_after":
      return pause(returned.seconds) && typeof returned.error === "string"
        ? ok({ type: "retry_after", seconds: returned.seconds, error: storableText(returned.error) })
        : err(`retryAfter takes ${SECONDS}`);
    case "snooze":
      return pause(returned.seconds)
        ? ok({ type: "snooze", seconds: returned.seconds })
        : err(`snooze takes ${SECONDS}`);
    case "cancel":
      return typeof returned.reason === "string" && whyUnstorableText(returned.reason, "reason") === null
        ? ok({ type: "cancel", reason: returned.reason })
        : err("cancel takes a reason that can be stored");
    case "wait_for_callback":
      return ok(
        callbackId === null
          ? {
              type: "fail_terminally",
              error: WAITED_WITHOUT_CALLBACK,
              reason: "wait_for_callback_contract_violation",
            }
          : { type: "wait", callbackId },
      );
    default:
      return err("the handler returned an unknown outcome");
  }
}

function pause(seconds: number): boolean {
  return seconds >= 0 && seconds <= MAX_PAUSE_SECONDS;
}

function isOutcome(returned: unknown): returned is HandlerOutcome {
  return typeof returned === "object" && returned !== null && "type" in returned;
}

function failureOf(thrown: unknown, { abortCause }: Attempt): AttemptEnd {
  // It stopped because it was told to, as the process ends: that is no failure of the job.
  if (abortCause === "shutdown") return { type: "hand_back" };
  const error = messageOf(thrown);
  if (thrown instanceof TerminalError) return { type: "fail_terminally", error, reason: "terminal_error" };
  // Whatever it threw when it was told to stop, this is why.
  return { type: "fail", error: abortCause === "deadline_exceeded" ? "hard deadline exceeded" : error };
}

/** One line an attempt. What a handler threw or returned isn't in it: it stands in the job. */
function note({ registry, log }: ExecutorDeps, attempt: Attempt, finished: Finished): void {
  const { id: jobId, kind, queue, attempt: number } = attempt.job;
  const line = {
    event: "attempt",
    jobId,
    kind,
    queue,
    attempt: number,
    durationMs: Math.round(attempt.durationMs),
  };
  switch (finished.status) {
    case "moved": {
      const { move, followUps, deduplicated } = finished;
      const outcome = move.ended?.outcome ?? null;
      const failed = outcome === "retried" || outcome === "exhausted";
      const followUpIds = followUps.map((followUp) => followUp.id);
      log({
        ...line,
        level: failed ? "warn" : "info",
        outcome,
        state: move.job.state,
        followUpIds,
        deduplicated,
      });
      break;
    }
    case "lost": {
      const reason = `its end couldn't be written (${finished.error.message}): it will be rescued`;
      log({ ...line, level: "error", sqlState: finished.error.sqlState, reason });
      break;
    }
    case "stale":
    case "resumed_early":
      log({ ...line, level: "warn", reason: "stale: somebody else had ended the attempt" });
  }
  if (registry.handler(kind) === undefined) {
    const drift = "this build runs the queue and has no handler for the kind: the job failed";
    log({ level: "warn", event: "registry_drift", jobId, kind, reason: drift });
  }
}
