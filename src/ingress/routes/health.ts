import { readSchemaVersion, whyOtherSchema } from "../../shared/db/statements/read-schema-version.ts";
import { type IngressContext, type IngressDeps, refuse } from "../context.ts";

/** GET /healthz: the build answers. */
export function healthz(c: IngressContext): Response {
  return c.json({ status: "ok" });
}

/** GET /readyz: the configuration is whole, the database answers, and its schema is the one of this build. */
export function readyz({ config }: IngressDeps) {
  return async (c: IngressContext): Promise<Response> => {
    const problem = [config.database, config.callbacks, config.retention].find((part) => !part.ok);
    if (problem?.ok === false) return refuse(c, { type: "misconfigured", problem: problem.error });
    const version = await c.get("database").query(readSchemaVersion());
    const reason = whyOtherSchema(version);
    if (reason !== null) return refuse(c, { type: "schema_mismatch", reason });
    return c.json({ status: "ready", schema: version });
  };
}
