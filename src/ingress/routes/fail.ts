import * as v from "valibot";
import { readBody } from "../body.ts";
import { type IngressContext, type IngressDeps, refuse } from "../context.ts";
import { resolve } from "./resolve.ts";

const Body = v.strictObject({ error: v.string() });

/** POST {prefix}/{callback_id}/fail `{"error": string}`: fails the job for good, with that error. */
export function fail(deps: IngressDeps) {
  return async (c: IngressContext): Promise<Response> => {
    const body = readBody(c, Body);
    return body.ok ? resolve(deps, c, { type: "fail", error: body.value.error }) : refuse(c, body.error);
  };
}
