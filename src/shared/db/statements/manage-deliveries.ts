import {
  DELIVERY_STATES,
  type DeliveryRow,
  type DeliveryState,
  parseHeaders,
  parseMeaning,
} from "../../delivery.ts";
import type { Row, Statement } from "../port.ts";
import { callbackId, date, jobId, json, nullable, number, oneOf, text } from "../rows.ts";

/** Deliveries that one statement reads at the most, */
export const DELIVERY_PAGE_ROWS = 100;
/** and their bytes: an answer of Neon's is 10 MB at the most. One is always read. */
const PAGE_BYTES = 4_000_000;

const COLUMNS = `d.id::text AS id, d.source, d.delivery_id, d.received_at, d.state, d.path_callback_id, d.headers, d.body,
  d.callback_id, d.correlation_key, d.meaning, d.job_id::text AS job_id, d.reason, d.attempts, d.last_error, d.next_attempt_at`;

/** Reads one delivery; `null` where there is none. */
export function readDeliveryRow(source: string, deliveryId: string): Statement<DeliveryRow | null> {
  return {
    text: `SELECT ${COLUMNS} FROM awa_edge.deliveries d WHERE d.source = $1::text AND d.delivery_id = $2::text`,
    values: [source, deliveryId],
    decode: ([row]) => (row === undefined ? null : decodeDelivery(row)),
  };
}

/** Which deliveries: those that fit every condition given. */
export interface DeliveryFilter {
  readonly source?: string;
  readonly state?: DeliveryState;
}

/** A page of deliveries, and whether there are more behind it. */
export interface DeliveryPage {
  readonly deliveries: readonly DeliveryRow[];
  readonly more: boolean;
}

/** Reads deliveries by id, from after a given one; a page by rows and bytes. */
export function readDeliveries(
  { source, state }: DeliveryFilter,
  after: string | null,
  limit: number,
): Statement<DeliveryPage> {
  return {
    text: pageSql(
      `($1::text IS NULL OR d.source = $1::text) AND ($2::text IS NULL OR d.state = $2::text)
      AND ($3::bigint IS NULL OR d.id > $3::bigint)`,
      "id",
      "$4::int",
    ),
    values: [source ?? null, state ?? null, after, limit],
    decode: decodePage,
  };
}

/**
 * Takes the deliveries that are to be tried again, the longest overdue first: failed ones of sources that this build has, and parked
 * ones whose callback may be there.
 *
 * Each is due again one to two minutes later, whatever becomes of this try: one that ends every tick that tries it, or
 * a process that dies, doesn't keep its neighbours from their turn. Where two ticks take at once, each takes others.
 *
 * @param sources the sources of this build
 */
export function takeDueDeliveries(sources: readonly string[]): Statement<DeliveryPage> {
  return {
    text: pageSql(DUE, "next_attempt_at, id", `${DELIVERY_PAGE_ROWS}`, "FOR UPDATE SKIP LOCKED", TAKE),
    values: [sources],
    decode: decodePage,
  };
}

/** SQL of what is due among the deliveries `d`. @param sources the sources of this build */
export const dueSql = (sources: string) =>
  `d.next_attempt_at <= now() AND (d.state = 'parked' OR d.source = ANY (${sources}::text[]))`;
const DUE = dueSql("$1");
const TAKE = `, taken AS (
  UPDATE awa_edge.deliveries d SET next_attempt_at = now() + (1 + random()) * interval '1 minute'
  FROM page WHERE d.id = page.id
)`;

function pageSql(where: string, order: string, limit: string, locking = "", alsoDone = ""): string {
  return `
WITH found AS (
  SELECT d.*, row_number() OVER w AS place, count(*) OVER () AS found,
    sum(octet_length(d.body) + coalesce(octet_length(d.meaning::text), 0)) OVER w AS bytes
  FROM (
    SELECT d.* FROM awa_edge.deliveries d WHERE ${where} ORDER BY ${order} LIMIT ${limit} + 1 ${locking}
  ) d
  WINDOW w AS (ORDER BY ${order})
), page AS (
  SELECT *, found > count(*) OVER () AS more FROM found
  WHERE place = 1 OR (place <= ${limit} AND bytes <= ${PAGE_BYTES})
)${alsoDone}
SELECT ${COLUMNS}, d.more FROM page d ORDER BY d.place`;
}

function decodePage(rows: readonly Row[]): DeliveryPage {
  return { deliveries: rows.map(decodeDelivery), more: rows[0]?.more === true };
}

function decodeDelivery(row: Row): DeliveryRow {
  const id = nullable(row, "callback_id", callbackId);
  const correlationKey = nullable(row, "correlation_key", text);
  return {
    id: text(row, "id"),
    source: text(row, "source"),
    deliveryId: text(row, "delivery_id"),
    receivedAt: date(row, "received_at"),
    state: oneOf(row, "state", DELIVERY_STATES),
    pathCallbackId: nullable(row, "path_callback_id", callbackId),
    target: id !== null ? { id } : correlationKey !== null ? { correlationKey } : null,
    meaning: nullable(row, "meaning", (r, column) => parseMeaning(json(r, column))),
    jobId: nullable(row, "job_id", jobId),
    reason: nullable(row, "reason", text),
    attempts: number(row, "attempts"),
    lastError: nullable(row, "last_error", text),
    nextAttemptAt: nullable(row, "next_attempt_at", date),
    headers: parseHeaders(json(row, "headers")),
    body: text(row, "body"),
  };
}
