import { DatabaseError } from "./errors.ts";

const MAX_ROUNDS = 5;

/** Runs a statement again while it neither did its work nor found why not: another writer was in between. */
export async function untilDecided<R>(run: () => Promise<R | null>): Promise<R> {
  for (let round = 0; round < MAX_ROUNDS; round++) {
    const result = await run().catch((error: unknown) => {
      if (error instanceof DatabaseError && error.kind === "contended") return null;
      throw error;
    });
    if (result !== null) return result;
  }
  throw new DatabaseError("contended", null);
}
