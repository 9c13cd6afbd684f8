import { DatabaseError } from "../db/errors.ts";
import type { Database } from "../db/port.ts";
import { extendIfPending } from "../db/statements/extend-callback.ts";
import type { CallbackId, JobId } from "../ids.ts";
import type { JobState } from "../job.ts";

/** What a heartbeat came to. */
export type Extended =
  | { readonly status: "extended"; readonly jobId: JobId; readonly state: JobState }
  | { readonly status: "not_found" }
  | { readonly status: "already_resolved" }
  | { readonly status: "gone"; readonly how: "expired" | "superseded" | "cancelled" };

const MAX_ROUNDS = 3;

/**
 * Puts off a callback's time-out to `timeoutSeconds` from now. One statement; safe to repeat.
 *
 * @param timeoutSeconds 0 to 31,536,000, checked by the caller
 * @throws DatabaseError where the database failed
 */
export async function extendCallback(
  database: Database,
  id: CallbackId,
  timeoutSeconds: number,
): Promise<Extended> {
  for (let round = 1; round <= MAX_ROUNDS; round++) {
    const extension = await database.query(extendIfPending(id, timeoutSeconds));
    if (extension === null) return { status: "not_found" };
    if (extension.extendedIn !== null) {
      return { status: "extended", jobId: extension.jobId, state: extension.extendedIn };
    }
    switch (extension.found) {
      case "pending":
        continue; // resolved between the statement's snapshot and its write: look again
      case "expired":
      case "superseded":
      case "cancelled":
        return { status: "gone", how: extension.found };
      default:
        return { status: "already_resolved" };
    }
  }
  throw new DatabaseError("contended", null);
}
