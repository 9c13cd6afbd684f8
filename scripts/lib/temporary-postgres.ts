import { type ChildProcess, spawn } from "node:child_process";
import { chmodSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { type RunningPostgres, startPostgres } from "./postgres.ts";

/**
 * Starts a Postgres that is there for this process only: nothing is flushed to disk, and with it goes its data, also where
 * this process is killed and can't stop it.
 */
export async function startTemporaryPostgres(
  options: { readonly maxConnections?: number; readonly log?: (line: string) => void } = {},
): Promise<RunningPostgres> {
  const folder = mkdtempSync(path.join(tmpdir(), "awa-edge-"));
  // Run by root, Postgres runs as somebody else, who has to get in.
  chmodSync(folder, 0o755);
  const folders = [folder];
  const remove = () => {
    for (const each of folders) rmSync(each, { recursive: true, force: true });
  };
  try {
    const postgres = await startPostgres({
      ...options,
      dataDir: path.join(folder, "postgres"),
      durable: false,
    });
    folders.push(path.dirname(postgres.dataDir));
    const watcher = startWatcher(postgres, folders);
    return {
      ...postgres,
      async stop() {
        await postgres.stop();
        watcher?.kill("SIGKILL");
        remove();
      },
    };
  } catch (thrown) {
    remove();
    throw thrown;
  }
}

/** Waits for the end of its input, which comes with the end of this process, however that ends; then cleans up. */
const WATCH = `
cat > /dev/null
kill -INT "$1"
tries=0
while [ -e "$2/postmaster.pid" ] && [ $tries -lt 100 ]; do sleep 0.1; tries=$((tries + 1)); done
shift 2
rm -rf "$@"
`;

function startWatcher({ pid, dataDir }: RunningPostgres, folders: readonly string[]): ChildProcess | null {
  // There is no such shell there; a leftover is ended by hand.
  if (process.platform === "win32") return null;
  const watcher = spawn("/bin/sh", ["-c", WATCH, "sh", String(pid), dataDir, ...folders], {
    stdio: ["pipe", "ignore", "ignore"],
    cwd: "/",
    // Out of reach of the terminal's Ctrl-C.
    detached: true,
  });
  watcher.unref();
  return watcher;
}
