import { deepEqual } from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import type { JobRow } from "../../src/shared/job.ts";

const POLL_MS = 20;
const PATIENCE_MS = 10_000;

/** What the demo tells: one line a step, with the time since the story began. */
export class Timeline {
  steps = 0;
  #startedAt = performance.now();

  /** The story begins now. */
  restart(): void {
    this.#startedAt = performance.now();
  }

  chapter(title: string): void {
    console.log(`\n${title}\n`);
  }

  tell(text: string, ...details: readonly string[]): void {
    const seconds = ((performance.now() - this.#startedAt) / 1000).toFixed(2).padStart(6);
    console.log(`${seconds} s  ${text}${details.map((detail) => `\n            ${detail}`).join("")}`);
  }

  /** A step of the story: tells what was seen. @throws Error with what was expected, where something else was seen */
  see(step: string, seen: unknown, expected: unknown, ...details: readonly string[]): void {
    try {
      deepEqual(seen, expected);
    } catch {
      throw new Error(
        `The demo expected something else at "${step}".\n  expected  ${JSON.stringify(expected)}\n  seen      ${JSON.stringify(seen)}`,
      );
    }
    this.steps++;
    this.tell(`✓ ${step}`, ...details);
  }

  /** A step that takes a moment: looks again until it is seen. `details` are told of what was read last. */
  async seeSoon<T>(
    step: string,
    read: () => Promise<T>,
    view: (read: T) => unknown,
    expected: unknown,
    details: (read: T) => readonly string[] = () => [],
  ): Promise<T> {
    const untilMs = performance.now() + PATIENCE_MS;
    for (;;) {
      const found = await read();
      const isSeen = isEqual(view(found), expected);
      if (isSeen || performance.now() > untilMs) {
        this.see(step, view(found), expected, ...details(found));
        return found;
      }
      await sleep(POLL_MS);
    }
  }
}

function isEqual(a: unknown, b: unknown): boolean {
  try {
    deepEqual(a, b);
    return true;
  } catch {
    return false;
  }
}

/** A job in one line. */
export function show(job: JobRow): string {
  const link = job.trigger === null ? "" : `  ← ${job.trigger.outcome} of job ${job.trigger.jobId}`;
  return `job ${job.id}  ${job.kind}  ${job.state}  attempt ${job.attempt}/${job.maxAttempts}  queue ${job.queue}${link}`;
}
