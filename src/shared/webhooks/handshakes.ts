import { ok } from "../result.ts";
import { readerOf, sourceOf, textOf } from "./places.ts";
import type { HandshakeAnswer, ReadyScheme, WebhookRequest, WebhookScheme } from "./scheme.ts";
import { fillText, templateOf } from "./template.ts";
import { token } from "./token.ts";

/** Whose events are taken, and how many. */
export interface CloudEventsOptions {
  /** What vouches for the events themselves, such as `sharedHeader({ header: "Authorization", label: "Bearer " })`. */
  readonly scheme: WebhookScheme;
  /**
   * The senders that may deliver here, by the name of their host: "eventgrid.azure.net".
   *
   * @default any: the handshake keeps senders from flooding those who didn't ask, and proves nothing of who they are
   */
  readonly allowedOrigins?: readonly string[];
  /**
   * How many requests a minute a sender may make.
   *
   * @default as many as it asks for
   */
  readonly requestsPerMinute?: number;
}

/**
 * CloudEvents over webhooks: adds to a scheme the OPTIONS request by which a sender asks whether it may deliver.
 * https://github.com/cloudevents/spec/blob/main/cloudevents/http-webhook.md
 *
 * The URL that a sender offers for a late answer isn't called. A delivery's id is the wrapped scheme's, or else the event's source
 * and id.
 *
 * @throws Error where the rate isn't a whole number above 0
 */
export function cloudEventsOptions({
  scheme,
  allowedOrigins,
  requestsPerMinute,
}: CloudEventsOptions): WebhookScheme {
  if (
    requestsPerMinute !== undefined &&
    !(Number.isSafeInteger(requestsPerMinute) && requestsPerMinute > 0)
  ) {
    throw new Error("cloudEventsOptions: requestsPerMinute isn't a whole number above 0");
  }
  const origins = allowedOrigins?.map((origin) => origin.toLowerCase());
  return {
    ...extended(scheme, ({ greet }) => ({
      greet: async (request) => greeting(request) ?? (await greet?.(request)) ?? null,
    })),
    deliveryId: (request, payload) => scheme.deliveryId(request, payload) ?? eventIdOf(request, payload),
  };

  function greeting(request: WebhookRequest): HandshakeAnswer | null {
    const source = sourceOf(request);
    const origin = textOf(readOrigin(source));
    // Without it, it is a browser's preflight or the like.
    if (request.method !== "OPTIONS" || origin === undefined) return null;
    const isAllowed = HOST.test(origin) && (origins?.includes(origin.toLowerCase()) ?? true);
    if (!isAllowed) return { status: 405, headers: { Allow: "POST" }, body: null };
    const asked = /^[1-9]\d{0,8}$/.exec(textOf(readRate(source)) ?? "");
    const rate = Math.min(
      Number(asked?.[0] ?? Number.POSITIVE_INFINITY),
      requestsPerMinute ?? Number.POSITIVE_INFINITY,
    );
    return {
      status: 200,
      headers: {
        Allow: "POST",
        "WebHook-Allowed-Origin": origin,
        "WebHook-Allowed-Rate": Number.isFinite(rate) ? String(rate) : "*",
      },
      body: null,
    };
  }
}

const HOST = /^[\w.:-]{1,255}$/;
const readOrigin = readerOf("header:WebHook-Request-Origin");
const readRate = readerOf("header:WebHook-Request-Rate");
/** An event's attributes are headers, or stand in the body beside its data. */
const EVENT_IDS = ["{header:ce-source} {header:ce-id}", "{body:source} {body:id}"].map((text) =>
  templateOf(text),
);

function eventIdOf(request: WebhookRequest, payload: unknown): string | undefined {
  const source = { request, json: () => payload };
  return EVENT_IDS.map((template) => fillText(template, source)).find((id) => id !== undefined);
}

/**
 * Azure Event Grid by nothing but a token of ours in the URL of the subscription, `?code=…`, compared in constant time: Event Grid
 * signs nothing. A delivery's id is the event's, where it brings only one.
 * https://learn.microsoft.com/azure/event-grid/security-authentication#use-a-client-secret-as-a-query-parameter
 */
export function eventGridToken(): WebhookScheme {
  return token({
    name: "event-grid",
    algorithm: "token",
    signature: { from: "query:code" },
    deliveryId: "{body:*.id}",
  });
}

/** What vouches for Event Grid's requests. */
export interface EventGridOptions {
  /** @default eventGridToken() */
  readonly scheme?: WebhookScheme;
}

const readEventType = readerOf("header:aeg-event-type");
const readBodyType = readerOf("body:*.eventType");
const readCode = readerOf("body:*.data.validationCode");

/**
 * Azure Event Grid's own schema: adds to a scheme the answer to the event by which Event Grid asks whether the endpoint is ours. It
 * is given after the request was verified, and by the answer alone: `validationUrl` isn't called.
 * https://learn.microsoft.com/azure/event-grid/end-point-validation-event-grid-events-schema
 */
export function eventGridValidation({ scheme = eventGridToken() }: EventGridOptions = {}): WebhookScheme {
  return extended(scheme, ({ answer }) => ({
    answer: async (request, context) => validation(request) ?? (await answer?.(request, context)) ?? null,
  }));
}

function validation(request: WebhookRequest): HandshakeAnswer | null {
  const source = sourceOf(request);
  if (readEventType(source) !== "SubscriptionValidation") return null;
  const code = textOf(readCode(source));
  if (code === undefined || readBodyType(source) !== "Microsoft.EventGrid.SubscriptionValidationEvent")
    return null;
  return {
    status: 200,
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ validationResponse: code }),
  };
}

/** A scheme that can do more, once it has its secrets. */
function extended(scheme: WebhookScheme, more: (ready: ReadyScheme) => Partial<ReadyScheme>): WebhookScheme {
  return {
    ...scheme,
    ready(secrets, variables) {
      const ready = scheme.ready(secrets, variables);
      return ready.ok ? ok({ ...ready.value, ...more(ready.value) }) : ready;
    },
  };
}
