// A worker process for tests: the real one, with a registry that records in the database what it runs.

import pg from "pg";
import { runWorkerProcess } from "../../scripts/lib/worker-process.ts";
import { recordingRegistry } from "./recording-registry.ts";

const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL, max: 2 });
pool.on("error", () => undefined);
await runWorkerProcess(recordingRegistry(pool, `worker ${process.pid}`), process.env);
