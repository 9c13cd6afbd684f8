// npm run bundle: builds the Worker as a deploy would, without deploying it, and fails where it has grown too large.

import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { gzipSync } from "node:zlib";
import { REPOSITORY } from "./lib/local-stack.ts";
import { errorMessage } from "./lib/processes.ts";
import { QUIET_WRANGLER, WRANGLER } from "./lib/wrangler.ts";

/**
 * Compressed. Cloudflare's limit is far away (3 MB); this one is there to notice a dependency that comes in by the way,
 * because every cold start parses all of it.
 */
const MAX_GZIPPED_KIB = 110;

const folder = mkdtempSync(path.join(tmpdir(), "awa-edge-bundle-"));
try {
  execFileSync(process.execPath, [WRANGLER, "deploy", "--dry-run", "--outdir", folder], {
    cwd: REPOSITORY,
    env: { ...process.env, ...QUIET_WRANGLER },
    stdio: ["ignore", "pipe", "pipe"],
    encoding: "utf8",
  });
  const modules = readdirSync(folder).filter((file) => /\.(m?js|wasm)$/.test(file));
  const parts = modules.map((file) => readFileSync(path.join(folder, file)));
  const kib = (bytes: number) => bytes / 1024;
  const raw = kib(parts.reduce((sum, part) => sum + part.length, 0));
  const gzipped = kib(parts.reduce((sum, part) => sum + gzipSync(part).length, 0));
  console.log(
    `The bundle is ${raw.toFixed(1)} KiB, ${gzipped.toFixed(1)} KiB gzipped, of ${MAX_GZIPPED_KIB} KiB allowed.`,
  );
  if (modules.length === 0 || gzipped > MAX_GZIPPED_KIB) {
    console.error(
      "It is too large: see what was added, or raise the limit on purpose in scripts/check-bundle.ts.",
    );
    process.exitCode = 1;
  }
} catch (thrown) {
  console.error(`The Worker couldn't be built.\n${outputOf(thrown)}`);
  process.exitCode = 1;
} finally {
  rmSync(folder, { recursive: true, force: true });
}

/** What wrangler said before it failed. */
function outputOf(thrown: unknown): string {
  if (!(thrown instanceof Error)) return String(thrown);
  const printed = [Reflect.get(thrown, "stdout"), Reflect.get(thrown, "stderr")];
  return printed.filter((text) => typeof text === "string" && text !== "").join("\n") || errorMessage(thrown);
}
