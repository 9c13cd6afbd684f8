// npm run db: the database for local development, until Ctrl-C. `npm run dev` starts it and the Worker together.

import { runUntilStopped } from "./lib/lifecycle.ts";
import { startLocalStack } from "./lib/local-stack.ts";

await runUntilStopped(async (scope) => {
  const { printedDatabaseUrl, neonEndpoint } = await startLocalStack(scope);
  console.log(`
The database is running, until you press Ctrl-C.

  Postgres         ${printedDatabaseUrl}
  Neon's protocol  ${neonEndpoint}

.dev.vars points at it. Start the Worker in another terminal:

  npx wrangler dev
`);
});
