import { signCallbackId } from "../../../src/shared/signature.ts";
import { TEST_CALLBACK_SECRET } from "../secrets.ts";
import { CANARY, type Content, type HeaderList, type Hostile } from "./request.ts";

/** What became of a callback. */
export type Fate =
  | "pending"
  | "running"
  | "completed"
  | "failed"
  | "retried"
  | "resumed"
  | "expired"
  | "cancelled"
  | "superseded"
  | "unknown"
  | "conflict"
  | "poison";
export type Callbacks = Readonly<Record<Fate, string>>;

export const ACTIONS = ["complete", "fail", "retry", "heartbeat"] as const;
export const JSON_HEADER: HeaderList = [["Content-Type", "application/json"]];

/** The right signature of an id. */
export function signature(id: string, secret = TEST_CALLBACK_SECRET): string {
  return signCallbackId(secret, id);
}

export function bySignature(id: string): HeaderList {
  return [["X-Awa-Signature", signature(id)]];
}

export function fatesOf(callbacks: Callbacks): readonly Fate[] {
  return Object.keys(callbacks).filter((name): name is Fate => name in callbacks);
}

export function pathOf(id: string, action: string): string {
  return `/api/callbacks/${id}/${action}`;
}

/** A request that an action is asked by, to be completed. */
export function asking(action: string): Hostile {
  return {
    route: `POST ${action}`,
    about: "",
    method: "POST",
    path: "",
    headers: JSON_HEADER,
    content: null,
    sending: "whole",
    signing: null,
    answers: [],
  };
}

/** What is sent for a body: for none, nothing. */
export function contentOf(body: string): Content {
  return body === "" ? null : body;
}

/** A request that is as it should be. */
export interface Valid {
  readonly action: string;
  readonly body: string;
  /** The state that it leaves a callback in. */
  readonly fate: Fate | null;
}
export const VALID: readonly Valid[] = [
  { action: "complete", body: "{}", fate: "completed" },
  { action: "complete", body: `{"payload":{"__proto__":{"a":"${CANARY}"}}}`, fate: "completed" },
  { action: "complete", body: `\u{feff}{"payload":"${CANARY}","resume":false}`, fate: "completed" },
  { action: "complete", body: `{"resume":true,"payload":["${CANARY}"]}`, fate: "resumed" },
  { action: "fail", body: `{"error":"${CANARY}"}`, fate: "failed" },
  { action: "fail", body: `{"error":"${"💶".repeat(2_000)}"}`, fate: "failed" },
  { action: "retry", body: "", fate: "retried" },
  { action: "retry", body: " {} ", fate: "retried" },
  { action: "heartbeat", body: "", fate: null },
  { action: "heartbeat", body: '{"timeout_seconds":31536000}', fate: null },
  { action: "heartbeat", body: '{"timeout_seconds":5e-324}', fate: null },
];
