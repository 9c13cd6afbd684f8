import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { errorCode, isStill } from "./processes.ts";

const heldHere = new Set<string>();

/**
 * Claims something for this process by a file that names the process.
 *
 * @param file the claim
 * @param what what is claimed, as it reads in "… is in use"
 * @returns gives the claim up; safe to repeat
 * @throws Error where another live process, or another part of this one, holds it
 */
export function claim(file: string, what: string): () => void {
  for (;;) {
    try {
      writeFileSync(file, `${process.pid}\n`, { flag: "wx" });
      heldHere.add(file);
      return () => {
        if (heldHere.delete(file)) rmSync(file, { force: true });
      };
    } catch (thrown) {
      if (errorCode(thrown) !== "EEXIST") throw thrown;
    }
    const holder = holderOf(file);
    // Whoever died without giving it up left the file behind; so did an earlier process that had our own id.
    const isHeld = holder === process.pid ? heldHere.has(file) : holder !== null && isStill("node", holder);
    if (isHeld) {
      throw new Error(
        `${what} is in use by another run of this repository (process ${holder}): stop that one first. ` +
          `If it is none, delete ${file}.`,
      );
    }
    rmSync(file, { force: true });
  }
}

function holderOf(file: string): number | null {
  try {
    const pid = Number.parseInt(readFileSync(file, "utf8"), 10);
    return pid > 0 ? pid : null;
  } catch (thrown) {
    if (errorCode(thrown) === "ENOENT") return null;
    throw thrown;
  }
}
