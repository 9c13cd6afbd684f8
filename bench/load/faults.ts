import type { Fault } from "../../scripts/lib/neon-journal.ts";
import type { SqlRequest } from "../../scripts/lib/neon-request.ts";
import { MOVE_SQL } from "../../src/shared/db/statements/move-job.ts";
import { readCallback } from "../../src/shared/db/statements/read-callback.ts";
import { readDelivery } from "../../src/shared/db/statements/read-delivery.ts";
import { newCallbackId } from "../../src/shared/ids.ts";

/** The connection breaks before anything ran, or after the commit; or the server answers that it failed. */
const KINDS: readonly Fault[] = ["cut-before", "cut-after", { status: 500 }];

const READ_CALLBACK = readCallback(newCallbackId()).text;
const READ_DELIVERY = readDelivery("", "", null).text;

/** Has some of the Worker's requests to the database fail, and keeps count of what they were for. */
export class Faults {
  #share: number;
  /** All that failed. */
  count = 0;
  /** Of those, how many were sent for receiving what a sender sent, by callback. */
  readonly ofReceiving = new Map<string, number>();
  /** Requests that were sent for receiving, those included that failed. */
  receiving = 0;

  /** @param share of the requests, 0 to 1 */
  constructor(share: number) {
    this.#share = share;
  }

  /** Nothing fails any more. */
  stop(): void {
    this.#share = 0;
  }

  of(request: SqlRequest): Fault | undefined {
    const callbackId = receivedFor(request);
    if (callbackId !== null) this.receiving++;
    if (Math.random() >= this.#share) return undefined;
    if (callbackId !== null) {
      this.ofReceiving.set(callbackId, (this.ofReceiving.get(callbackId) ?? 0) + 1);
    }
    return KINDS[this.count++ % KINDS.length];
  }
}

/** The callback for which receiving sends this to the database: to read it, or to move its job; `null`: somebody else sends it. */
function receivedFor({ statements: [statement] }: SqlRequest): string | null {
  if (statement === undefined) return null;
  const { text, values } = statement;
  if (text === READ_CALLBACK) return String(values[0]);
  if (text === READ_DELIVERY) return String(values[2]);
  // Only a callback moves a job that waits.
  return text.startsWith(MOVE_SQL) && values[1] === "waiting_external" ? String(values[3]) : null;
}
