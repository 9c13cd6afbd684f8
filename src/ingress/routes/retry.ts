import * as v from "valibot";
import { readBody } from "../body.ts";
import { type IngressContext, type IngressDeps, refuse } from "../context.ts";
import { resolve } from "./resolve.ts";

const Body = v.strictObject({});

/** POST {prefix}/{callback_id}/retry `{}`: makes the parked job available again, or fails it at its last attempt. */
export function retry(deps: IngressDeps) {
  return async (c: IngressContext): Promise<Response> => {
    const body = readBody(c, Body);
    return body.ok ? resolve(deps, c, { type: "retry" }) : refuse(c, body.error);
  };
}
