import { err, ok } from "../../result.ts";
import { signCallbackId } from "../../signature.ts";
import type { Label } from "../description.ts";
import { fromHex } from "../encoding.ts";
import { describedScheme } from "../engine.ts";
import { signing } from "../keys.ts";
import type { WebhookScheme } from "../scheme.ts";
import { token } from "../token.ts";

/** What may be said about a provider that sends a secret in a header. */
export interface SharedHeaderOptions {
  /** The header, such as "X-Gitlab-Token". */
  readonly header: string;
  /** What stands before the secret, such as "Bearer ". */
  readonly label?: Label;
  /** The delivery's id as a template of places, where the provider has one: "{body:transcript_id}". */
  readonly deliveryId?: string;
}

/**
 * A provider that signs nothing and sends a secret of ours in a header, compared in constant time. Whoever sees a request once can
 * send any other: let the secret be long, and the URL https.
 *
 * AssemblyAI (a header of one's choice), Deepgram (`dg-token`), GitLab (`X-Gitlab-Token`), Telegram
 * (`X-Telegram-Bot-Api-Secret-Token`), Hugging Face (`X-Webhook-Secret`), CloudEvents (`Authorization`, `Bearer `).
 * https://www.assemblyai.com/docs/deployment/webhooks
 */
export function sharedHeader({ header, label, deliveryId }: SharedHeaderOptions): WebhookScheme {
  return token({
    name: "shared-header",
    algorithm: "token",
    signature: { from: `header:${header}`, ...(label !== undefined && { label }) },
    ...(deliveryId !== undefined && { deliveryId }),
  });
}

/**
 * Awa: BLAKE3 of the callback's id as it stands in the path, and of nothing else; the secret is 64 hexadecimal digits. One signature
 * does for whatever is sent to that id.
 *
 * @param after the segment of the URL's path before the callback's id: at `/webhooks/<source>/<callback id>` the name of the source
 */
export function awa({ after }: { readonly after: string }): WebhookScheme {
  return describedScheme(
    {
      name: "awa",
      algorithm: "blake3",
      key: "hex",
      signature: { from: "header:X-Awa-Signature", encoding: "hex" },
      content: `{segment:${after}}`,
    },
    (secret) =>
      /^[0-9a-f]{64}$/i.test(secret)
        ? ok(signing(async (content) => fromHex(signCallbackId(secret, text(content))) ?? new Uint8Array()))
        : err("is not 64 hexadecimal digits"),
  );
}

/** @throws TypeError for what isn't UTF-8 */
function text(bytes: Uint8Array): string {
  return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
}
