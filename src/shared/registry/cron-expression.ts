import { Cron } from "croner";
import { err, ok, type Result } from "../result.ts";
import { messageOf } from "../thrown.ts";

/**
 * The times at which an expression fires, each a whole second.
 *
 * Where a zone's clock jumps forward, an expression of one time of day (single values as second, minute and hour) that falls into the
 * gap fires right after it, and any other leaves the gap out. Where the clock goes back, one of one time of day fires at the first
 * of the two occurrences, and any other at both.
 */
export interface CronExpression {
  /** The first fire after an instant; `null` where there is none any more. */
  firstAfter(instant: Date): Date | null;
  /** The last fire at an instant or before it; `null` where there was none. */
  lastUpTo(instant: Date): Date | null;
}

/**
 * Parses a cron expression of five parts (minute, hour, day of the month, month, day of the week) or six (second first), or a
 * nickname such as `@daily`. Syntax: https://croner.56k.guru/usage/pattern/
 *
 * @param timezone an IANA zone; the expression is in its local time
 * @returns when it fires, or why it never could
 */
export function parseCronExpression(expression: string, timezone: string): Result<CronExpression, string> {
  let cron: Cron;
  try {
    cron = new Cron(expression, { mode: "5-or-6-parts", timezone });
  } catch (thrown) {
    return err(`the expression is wrong: ${messageOf(thrown)}`);
  }
  // croner takes a date as well, for something that happens once.
  if (cron.getOnce() !== null) return err("the expression is a date, which isn't periodic");
  let first: Date | null;
  try {
    first = cron.nextRun(new Date(0));
  } catch {
    return err("timezone isn't an IANA zone that this runtime knows");
  }
  if (first === null) return err("the expression never fires");
  return ok({
    firstAfter: (instant) => cron.nextRun(instant),
    // croner looks for the fires before an instant.
    lastUpTo: (instant) => cron.previousRuns(1, new Date(instant.getTime() + 1))[0] ?? null,
  });
}
