import type { Scope } from "./lifecycle.ts";
import { migrate } from "./migrate.ts";
import { type NeonServer, startNeonServer } from "./neon-server.ts";
import { startTemporaryPostgres } from "./temporary-postgres.ts";
import { renewWorkerRole } from "./worker-role.ts";

/** A migrated database of one run's own. */
export interface OwnDatabase {
  /** The owner's, to look at everything. */
  readonly ownerUrl: string;
  /** With the rights of the Worker's role and no others: for the Worker and the application. */
  readonly workerUrl: string;
  /** Neon's protocol in front of it. */
  readonly neon: NeonServer;
}

/** Starts a Postgres and the development server in front of it. They end with the scope and leave nothing behind. */
export async function startOwnDatabase(scope: Scope): Promise<OwnDatabase> {
  const postgres = await startTemporaryPostgres();
  scope.defer(() => postgres.stop());
  const ownerUrl = postgres.url();
  const workerUrl = await renewWorkerRole(ownerUrl);
  await migrate({ databaseUrl: ownerUrl });
  const neon = await startNeonServer({ upstream: ownerUrl });
  scope.defer(() => neon.close());
  return { ownerUrl, workerUrl, neon };
}
