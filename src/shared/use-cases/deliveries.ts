import type { Database } from "../db/port.ts";
import {
  DELIVERY_PAGE_ROWS,
  type DeliveryFilter,
  readDeliveries,
  readDeliveryRow,
} from "../db/statements/manage-deliveries.ts";
import { DELIVERY_STATES, type DeliveryRow, type DeliveryState } from "../delivery.ts";
import type { RegistryView } from "../registry/define.ts";
import { whyNoInteger } from "../registry/options.ts";
import { receiveAgain } from "./receive-again.ts";
import type { Receipt } from "./receive-delivery.ts";
import type { Moved } from "./resolve-callback.ts";

/** Which deliveries to list. */
export interface DeliveryQuery extends DeliveryFilter {
  /** 1 to 1000. Default 100. */
  readonly limit?: number;
  /** The `next` of the page before. */
  readonly after?: string;
}

/** What a replay came to. */
export type Replay =
  | Receipt
  | { readonly status: "not_found" }
  /** It has had its effect: it isn't to have it twice. */
  | { readonly status: "already_resolved" };

/** What replaying several came to, by the status of each. */
export type Replays = Readonly<Partial<Record<Receipt["status"], number>>>;

const DEFAULT_LIMIT = 100;
const MAX_LIMIT = 1000;
const ID = /^[0-9]{1,18}$/;

/**
 * What an operator does with deliveries: the inbox of webhooks. Each method rejects with a DatabaseError where the database failed, and
 * with an Error that says what is wrong where an argument can't be.
 *
 * @param afterMove told of each job that a replay moved
 */
export function deliveriesOf(database: Database, registry: RegistryView, afterMove: (moved: Moved) => void) {
  async function again(delivery: DeliveryRow): Promise<Receipt> {
    // It would be recorded as failed, and what it meant forgotten.
    mustBe(
      registry.source(delivery.source) === undefined
        ? `this build doesn't have the source ${delivery.source}: replay it by one that does`
        : null,
    );
    const receipt = await receiveAgain(database, registry, delivery);
    if (receipt.status === "moved") afterMove(receipt);
    return receipt;
  }

  return {
    /** Lists them in the order in which they came, a page at a time. A page is shorter than its limit where the bodies are large. */
    async list({ limit = DEFAULT_LIMIT, after, ...filter }: DeliveryQuery = {}): Promise<{
      readonly deliveries: readonly DeliveryRow[];
      /** Where the next page begins; `null`: there is none. */
      readonly next: string | null;
    }> {
      mustBe(whyNoInteger(limit, "limit", 1, MAX_LIMIT));
      mustBe(after === undefined || ID.test(after) ? null : "after is the next of a page before");
      const page = await database.query(readDeliveries(checked(filter), after ?? null, limit));
      return { deliveries: page.deliveries, next: page.more ? (page.deliveries.at(-1)?.id ?? null) : null };
    },

    /** Looks up one; `null` where there is none (any more). */
    async get(source: string, deliveryId: string): Promise<DeliveryRow | null> {
      return database.query(readDeliveryRow(source, deliveryId));
    },

    /**
     * Has its source's code read a delivery again, and does what it means now: after a fault was mended, or for a late one whose callback
     * was registered anew. One that was resolved is left alone.
     */
    async replay(source: string, deliveryId: string): Promise<Replay> {
      const delivery = await database.query(readDeliveryRow(source, deliveryId));
      if (delivery === null) return { status: "not_found" };
      return delivery.state === "resolved" ? { status: "already_resolved" } : again(delivery);
    },

    /** Replays all deliveries of a state, of one source or of all, in the order in which they came. */
    async replayAll(filter: {
      readonly state: Exclude<DeliveryState, "resolved">;
      readonly source?: string;
    }): Promise<Replays> {
      if (filter.state === undefined) throw new Error("say which state: failed, late, ignored or parked");
      const replays: Partial<Record<Receipt["status"], number>> = {};
      let after: string | null = null;
      for (;;) {
        const page: { readonly deliveries: readonly DeliveryRow[]; readonly more: boolean } =
          await database.query(readDeliveries(checked(filter), after, DELIVERY_PAGE_ROWS));
        for (const delivery of page.deliveries) {
          const { status } = await again(delivery);
          replays[status] = (replays[status] ?? 0) + 1;
          after = delivery.id;
        }
        if (!page.more) return replays;
      }
    },
  };
}

function checked(filter: DeliveryFilter): DeliveryFilter {
  const { source, state, ...unknown } = filter;
  const strange = Object.keys(unknown);
  // A misspelt condition would be none, and the rest of them mean more deliveries than was meant.
  mustBe(strange.length === 0 ? null : `no such condition: ${strange.join(", ")}`);
  mustBe(
    state === undefined || DELIVERY_STATES.includes(state)
      ? null
      : `state must be one of ${DELIVERY_STATES.join(", ")}`,
  );
  mustBe(source === undefined || typeof source === "string" ? null : "source is a name");
  return filter;
}

function mustBe(problem: string | null): void {
  if (problem !== null) throw new Error(problem);
}
