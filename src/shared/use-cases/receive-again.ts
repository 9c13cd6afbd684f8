import type { Database } from "../db/port.ts";
import type { DeliveryRow } from "../delivery.ts";
import type { RegistryView } from "../registry/define.ts";
import { type Interpretation, interpret } from "../registry/source.ts";
import { err, ok, type Result } from "../result.ts";
import { type Receipt, receiveDelivery } from "./receive-delivery.ts";

/**
 * Receives a recorded delivery once more: its source's code reads it again. It isn't verified again, since that was done when it came
 * and its time-stamp is past by now.
 *
 * Guard: the delivery is still as it was read. A `duplicate` says that somebody else took it meanwhile.
 *
 * @throws DatabaseError as `receiveDelivery`
 */
export async function receiveAgain(
  database: Database,
  registry: RegistryView,
  delivery: DeliveryRow,
): Promise<Receipt> {
  return receive(database, registry, delivery, interpretAgain(registry, delivery));
}

/** Receives a parked delivery whose callback may be there now, as it was understood when it came. Otherwise as {@link receiveAgain}. */
export async function receiveParked(
  database: Database,
  registry: RegistryView,
  delivery: DeliveryRow,
): Promise<Receipt> {
  const { meaning, target } = delivery;
  const interpretation = meaning === null ? interpretAgain(registry, delivery) : ok({ meaning, target });
  return receive(database, registry, delivery, interpretation);
}

function interpretAgain(registry: RegistryView, delivery: DeliveryRow): Result<Interpretation, string> {
  const source = registry.source(delivery.source);
  return source === undefined ? err("this build doesn't have its source") : interpret(source, delivery);
}

function receive(
  database: Database,
  registry: RegistryView,
  { id, state, attempts, source, deliveryId }: DeliveryRow,
  interpretation: Result<Interpretation, string>,
): Promise<Receipt> {
  return receiveDelivery(database, registry, {
    source,
    deliveryId,
    delivery: { id, state, attempts },
    interpretation,
  });
}
