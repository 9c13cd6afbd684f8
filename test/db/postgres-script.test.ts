import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { networkInterfaces, tmpdir } from "node:os";
import path from "node:path";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type RunningPostgres, startPostgres } from "../../scripts/lib/postgres.ts";
import { isAlive } from "../../scripts/lib/processes.ts";
import { startTemporaryPostgres } from "../../scripts/lib/temporary-postgres.ts";

const STARTER = path.resolve(import.meta.dirname, "../../scripts/lib/postgres.ts");
const folder = mkdtempSync(path.join(tmpdir(), "awa-edge-postgres-"));
const options = { dataDir: path.join(folder, "postgres"), durable: false };
const pidFile = path.join(options.dataDir, "postmaster.pid");

// One data folder for all: creating it is what takes time.
beforeAll(async () => {
  chmodSync(folder, 0o755);
  mkdirSync(`${options.dataDir}.partial`);
  writeFileSync(path.join(`${options.dataDir}.partial`, "PG_VERSION"), "18\n");
  const postgres = await startPostgres(options);
  await query(postgres, "CREATE TABLE kept (id int)");
  await postgres.stop();
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

async function query({ url }: Pick<RunningPostgres, "url">, text: string): Promise<unknown[]> {
  const client = new pg.Client({ connectionString: url() });
  await client.connect();
  try {
    return (await client.query({ text, rowMode: "array" })).rows.flat();
  } finally {
    await client.end();
  }
}

function postmaster(): number {
  return Number.parseInt(readFileSync(pidFile, "utf8"), 10);
}

/** Starts Postgres in a process of its own, and kills that process before it can stop it. */
async function startAndDie(): Promise<void> {
  const program = `
    import { startPostgres } from ${JSON.stringify(STARTER)};
    await startPostgres(${JSON.stringify(options)});
    console.log("started");
    setInterval(() => undefined, 1000);`;
  const child = spawn(process.execPath, ["--input-type=module", "-e", program], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  await once(child.stdout, "data");
  const exit = once(child, "exit");
  child.kill("SIGKILL");
  await exit;
}

describe("startPostgres", () => {
  test("keeps its data, and stops to the last process", async () => {
    const postgres = await startPostgres(options);
    expect(await query(postgres, "SELECT to_regclass('kept')::text")).toEqual(["kept"]);
    const pid = postmaster();
    await postgres.stop();
    await expect.poll(() => isAlive(pid)).toBe(false);
    expect(existsSync(pidFile)).toBe(false);
    await postgres.stop();
  });

  test("stops though a client is in the middle of a transaction", async () => {
    const postgres = await startPostgres(options);
    const client = new pg.Client({ connectionString: postgres.url() });
    client.on("error", () => undefined);
    await client.connect();
    await client.query("BEGIN; INSERT INTO kept VALUES (1)");
    await postgres.stop();
    const again = await startPostgres(options);
    expect(await query(again, "SELECT count(*)::int FROM kept")).toEqual([0]);
    await again.stop();
  });

  test("is UTF-8, sorts by bytes, and takes nobody in without the password or from elsewhere", async () => {
    const postgres = await startPostgres(options);
    try {
      expect(
        await query(
          postgres,
          "SELECT pg_encoding_to_char(encoding), datcollate, current_setting('listen_addresses') FROM pg_database WHERE datname = current_database()",
        ),
      ).toEqual(["UTF8", "C", "127.0.0.1"]);
      const url = new URL(postgres.url());
      url.password = "wrong";
      await expect(query({ url: () => url.href }, "SELECT 1")).rejects.toMatchObject({ code: "28P01" });
      const outside = Object.values(networkInterfaces())
        .flat()
        .find((address) => address?.internal === false);
      if (outside !== undefined) {
        url.href = postgres.url();
        url.hostname = outside.family === "IPv6" ? `[${outside.address}]` : outside.address;
        await expect(query({ url: () => url.href }, "SELECT 1")).rejects.toMatchObject({
          code: "ECONNREFUSED",
        });
      }
    } finally {
      await postgres.stop();
    }
  });

  test("takes the preferred port, or another one where that is taken", async () => {
    const holder = createServer().listen(0, "127.0.0.1");
    await once(holder, "listening");
    const address = holder.address();
    const port = typeof address === "object" && address !== null ? address.port : 0;
    const elsewhere = await startPostgres({ ...options, port });
    await elsewhere.stop();
    holder.close();
    await once(holder, "close");
    const there = await startPostgres({ ...options, port });
    await there.stop();
    expect([elsewhere.port === port, there.port === port]).toEqual([false, true]);
  });

  test("a folder that is in use is refused by name; it isn't disturbed and is free afterwards", async () => {
    const postgres = await startPostgres(options);
    await expect(startPostgres(options)).rejects.toThrow(`${options.dataDir} is in use by another run`);
    expect(await query(postgres, "SELECT 1")).toEqual([1]);
    await postgres.stop();
    await (await startPostgres(options)).stop();
  });

  test("a server left behind by a run that was killed is taken over, and stopped in the end", async () => {
    await startAndDie();
    const pid = postmaster();
    const postgres = await startPostgres(options);
    expect(postmaster()).toBe(pid);
    expect(await query(postgres, "SELECT count(*)::int FROM kept")).toEqual([0]);
    await postgres.stop();
    // It may stay as a zombie where nobody collects the children of the dead: what counts is that it serves nobody.
    expect(existsSync(pidFile)).toBe(false);
    await expect(query(postgres, "SELECT 1")).rejects.toMatchObject({ code: "ECONNREFUSED" });
  });

  test("starts after everything was killed at once", async () => {
    await startAndDie();
    process.kill(postmaster(), "SIGKILL");
    expect(existsSync(pidFile)).toBe(true);
    const postgres = await startPostgres(options);
    expect(await query(postgres, "SELECT count(*)::int FROM kept")).toEqual([0]);
    await postgres.stop();
  });

  test("starts though the files of a crash name a process that is something else by now", async () => {
    writeFileSync(pidFile, `${process.pid}\n${options.dataDir}\n0\n1\n\n127.0.0.1\n`);
    writeFileSync(`${options.dataDir}.owner`, "1\n");
    const postgres = await startPostgres(options);
    await postgres.stop();
  });

  test("an interrupted creation was started over", () => {
    expect(existsSync(`${options.dataDir}.partial`)).toBe(false);
  });

  test("a folder of somebody else's is refused, with the end of the log where there is one", async () => {
    const dataDir = path.join(folder, "strange");
    mkdirSync(dataDir);
    await expect(startPostgres({ ...options, dataDir })).rejects.toThrow(
      "it is not a data folder of awa-edge",
    );
    writeFileSync(path.join(dataDir, "awa-edge-password"), "x");
    const error = await startPostgres({ ...options, dataDir }).catch(String);
    expect(error).toContain(`Postgres didn't start on ${dataDir}`);
    expect(error).toContain(`${dataDir}.log`);
    expect(error).toContain("could not access the server configuration file");
  });
});

describe("startTemporaryPostgres", () => {
  test("leaves nothing behind where its process is killed", async () => {
    const starter = path.resolve(import.meta.dirname, "../../scripts/lib/temporary-postgres.ts");
    const program = `
      import { startTemporaryPostgres } from ${JSON.stringify(starter)};
      const { dataDir } = await startTemporaryPostgres();
      console.log(dataDir);
      setInterval(() => undefined, 1000);`;
    const child = spawn(process.execPath, ["--input-type=module", "-e", program], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    const [output] = await once(child.stdout, "data");
    const dataDir = String(output).trim();
    expect(existsSync(path.join(dataDir, "postmaster.pid"))).toBe(true);
    child.kill("SIGKILL");
    await expect.poll(() => existsSync(path.dirname(dataDir)), { timeout: 10_000 }).toBe(false);
  });

  test("leaves nothing behind where it is stopped", async () => {
    const postgres = await startTemporaryPostgres();
    expect(await query(postgres, "SHOW fsync")).toEqual(["off"]);
    await postgres.stop();
    expect(existsSync(path.dirname(postgres.dataDir))).toBe(false);
  });
});
