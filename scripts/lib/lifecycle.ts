import { errorMessage } from "./processes.ts";

/** What a script that starts things and stays is given. */
export interface Scope {
  /** Aborted as soon as the script is to end. */
  readonly signal: AbortSignal;
  /** Registers what has to be stopped in the end; last in, first out. */
  defer(stop: () => Promise<void> | void): void;
  /** Ends the script, because something it needs is gone. */
  fail(message: string): void;
}

/** What becomes of what nobody took care of. */
export interface Strays {
  /** Told of a rejection. Default: it ends the script, with its message. */
  readonly onRejection?: (thrown: unknown) => void;
  /** An exception ends the script: says what is printed of it. Default: its message. */
  readonly describeException?: (thrown: unknown) => string;
}

/**
 * Runs a script until Ctrl-C, SIGTERM, or something fails; then stops everything that it started, and ends this process:
 * with exit code 0 where that was asked for, 1 where something failed.
 */
export function runUntilStopped(start: (scope: Scope) => Promise<void>, strays: Strays = {}): Promise<never> {
  return run(start, false, strays);
}

/** Like {@link runUntilStopped}, for a script that ends by itself when it has done its work. */
export function runToEnd(work: (scope: Scope) => Promise<void>): Promise<never> {
  return run(work, true, {});
}

async function run(
  start: (scope: Scope) => Promise<void>,
  endsByItself: boolean,
  { onRejection, describeException = errorMessage }: Strays,
): Promise<never> {
  const stops: (() => Promise<void> | void)[] = [];
  const ending = new AbortController();
  let exitCode = 0;

  function fail(thrown: unknown): void {
    // What fails because everything is being stopped isn't news.
    if (ending.signal.aborted) return;
    console.error(errorMessage(thrown));
    exitCode = 1;
    ending.abort();
  }
  // Once from the terminal and once more from npm: the second must not cut the first short.
  for (const name of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(name, () => ending.abort());
  process.on("uncaughtException", (thrown) => fail(describeException(thrown)));
  process.on("unhandledRejection", onRejection ?? fail);

  const orphaned = watchParent(() => ending.abort());
  const ended = new Promise<void>((resolve) => ending.signal.addEventListener("abort", () => resolve()));
  try {
    await start({ signal: ending.signal, defer: (stop) => stops.push(stop), fail });
    if (endsByItself) ending.abort();
  } catch (thrown) {
    // Ctrl-C reaches our children too, and the end of one may be heard of before the signal: let that come first.
    await new Promise((resolve) => setImmediate(resolve));
    fail(thrown);
  }
  await ended;
  clearInterval(orphaned);

  for (const stop of stops.reverse()) {
    try {
      await stop();
    } catch (thrown) {
      console.error(errorMessage(thrown));
      exitCode = 1;
    }
  }
  process.exit(exitCode);
}

const PARENT_POLL_MS = 500;

/**
 * npm runs a script through a shell, and a SIGTERM to npm ends the two of them and never reaches the script: it is left to itself, and
 * takes that for the signal.
 */
function watchParent(onGone: () => void): ReturnType<typeof setInterval> | undefined {
  if (process.env.npm_lifecycle_event === undefined) return undefined;
  const parent = process.ppid;
  return setInterval(() => {
    if (process.ppid !== parent) onGone();
  }, PARENT_POLL_MS);
}
