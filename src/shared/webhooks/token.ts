import { err, ok } from "../result.ts";
import type { TokenSent } from "./description.ts";
import { utf8 } from "./encoding.ts";
import { describedScheme } from "./engine.ts";
import { signing } from "./keys.ts";
import type { WebhookScheme } from "./scheme.ts";

/** A provider that signs nothing: the secret itself comes with the request, and is compared in constant time. */
export function token(description: TokenSent): WebhookScheme {
  return describedScheme(description, (secret) =>
    // A header holds nothing else, so that such a secret would never fit.
    /^[\x20-\x7e]+$/.test(secret)
      ? ok(signing(async () => utf8(secret)))
      : err("has characters that no header can have"),
  );
}
