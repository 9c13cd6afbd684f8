import { err, ok } from "../result.ts";
import { type Bytes, utf8 } from "./encoding.ts";
import { fieldsOf, fromBase64Url, jwks } from "./jwks.ts";
import { parseJson, readerOf, sourceOf, textOf } from "./places.ts";
import { accept, type WebhookRequest, type WebhookScheme } from "./scheme.ts";
import { fillText, templateOf } from "./template.ts";

const KEYS_URL = "https://www.googleapis.com/oauth2/v3/certs";
const RS256 = { name: "RSASSA-PKCS1-v1_5", hash: "SHA-256" };
/** 2048 bits: Google has no shorter keys. */
const MIN_MODULUS_BYTES = 256;
/** What Google's own libraries allow for clocks that differ. */
const LEEWAY_SECONDS = 300;

const readAuthorization = readerOf("header:Authorization");
const DELIVERY_IDS = [
  "{body:message.messageId}",
  "{header:X-CloudTasks-QueueName}/{header:X-CloudTasks-TaskName}",
  "{header:X-CloudScheduler-JobName}/{header:X-CloudScheduler-ScheduleTime}",
].map((template) => templateOf(template));

/** Who sends, and for whom. */
export interface GoogleOidcOptions {
  /** The audience that the subscription, task or job was set up with. Pub/Sub takes the push endpoint's URL where none was. */
  readonly audience: string;
  /** The service account that it was set up with. Anyone with a Google Cloud project can have tokens made for our audience. */
  readonly email: string;
  /**
   * Who may have made the token.
   *
   * @default ["https://accounts.google.com", "accounts.google.com"]
   */
  readonly issuers?: readonly string[];
}

/**
 * Google Cloud's pushes with an OIDC token: Pub/Sub, Cloud Tasks, Cloud Scheduler. No secret.
 * https://docs.cloud.google.com/pubsub/docs/authenticate-push-subscriptions
 *
 * The token is a JWT by RS256 and no other algorithm; it is good for an hour, give or take 300 s. The body isn't signed: whoever has
 * seen a token can send any other with it until then. A delivery's id is Pub/Sub's `messageId`, or the name of the task, or the job
 * and its time.
 *
 * Not `jose`: one algorithm is all that is wanted here, and Web Crypto does that in a fraction of its 7 kB.
 *
 * @throws Error where the audience or the email is empty
 */
export function googleOidc({
  audience,
  email,
  issuers = ["https://accounts.google.com", "accounts.google.com"],
}: GoogleOidcOptions): WebhookScheme {
  if (!audience || !email) throw new Error("the webhook scheme google-oidc wants an audience and an email");
  const keys = jwks(KEYS_URL, async ({ kty, alg = "RS256", use = "sig", n, e }) => {
    if (kty !== "RSA" || alg !== "RS256" || use !== "sig") return null;
    if (typeof n !== "string" || typeof e !== "string") return null;
    return (fromBase64Url(n)?.length ?? 0) >= MIN_MODULUS_BYTES
      ? crypto.subtle.importKey("jwk", { kty, n, e }, RS256, false, ["verify"])
      : null;
  });
  return {
    name: "google-oidc",
    secrets: "none",
    variables: [],
    deliveryId(request, payload) {
      const source = { request, json: () => payload };
      return DELIVERY_IDS.map((template) => fillText(template, source)).find((id) => id !== undefined);
    },
    ready: () =>
      ok({
        async verify(request, context) {
          const token = tokenOf(request);
          if (token === null) return err({ status: "refused", reason: "it has no bearer token by RS256" });
          // Looked at before the signature, so that nobody has Google's keys fetched by a token that wouldn't do.
          const reason = whyNot(token.claims, context.now);
          if (reason !== null) return err({ status: "refused", reason });
          const { keyId, signature, content } = token;
          const fits = await keys.fits(
            async ({ id, key }) =>
              id === keyId && (await crypto.subtle.verify(RS256.name, key, signature, content)),
            context,
          );
          return fits.ok ? ok(accept(request)) : fits;
        },
      }),
  };

  /** What is wrong with a token's claims; `null` where nothing is. */
  function whyNot({ aud, iss, exp, iat, ...claims }: Token["claims"], now: Date): string | null {
    const seconds = now.getTime() / 1000;
    if (aud !== audience) return "its token is for another audience";
    if (claims.email !== email || claims.email_verified !== true) return "its token is of someone else";
    if (typeof iss !== "string" || !issuers.includes(iss)) return "its token is of another issuer";
    if (typeof exp !== "number" || typeof iat !== "number")
      return "its token doesn't say how long it is good";
    return iat - LEEWAY_SECONDS <= seconds && seconds <= exp + LEEWAY_SECONDS
      ? null
      : "its token is over, or not good yet";
  }
}

interface Token {
  readonly keyId: string;
  readonly claims: Readonly<Record<string, unknown>>;
  readonly signature: Bytes;
  readonly content: Bytes;
}

/** The token of a request, nothing of it checked save its form; `null` where it has none by RS256. */
function tokenOf(request: WebhookRequest): Token | null {
  const authorization = textOf(readAuthorization(sourceOf(request))) ?? "";
  const [, header = "", payload = "", last = ""] =
    /^Bearer ([\w-]+)\.([\w-]+)\.([\w-]+)$/i.exec(authorization) ?? [];
  const signature = fromBase64Url(last);
  const { alg, kid, crit } = jsonOf(header);
  // What is critical would have to be understood; nothing of it is.
  if (signature === null || alg !== "RS256" || typeof kid !== "string" || crit !== undefined) return null;
  return { keyId: kid, claims: jsonOf(payload), signature, content: utf8(`${header}.${payload}`) };
}

function jsonOf(part: string): Readonly<Record<string, unknown>> {
  const bytes = fromBase64Url(part);
  return bytes === null ? {} : fieldsOf(parseJson(bytes));
}
