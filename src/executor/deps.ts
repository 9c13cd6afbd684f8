import type { Database } from "../shared/db/port.ts";
import type { Bindings, CallbackConfig } from "../shared/env.ts";
import type { Log } from "../shared/log.ts";
import type { RegistryView } from "../shared/registry/define.ts";

/** What running jobs takes. */
export interface ExecutorDeps {
  readonly database: Database;
  readonly registry: RegistryView;
  readonly log: Log;
  /** Milliseconds of a clock that only goes forward. */
  readonly clock: () => number;
  /** What handlers find in `ctx.env`. */
  readonly env: Bindings;
  /** `null`: not configured; callbacks come without URL and signature. */
  readonly callbacks: CallbackConfig | null;
  /** Keeps work alive after the jobs are done: hooks. */
  readonly defer: (work: Promise<void>) => void;
}
