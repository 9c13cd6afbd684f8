import { type ChildProcess, spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

/** Whether a process with this id exists, whoever owns it. */
export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (thrown) {
    return errorCode(thrown) === "EPERM";
  }
}

/**
 * Whether a process id that was read from a file still names the program that wrote it. Ids are given out again, after
 * a restart of the machine or in a container all the time; where the command line can't be read, alive has to do.
 */
export function isStill(program: string, pid: number): boolean {
  if (!isAlive(pid)) return false;
  const command = commandLine(pid);
  return command === null || command.includes(program);
}

/**
 * Waits until a process is gone.
 *
 * @param timeoutMs how long to wait, in milliseconds
 * @returns whether it is gone
 */
export async function waitForExit(
  pid: number,
  timeoutMs: number,
  isGone: () => boolean = () => false,
): Promise<boolean> {
  const deadline = Date.now() + timeoutMs;
  while (isAlive(pid) && !isGone()) {
    if (Date.now() > deadline) return false;
    await sleep(20);
  }
  return true;
}

/** A child's exit code, `null` where a signal ended it. @throws Error where it couldn't be started at all */
export function exitOf(child: ChildProcess): Promise<number | null> {
  return new Promise((resolve, reject) => {
    child.once("error", reject);
    child.once("close", resolve);
  });
}

/** The last lines of a program's output. */
export function tail(output: string, lines = 20): string {
  return output.trimEnd().split("\n").slice(-lines).join("\n");
}

/** The `code` of a system error or a database error, where there is one. */
export function errorCode(thrown: unknown): string | undefined {
  const code: unknown = thrown instanceof Error ? Reflect.get(thrown, "code") : undefined;
  return typeof code === "string" ? code : undefined;
}

/** What went wrong, in one sentence. Node reports a connection tried over several addresses with an empty message. */
export function errorMessage(thrown: unknown): string {
  if (thrown instanceof AggregateError && thrown.message === "")
    return thrown.errors.map(errorMessage).join("; ");
  return thrown instanceof Error ? thrown.message : String(thrown);
}

function commandLine(pid: number): string | null {
  if (process.platform === "win32") return null;
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8").replaceAll("\0", " ");
  } catch {
    const { status, stdout } = spawnSync("ps", ["-o", "command=", "-p", String(pid)], { encoding: "utf8" });
    return status === 0 ? stdout : null;
  }
}
