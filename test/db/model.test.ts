import { expect, test } from "vitest";
import { check, nothingPlayed } from "../model/check.ts";
import { useTestDatabase } from "../support/database.ts";

const { db } = useTestDatabase();
/** Scripts that are the same in each run; `npm run soak` plays others. */
const SCRIPTS = 10;
/** A failure is made smaller before it is told. */
const TIMEOUT_MS = 300_000;

test(
  "random scripts by several actors at once → after each call the tables are what a small model says",
  async () => {
    const played = nothingPlayed();
    for (let seed = 1; seed <= SCRIPTS; seed++) await check(db, seed, played);
    expect(played.steps).toBeGreaterThan(2000);
    expect(Object.keys(played.answers).length).toBeGreaterThan(100);
  },
  TIMEOUT_MS,
);
