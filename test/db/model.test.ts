import { expect, test } from "vitest";
import { check, nothingPlayed, SEEDS } from "../model/check.ts";
import { useTestDatabase } from "../support/database.ts";

const { db } = useTestDatabase();
/** Scripts that are the same in each run, */
const KNOWN_SEEDS = 10;
/** and others. */
const NEW_SEEDS = 2;
/** A failure is made smaller before it is told. */
const TIMEOUT_MS = 300_000;

test(
  "random scripts by several actors at once → after each call the tables are what a small model says",
  async () => {
    const played = nothingPlayed();
    const first = Math.floor(Math.random() * (SEEDS - NEW_SEEDS));
    for (let i = 0; i < KNOWN_SEEDS; i++) await check(db, 1 + i, played);
    for (let i = 0; i < NEW_SEEDS; i++) await check(db, first + i, played);
    expect(played.steps).toBeGreaterThan(2000);
    expect(Object.keys(played.answers).length).toBeGreaterThan(100);
  },
  TIMEOUT_MS,
);
