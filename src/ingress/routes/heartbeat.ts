import * as v from "valibot";
import { DEFAULT_CALLBACK_TIMEOUT_SECONDS, MAX_CALLBACK_TIMEOUT_SECONDS } from "../../shared/callback.ts";
import { extendCallback } from "../../shared/use-cases/extend-callback.ts";
import { readBody } from "../body.ts";
import { type IngressContext, refuse, refuseNotPending } from "../context.ts";
import { stateOnTheWire } from "../wire-states.ts";

const Body = v.strictObject({ timeout_seconds: v.optional(v.number()) });

/** POST {prefix}/{callback_id}/heartbeat `{"timeout_seconds"?: number}`: the callback now times out that far from now. */
export function heartbeat() {
  return async (c: IngressContext): Promise<Response> => {
    const body = readBody(c, Body);
    if (!body.ok) return refuse(c, body.error);
    const { timeout_seconds: seconds = DEFAULT_CALLBACK_TIMEOUT_SECONDS } = body.value;
    const wrong = whyNoTimeout(seconds);
    if (wrong !== null) return refuse(c, { type: "invalid", reason: wrong });

    const id = c.get("callbackId");
    c.set("entry", { ...c.get("entry"), action: "heartbeat" });
    const extended = await extendCallback(c.get("database"), id, seconds);
    return extended.status === "extended"
      ? c.json({ id: extended.jobId, state: stateOnTheWire(extended.state) })
      : refuseNotPending(c, extended);
  };
}

function whyNoTimeout(seconds: number): string | null {
  // -0 is refused with the negative numbers, as the reference does.
  if (!Number.isFinite(seconds) || seconds < 0 || Object.is(seconds, -0)) {
    return "timeout_seconds must be a finite, non-negative number";
  }
  return seconds > MAX_CALLBACK_TIMEOUT_SECONDS
    ? `timeout_seconds must be at most ${MAX_CALLBACK_TIMEOUT_SECONDS}`
    : null;
}
