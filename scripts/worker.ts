// npm run worker: runs the jobs of the queues in src/registry.ts, until SIGTERM or Ctrl-C.

import { registry } from "../src/registry.ts";
import { runWorkerProcess } from "./lib/worker-process.ts";

await runWorkerProcess(registry, process.env);
