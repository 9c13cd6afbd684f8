// npm run sign -- <source>: prints a webhook of a source as a curl command, signed with the secret of .dev.vars or the environment.

import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import path from "node:path";
import { parseArgs } from "node:util";
import { registry } from "../src/registry.ts";
import { parseCallbackId } from "../src/shared/ids.ts";
import { curlCommand } from "./lib/curl-command.ts";
import { readDevVars } from "./lib/dev-vars.ts";
import { REPOSITORY } from "./lib/local-stack.ts";
import { errorMessage } from "./lib/processes.ts";
import { signedWebhook } from "./lib/signed-webhook.ts";

const USAGE = `npm run sign -- <source> [options]

  --body <text>        the body to sign (default: {})
  --body-file <file>   the same, from a file
  --callback <id>      the callback id that the URL is to name
  --id <id>            the provider's id of the delivery (default: a new one)
  --header <n: v>      a further header, for example 'X-GitHub-Event: deployment_status'; may come several times
  --url <url>          where the Worker is (default: AWA_CALLBACK_BASE_URL, or http://127.0.0.1:8787)`;

try {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      body: { type: "string" },
      "body-file": { type: "string" },
      callback: { type: "string" },
      id: { type: "string" },
      header: { type: "string", multiple: true },
      url: { type: "string" },
    },
  });
  const [source, ...more] = positionals;
  if (source === undefined || more.length > 0) throw new Error(USAGE);
  const file = values["body-file"];
  if (values.body !== undefined && file !== undefined)
    throw new Error("--body and --body-file: give one of them.");
  if (values.callback !== undefined && parseCallbackId(values.callback) === null)
    throw new Error("--callback takes a callback's id, which is a UUID.");
  const env = { ...Object.fromEntries(readDevVars(path.join(REPOSITORY, ".dev.vars"))), ...process.env };
  const request = await signedWebhook(registry, env, {
    source,
    body: file === undefined ? (values.body ?? "{}") : readFileSync(file, "utf8"),
    baseUrl: (values.url ?? (env.AWA_CALLBACK_BASE_URL || "http://127.0.0.1:8787")).replace(/\/+$/, ""),
    callbackId: values.callback,
    deliveryId: values.id ?? randomUUID(),
    headers: (values.header ?? []).map(parseHeader),
    now: new Date(),
  });
  console.log(curlCommand(request));
} catch (thrown) {
  console.error(errorMessage(thrown));
  process.exitCode = 1;
}

function parseHeader(text: string): [string, string] {
  const at = text.indexOf(":");
  if (at < 1) throw new Error(`--header takes 'name: value', not ${JSON.stringify(text)}.`);
  return [text.slice(0, at), text.slice(at + 1).trim()];
}
