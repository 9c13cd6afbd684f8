import pg from "pg";
import { endsWithin } from "../../src/executor/sleep.ts";
import { WAKE_UP_CHANNEL } from "../../src/shared/db/statements/insert-jobs.ts";
import { ENDED_CHANNEL } from "../../src/shared/db/statements/move-job.ts";
import { errorMessage } from "./processes.ts";

/** Who is told of what. */
export interface Listeners {
  /** Something is due in a queue. */
  readonly onWakeUp: (queue: string) => void;
  /** Somebody else has ended an attempt. */
  readonly onEnded: (jobId: string, runLease: string) => void;
  /** Notifications may have been missed: the connection is there again. */
  readonly onReconnect: () => void;
  /** The connection was lost, or couldn't be made. */
  readonly onLost: (reason: string) => void;
}

const MIN_PAUSE_MS = 200;
const MAX_PAUSE_MS = 10_000;
/** For the goodbye to a server, in milliseconds: one that is gone without a word never answers it. */
const CLOSE_TIMEOUT_MS = 1_000;

/**
 * Listens to the notifications of a database, on a connection of its own, which is made again whenever it is lost. They are hints:
 * whoever listens has to poll as well.
 *
 * @param config how to connect, with a time-out: directly, as a pooler in transaction mode delivers no notifications
 * @returns how to stop
 */
export function listen(config: pg.ClientConfig, listeners: Listeners): () => Promise<void> {
  let client: pg.Client | null = null;
  let retry: ReturnType<typeof setTimeout> | null = null;
  let pauseMs = MIN_PAUSE_MS;
  let isStopped = false;
  let wasConnected = false;

  async function connect(): Promise<void> {
    const mine = new pg.Client({ ...config, keepAlive: true });
    client = mine;
    mine.on("error", () => undefined); // "end" follows
    mine.on("end", () => {
      if (client === mine) again("the connection was closed");
    });
    mine.on("notification", ({ channel, payload = "" }) => {
      if (channel === WAKE_UP_CHANNEL) listeners.onWakeUp(payload);
      const [jobId = "", runLease = ""] = payload.split(" ");
      if (channel === ENDED_CHANNEL) listeners.onEnded(jobId, runLease);
    });
    try {
      await mine.connect();
      await mine.query(`LISTEN ${WAKE_UP_CHANNEL}; LISTEN ${ENDED_CHANNEL}`);
      pauseMs = MIN_PAUSE_MS;
      if (wasConnected) listeners.onReconnect();
      wasConnected = true;
    } catch (thrown) {
      if (client === mine) again(errorMessage(thrown));
      await mine.end().catch(() => undefined);
    }
  }

  function again(reason: string): void {
    client = null;
    if (isStopped) return;
    listeners.onLost(reason);
    retry = setTimeout(() => void connect(), pauseMs);
    pauseMs = Math.min(pauseMs * 2, MAX_PAUSE_MS);
  }

  void connect();
  return async () => {
    isStopped = true;
    if (retry !== null) clearTimeout(retry);
    const last = client;
    client = null;
    const closed = last?.end().catch(() => undefined);
    if (closed !== undefined) await endsWithin(closed, CLOSE_TIMEOUT_MS);
  };
}
