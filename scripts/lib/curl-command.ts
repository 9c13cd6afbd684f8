import type { WebhookRequest } from "../../src/shared/webhooks/scheme.ts";

/** A shell command that sends a request. */
export function curlCommand({ method, url, headers, body }: WebhookRequest): string {
  const lines = [
    `curl -i -X ${method} ${quoted(url)}`,
    ...[...headers].map(([name, value]) => `  -H ${quoted(`${name}: ${value}`)}`),
    // Raw: elsewhere a body that begins with @ would be taken for the name of a file. A byte order mark is signed, and stays.
    `  --data-raw ${quoted(new TextDecoder("utf-8", { ignoreBOM: true }).decode(body))}`,
  ];
  return lines.join(" \\\n");
}

/** A word for a POSIX shell. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}
