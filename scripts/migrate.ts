// npm run migrate: brings the database of DATABASE_URL to the schema of this code.

import { migrate } from "./lib/migrate.ts";
import { errorMessage } from "./lib/processes.ts";

const databaseUrl = process.env.DATABASE_URL;

if (databaseUrl === undefined || databaseUrl === "") {
  console.error(
    "DATABASE_URL is not set. Set it to a direct connection to the database that is to be migrated:\n" +
      "  DATABASE_URL=postgres://user:password@host/database npm run migrate\n" +
      "The local database is migrated by `npm run dev` and `npm run db` themselves.",
  );
  process.exitCode = 1;
} else {
  try {
    const { applied } = await migrate({ databaseUrl });
    console.log(
      applied.length === 0
        ? "Nothing to do: the schema is up to date."
        : applied.map((name) => `Applied ${name}`).join("\n"),
    );
  } catch (thrown) {
    console.error(errorMessage(thrown));
    process.exitCode = 1;
  }
}
