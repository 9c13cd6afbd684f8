import { randomUUID } from "node:crypto";
import type pg from "pg";
import type { Database } from "../../src/shared/db/port.ts";
import { parseCallbackId } from "../../src/shared/ids.ts";
import type { RegistryView } from "../../src/shared/registry/define.ts";
import { interpret } from "../../src/shared/registry/source.ts";
import {
  type Receipt,
  receiveDelivery,
  type ToReceive,
} from "../../src/shared/use-cases/receive-delivery.ts";

/** One event for {@link deliver}. */
export interface Event {
  readonly source?: string;
  /** Default: a new one. */
  readonly deliveryId?: string;
  /** The callback that the URL names. */
  readonly path?: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** The body, as JSON. */
  readonly told?: unknown;
  /** The body, as it is. */
  readonly body?: string;
}

/** What the ingress makes of a verified request, as far as the use case. */
export function toReceive(registry: RegistryView, event: Event): ToReceive {
  const { source: name = "shop", deliveryId = randomUUID(), path, headers = {}, told } = event;
  const { body = JSON.stringify(told) } = event;
  const source = registry.source(name);
  if (source === undefined) throw new Error(`no source ${name}`);
  const pathCallbackId = path === undefined ? null : parseCallbackId(path);
  const received = { deliveryId, receivedAt: new Date(), pathCallbackId, headers, body };
  return {
    source: name,
    deliveryId,
    delivery: { source: name, deliveryId, pathCallbackId, headers, body },
    interpretation: interpret(source, received),
  };
}

/** Receives one event. */
export function deliver(database: Database, registry: RegistryView, event: Event): Promise<Receipt> {
  return receiveDelivery(database, registry, toReceive(registry, event));
}

/** The deliveries as they are recorded, in the order in which they came. */
export async function deliveriesIn(pool: pg.Pool, where = "true") {
  const { rows } = await pool.query<Record<string, unknown>>(
    `SELECT delivery_id, state, reason, attempts, last_error, job_id, next_attempt_at, callback_id, correlation_key, meaning
     FROM awa_edge.deliveries WHERE ${where} ORDER BY id`,
  );
  return rows;
}
