import { execFile, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import path from "node:path";
import fc from "fast-check";
import * as v from "valibot";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { curlCommand } from "../../scripts/lib/curl-command.ts";
import { signedWebhook, type WebhookDraft } from "../../scripts/lib/signed-webhook.ts";
import { defineRegistry } from "../../src/shared/registry/define.ts";
import { complete } from "../../src/shared/registry/source.ts";
import { parseSources } from "../../src/shared/source-env.ts";
import type { WebhookRequest } from "../../src/shared/webhooks/scheme.ts";
import { awa } from "../../src/webhooks.ts";
import { SOURCE_SECRETS } from "../support/signed.ts";
import { ENTRIES, readyWith, VERIFY_TOKEN } from "../support/webhook-schemes.ts";

const NOW = new Date("2026-01-02T03:04:05.678Z");
const ID = "5f6a2c1e-0000-4000-8000-000000000001";
const SECRETS: Readonly<Record<string, string>> = { ...SOURCE_SECRETS, [VERIFY_TOKEN]: "t0ken" };

/** Every scheme of the engine as a source, by its own name. */
const registry = defineRegistry({});
const env: Record<string, string> = { ...SECRETS };
for (const [name, { make, otherSecret }] of Object.entries(ENTRIES)) {
  const secret = `SECRET_OF_${name.replaceAll("-", "_")}`;
  env[secret] = otherSecret;
  // It signs what follows a segment of the path: here the source's name.
  const scheme = name === "awa" ? awa({ after: "awa" }) : make();
  registry.webhook(name, { scheme, secret, payload: v.unknown(), meaning: () => complete() });
}
const sources = parseSources(env, registry.sources());
const readyOf = (name: string) => {
  const scheme = sources.get(name)?.scheme;
  return scheme?.ok ? scheme.value : expect.fail(`${name} isn't ready`);
};
const SIGNING = Object.keys(ENTRIES).filter((name) => readyOf(name).signing !== undefined);

const sign = (draft: Partial<WebhookDraft> = {}) =>
  signedWebhook(registry, env, {
    source: "github",
    body: "{}",
    baseUrl: "https://edge.example",
    deliveryId: ID,
    headers: [],
    now: NOW,
    ...draft,
  });
const command = async (draft: Partial<WebhookDraft> = {}) => curlCommand(await sign(draft));

/** Runs commands in a shell in which `curl` tells its arguments. */
function argumentsOf(commands: readonly string[], shell = "sh"): readonly (readonly string[])[] {
  const script = ["curl() { printf '%s\\0' \"$@\" --end; }", ...commands].join("\n");
  const { status, stdout, stderr } = spawnSync(shell, ["-s"], { input: script, encoding: "utf8" });
  expect([status, stderr]).toEqual([0, ""]);
  return stdout
    .split("--end\0")
    .slice(0, -1)
    .map((words) => words.split("\0").slice(0, -1));
}

/** The request that curl would make of its arguments, of which it knows no others here. */
function requestOf(words: readonly string[]): WebhookRequest {
  const headers = new Headers();
  const request = { method: "", url: "", body: "" };
  const rest = words.values();
  const next = () => rest.next().value ?? expect.fail("an option without its value");
  for (const word of rest) {
    if (word === "-i") continue;
    if (word === "-X") request.method = next();
    else if (word === "-H") headers.append(...headerOf(next()));
    else if (word === "--data-raw") request.body = next();
    else if (request.url === "" && !word.startsWith("-")) request.url = word;
    else expect.fail(`not understood: ${word}`);
  }
  return { ...request, headers, body: new Uint8Array(new TextEncoder().encode(request.body)) };
}
function headerOf(line: string): [string, string] {
  const [, name = "", value = ""] = /^([^:]+): (.*)$/s.exec(line) ?? [];
  return [name, value];
}

const verdictOn = (name: string, request: WebhookRequest) =>
  readyOf(name).verify(request, { now: NOW, fetch: () => Promise.reject(new Error("nothing is fetched")) });
const textOf = ({ body }: WebhookRequest) => new TextDecoder("utf-8", { ignoreBOM: true }).decode(body);

const BODIES = [
  "",
  "it's 'quoted' \"twice\" and '''thrice'''",
  "line\nbreaks\r\nand\ttabs\n\n",
  "$HOME $1 $(id) `id` $'\\n' !! \\ \\\\ \\' %s * ? ~ # ; & | < >",
  "grüße, 日本語, 👩‍👩‍👧, \u2028 \u00a0",
  "\ufeffafter a byte order mark",
  "@/etc/hostname",
  "-d --data-raw",
];

/** Some of its fields are signed, and have to be there. */
const ADYEN = JSON.stringify({
  notificationItems: [
    {
      NotificationRequestItem: {
        pspReference: "it's one",
        merchantAccountCode: "m",
        eventCode: "AUTHORISATION",
        success: "true",
        amount: { value: 10, currency: "EUR" },
      },
    },
  ],
});

describe.runIf(process.platform !== "win32")("the printed command, run by a shell", () => {
  test.each(["sh", "bash"])("%s hands the body on, byte for byte, and it verifies", async (shell) => {
    const commands = await Promise.all(BODIES.map((body) => command({ body })));
    const requests = argumentsOf(commands, shell).map(requestOf);
    expect(requests.map(textOf)).toEqual(BODIES);
    for (const request of requests) expect(await verdictOn("github", request)).toMatchObject({ ok: true });
  });

  test("any text whatsoever", async () => {
    const text = fc
      .string({ unit: "binary", size: "medium" })
      .map((any) => any.replaceAll("\0", "").toWellFormed());
    await fc.assert(
      fc.asyncProperty(fc.array(text, { minLength: 10, maxLength: 20 }), async (bodies) => {
        const commands = await Promise.all(bodies.map((body) => command({ body })));
        expect(argumentsOf(commands).map(requestOf).map(textOf)).toEqual(bodies);
      }),
      { numRuns: 20 },
    );
  });

  test("every scheme that can be signed for: what arrives verifies, and nothing else does", async () => {
    expect(SIGNING.length).toBeGreaterThan(30);
    const body = '{"id": "evt_1", "text": "it\'s \\"5 $\\" – früh"}';
    const commands = await Promise.all(
      SIGNING.map((source) =>
        command({
          source,
          body: source === "adyen" ? ADYEN : body,
          callbackId: source === "awa" ? ID : undefined,
        }),
      ),
    );
    const requests = argumentsOf(commands).map(requestOf);
    for (const [i, source] of SIGNING.entries()) {
      const request = requests[i] ?? expect.fail("a command is missing");
      expect([source, await verdictOn(source, request)]).toMatchObject([source, { ok: true }]);
      const headers = new Headers([...request.headers].filter(([name]) => name === "content-type"));
      const unsigned = { ...request, headers, url: "https://edge.example/", body: new Uint8Array() };
      expect([source, await verdictOn(source, unsigned)]).toMatchObject([source, { ok: false }]);
    }
  });

  test("its URL names source and callback; its headers are the given ones, JSON where they don't say what it is", async () => {
    const callbackId = "0a1b2c3d-4e5f-4a6b-8c7d-9e0f1a2b3c4d";
    const given = [
      ["X-GitHub-Event", "it's $HOME"],
      ["Content-Type", "application/x-www-form-urlencoded"],
    ] as const;
    const [plain, full] = argumentsOf([await command(), await command({ callbackId, headers: given })]).map(
      requestOf,
    );
    expect(plain).toMatchObject({ method: "POST", url: "https://edge.example/webhooks/github" });
    expect(plain?.headers.get("Content-Type")).toBe("application/json");
    expect(full?.url).toBe(`https://edge.example/webhooks/github/${callbackId}`);
    expect(full?.headers.get("Content-Type")).toBe("application/x-www-form-urlencoded");
    expect(full?.headers.get("X-GitHub-Event")).toBe("it's $HOME");
    expect(full?.headers.get("X-GitHub-Delivery")).toBe(ID);
  });

  test("the same delivery signed again is the same command: a redelivery", async () => {
    expect(await command()).toBe(await command());
    expect(await command({ deliveryId: "another" })).not.toBe(await command());
  });

  const hasCurl = spawnSync("curl", ["--version"]).status === 0;
  test.runIf(hasCurl)("curl itself sends those bytes", async () => {
    const received: WebhookRequest[] = [];
    const server = createServer(async (request, response) => {
      const chunks: Buffer[] = [];
      for await (const chunk of request) chunks.push(chunk);
      const headers = new Headers();
      for (const [name, value] of Object.entries(request.headers)) headers.set(name, String(value));
      const url = `http://127.0.0.1${request.url}`;
      received.push({
        method: request.method ?? "",
        url,
        headers,
        body: new Uint8Array(Buffer.concat(chunks)),
      });
      response.end("{}");
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const address = server.address();
    if (address === null || typeof address === "string") throw new Error("no port");
    try {
      for (const body of BODIES) {
        const sent = await command({ body, baseUrl: `http://127.0.0.1:${address.port}` });
        await new Promise<void>((resolve, reject) =>
          execFile("sh", ["-c", sent.replace("curl ", "curl -q --noproxy '*' ")], (thrown) =>
            thrown === null ? resolve() : reject(thrown),
          ),
        );
      }
    } finally {
      server.close();
    }
    expect(received.map(textOf)).toEqual(BODIES);
    for (const request of received) expect(await verdictOn("github", request)).toMatchObject({ ok: true });
  });
});

describe("what can't be signed", () => {
  test.each([
    ["an unknown source", { source: "nobody" }, /no source nobody\. It has: standard-webhooks, svix,/],
    ["one whose provider has the key", { source: "discord" }, /discord signs with a key that only its/],
    ["a header that can't be", { headers: [["X-A", "a\nb"]] as const }, /header/i],
  ])("%s", async (_, draft, error) => {
    await expect(sign(draft)).rejects.toThrow(error);
  });
  test.each(["adyen", "awa"])("a request without what %s signs", async (source) => {
    await expect(sign({ source })).rejects.toThrow(`Something that ${source} signs is missing`);
  });
  test("a secret that isn't set, or is wrong: the variable is named, and not quoted", async () => {
    const without = { ...env, SECRET_OF_svix: "" };
    const draft = { source: "svix", body: "{}", baseUrl: "x:", deliveryId: ID, headers: [], now: NOW };
    await expect(signedWebhook(registry, without, draft)).rejects.toThrow("SECRET_OF_svix is not set");
    const wrong = { ...env, SECRET_OF_svix: "whsec_hunter2!" };
    const error = await signedWebhook(registry, wrong, draft).catch(String);
    expect(error).toContain("SECRET_OF_svix: is not whsec_ and base64");
    expect(error).not.toContain("hunter2");
  });
  test("a registry without sources says so", async () => {
    const draft = { source: "x", body: "", baseUrl: "x:", deliveryId: ID, headers: [], now: NOW };
    await expect(signedWebhook(defineRegistry({}), {}, draft)).rejects.toThrow("It has: none.");
  });
});

describe("npm run sign", () => {
  let folder: string;
  beforeAll(() => {
    folder = mkdtempSync(path.join(tmpdir(), "awa-edge-sign-"));
  });
  afterAll(() => rmSync(folder, { recursive: true }));

  function run(...args: readonly string[]) {
    const script = path.resolve(import.meta.dirname, "../../scripts/sign.ts");
    const variables = { ...process.env, ...SOURCE_SECRETS };
    const options = { env: { ...variables, AWA_CALLBACK_BASE_URL: "https://edge.example/" } };
    return new Promise<{ code: unknown; stdout: string; stderr: string }>((resolve) =>
      execFile(process.execPath, [script, ...args], options, (thrown, stdout, stderr) =>
        resolve({ code: thrown?.code ?? 0, stdout, stderr }),
      ),
    );
  }

  test("prints one command, for the body of a file too", async () => {
    const file = path.join(folder, "body.json");
    const body = '\ufeff{"text": "it\'s früh"}\n';
    writeFileSync(file, body);
    const { code, stdout, stderr } = await run(
      "github",
      "--body-file",
      file,
      "--id",
      ID,
      "--header",
      "X-A:b",
    );
    expect([code, stderr]).toEqual([0, ""]);
    for (const secret of Object.values(SOURCE_SECRETS)) expect(stdout).not.toContain(secret);
    const [words = []] = argumentsOf([stdout]);
    const request = requestOf(words);
    expect(request.url).toBe("https://edge.example/webhooks/github");
    expect(textOf(request)).toBe(body);
    expect(request.headers.get("X-A")).toBe("b");
    const context = { now: NOW, fetch: () => Promise.reject(new Error("nothing is fetched")) };
    const ready = readyWith(ENTRIES.github?.make() ?? expect.fail(), SOURCE_SECRETS.GITHUB_WEBHOOK_SECRET);
    expect(await ready.verify(request, context)).toMatchObject({ ok: true });
  });

  test.each([
    ["no source", [], /npm run sign -- <source>/],
    ["an unknown one", ["nobody"], /no source nobody\. It has: stripe, github, carrier, replicate\./],
    ["an unknown option", ["stripe", "--bodi", "{}"], /--bodi/],
    ["two bodies", ["stripe", "--body", "{}", "--body-file", "x"], /give one of them/],
    ["no such file", ["stripe", "--body-file", "/nowhere/body.json"], /\/nowhere\/body\.json/],
    ["a header without a colon", ["stripe", "--header", "X-A"], /--header takes 'name: value', not "X-A"/],
    ["a callback id that is none", ["stripe", "--callback", "abc"], /--callback takes a callback's id/],
  ])("%s: exit code 1, one message, and nothing to be run", async (_, args, error) => {
    const { code, stdout, stderr } = await run(...args);
    expect([code, stdout]).toEqual([1, ""]);
    expect(stderr).toMatch(error);
    expect(stderr).not.toMatch(/\n {4}at /);
    for (const secret of Object.values(SOURCE_SECRETS)) expect(stderr).not.toContain(secret);
  });
});
