import { createMiddleware } from "hono/factory";
import type { CallbackConfig } from "../shared/env.ts";
import { parseCallbackId } from "../shared/ids.ts";
import { verifyCallbackId } from "../shared/signature.ts";
import { type IngressEnv, refuse } from "./context.ts";
import type { Refusal } from "./wire-errors.ts";

const SIGNATURE = /^[0-9a-f]{64}$/;

/**
 * Lets a request through only with a valid signature of the callback id as it stands in the path, and then only if that id is
 * a UUID. Runs before the body is read. The signature is in `X-Awa-Signature`, or, for senders that can only be
 * given a URL, in `?signature=`; the header wins.
 */
export function authenticate({ secrets, pathPrefix }: CallbackConfig) {
  // Counted from the front: a path may have a slash at its end.
  const place = pathPrefix.split("/").length;
  return createMiddleware<IngressEnv>(async (c, next) => {
    // The raw segment: what was signed is what stands in the path, before any decoding.
    const inPath = new URL(c.req.url).pathname.split("/")[place] ?? "";
    const refusal = check(secrets, inPath, c.req.header("X-Awa-Signature") ?? c.req.query("signature"));
    if (refusal !== null) return refuse(c, refusal);
    const id = parseCallbackId(inPath);
    if (id === null) return refuse(c, { type: "invalid", reason: "callback id is not a UUID" });
    c.set("callbackId", id);
    c.set("entry", { ...c.get("entry"), callbackId: id });
    return next();
  });
}

function check(
  secrets: CallbackConfig["secrets"],
  inPath: string,
  signature: string | undefined,
): Refusal | null {
  if (secrets.length === 0) return null; // unsigned mode, switched on by name
  if (signature === undefined || signature === "") return { type: "signature_missing" };
  if (!SIGNATURE.test(signature)) return { type: "signature_malformed" };
  return verifyCallbackId(secrets, inPath, signature) ? null : { type: "signature_wrong" };
}
