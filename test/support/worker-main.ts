// A worker process for tests: the real one, with a registry that records in the database what it runs, or with one that runs no queue.

import pg from "pg";
import { runWorkerProcess } from "../../scripts/lib/worker-process.ts";
import { recordingRegistry } from "./recording-registry.ts";
import { testRegistry } from "./registry.ts";

const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL, max: 2 });
pool.on("error", () => undefined);
const runsQueues = process.env.TEST_REGISTRY !== "without_queues";
await runWorkerProcess(
  runsQueues ? recordingRegistry(pool, `worker ${process.pid}`) : testRegistry(),
  process.env,
);
