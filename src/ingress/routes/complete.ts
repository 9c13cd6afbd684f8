import * as v from "valibot";
import { isStorable } from "../../shared/json.ts";
import { readBody } from "../body.ts";
import { type IngressContext, type IngressDeps, refuse } from "../context.ts";
import { resolve } from "./resolve.ts";

const Body = v.strictObject({ payload: v.optional(v.unknown()), resume: v.optional(v.boolean()) });

/**
 * POST {prefix}/{callback_id}/complete `{"payload"?: any, "resume"?: boolean}`: completes the job with the payload, or lets
 * its handler go on with it.
 */
export function complete(deps: IngressDeps) {
  return async (c: IngressContext): Promise<Response> => {
    const body = readBody(c, Body);
    if (!body.ok) return refuse(c, body.error);
    const { payload = null, resume = false } = body.value;
    if (!isStorable(payload)) return refuse(c, { type: "invalid", reason: "payload can't be stored" });
    return resolve(deps, c, { type: resume ? "resume" : "complete", payload });
  };
}
