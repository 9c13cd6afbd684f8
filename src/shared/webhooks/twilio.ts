import { err, ok, type Result } from "../result.ts";
import { toHex } from "./encoding.ts";
import { hmac } from "./hmac.ts";
import { accept, type NotVerified, type WebhookRequest, type WebhookScheme } from "./scheme.ts";

const FORM = /^application\/x-www-form-urlencoded\b/i;
const HASH_PARAMETER = "bodySHA256";

/** What may be said about Twilio. */
export interface TwilioOptions {
  /**
   * What Twilio knows us by, where a proxy makes another of it: "https://hooks.example.com". Path and query are those of the
   * request. A name and a password for basic authentication belong to it, since Twilio signs them: "https://user:password@…".
   *
   * @default the URL as the request has it
   */
  readonly publicUrl?: string;
}

/**
 * Twilio: HMAC-SHA1 of the URL and the form's fields, by the Auth Token, which is the secret.
 * https://www.twilio.com/docs/usage/webhooks/webhooks-security
 *
 * A body that is no form is signed by its hash, which the URL carries as `bodySHA256`. Names and values of a form stand side by side
 * in what is signed, so that `ab=c` and `a=bc` have the same signature. There is no time: the delivery's id tells a request that
 * comes again. It is `I-Twilio-Idempotency-Token`, which isn't signed, or else a message, or a call's status, and its state.
 *
 * @throws Error where the public URL isn't an origin
 */
export function twilio({ publicUrl }: TwilioOptions = {}): WebhookScheme {
  const origin = publicUrl === undefined ? undefined : originOf(publicUrl);
  const base = hmac({
    name: "twilio",
    algorithm: "hmac-sha1",
    key: "utf8",
    signature: { from: "header:X-Twilio-Signature", encoding: "base64" },
    content: "{url}",
    // A call in progress may well ask for several things: only its numbered status callbacks are told apart by its state.
    deliveryId: [
      "{header:I-Twilio-Idempotency-Token}",
      "{body:MessageSid}:{body:MessageStatus}",
      "{body:CallSid}:{body:CallStatus}:{body:SequenceNumber}",
    ],
  });
  return {
    ...base,
    ready(secrets, variables) {
      const ready = base.ready(secrets, variables);
      if (!ready.ok) return ready;
      const { verify, signing } = ready.value;
      return ok({
        async verify(request, context) {
          const fields = await signedFields(request);
          if (!fields.ok) return err({ status: "refused", reason: fields.error });
          let reason: NotVerified = { status: "refused", reason: "its URL is none" };
          for (const url of candidatesOf(request.url, origin)) {
            const verdict = await verify({ ...request, url: url + fields.value }, context);
            if (verdict.ok) return ok(accept(request));
            reason = verdict.error;
          }
          return err(reason);
        },
        ...(signing !== undefined && {
          signing: {
            ...signing,
            async asSigned(request) {
              const sent = await withHash(request);
              const fields = await signedFields(sent);
              const [url] = candidatesOf(sent.url, origin);
              return fields.ok && url !== undefined
                ? { sent, signed: { ...sent, url: url + fields.value } }
                : null;
            },
          },
        }),
      });
    },
  };
}

/** An origin, with a name and a password where it has them. */
function originOf(url: string): string {
  const parsed = URL.canParse(url) ? new URL(url) : undefined;
  if (
    parsed === undefined ||
    !/^https?:$/.test(parsed.protocol) ||
    parsed.href !== `${withoutPath(parsed)}/`
  ) {
    throw new Error("the webhook scheme twilio: publicUrl isn't an origin such as https://hooks.example.com");
  }
  return withoutPath(parsed);
}

function withoutPath({ protocol, username, password, host }: URL, authority = host): string {
  const user = username + (password === "" ? "" : `:${password}`);
  return `${protocol}//${user === "" ? "" : `${user}@`}${authority}`;
}

/**
 * The URLs that Twilio may have signed, the likeliest first. It isn't of one mind about the port, which it sometimes names though it
 * is the usual one, and sometimes leaves out though it isn't; nor about escapes: `'` and `%27`, which the URL that a Worker sees has
 * for either. https://github.com/twilio/twilio-node/blob/main/src/webhooks/webhooks.ts
 */
function candidatesOf(given: string, origin: string | undefined): ReadonlySet<string> {
  if (!/^https?:/i.test(given) || !URL.canParse(given)) return new Set();
  const asked = new URL(given);
  asked.hash = "";
  const url = origin === undefined ? asked : new URL(`${origin}${asked.pathname}${asked.search}`);
  const urls = new Set(origin === undefined ? [given] : []);
  const usualPort = url.protocol === "https:" ? "443" : "80";
  const authorities = [url.host, url.hostname, `${url.hostname}:${url.port || usualPort}`];
  for (const search of [url.search, reencoded(url)]) {
    for (const authority of authorities) urls.add(withoutPath(url, authority) + url.pathname + search);
  }
  return urls;
}

/** The query as Node's old `querystring` writes it: `'` as it is, a space as `%20`. */
function reencoded({ search, searchParams }: URL): string {
  const pairs = [...searchParams].map((pair) => pair.map(encodeURIComponent).join("="));
  return search === "" ? "" : `?${pairs.join("&")}`;
}

/**
 * What of the body is signed behind the URL, or why the request isn't genuine. A hash in the URL decides, and not the content type:
 * that isn't signed, and would let someone send a form in the place of what was hashed.
 */
async function signedFields({ headers, body, url }: WebhookRequest): Promise<Result<string, string>> {
  const hash = URL.canParse(url) ? new URL(url).searchParams.get(HASH_PARAMETER) : null;
  if (hash !== null) {
    return hash.toLowerCase() === (await hashOf(body)) ? ok("") : err("its body isn't what its URL says");
  }
  if (body.length === 0) return ok("");
  if (!isForm(headers)) return err("its body is no form, and its URL has no hash of it");
  const text = new TextDecoder("utf-8", { fatal: false, ignoreBOM: true }).decode(body);
  const values = new Map<string, Set<string>>();
  for (const [name, value] of new URLSearchParams(text)) {
    values.set(name, (values.get(name) ?? new Set()).add(value));
  }
  const fields = [...values].toSorted(([a], [b]) => (a < b ? -1 : 1));
  return ok(fields.flatMap(([name, some]) => [...some].toSorted().map((value) => name + value)).join(""));
}

/** A request as it is signed: with its body's hash in the URL, where it is no form. */
async function withHash(request: WebhookRequest): Promise<WebhookRequest> {
  const { headers, body } = request;
  if (isForm(headers) || body.length === 0 || !URL.canParse(request.url)) return request;
  const url = new URL(request.url);
  url.searchParams.set(HASH_PARAMETER, await hashOf(body));
  return { ...request, url: url.href };
}

function isForm(headers: Headers): boolean {
  return FORM.test(headers.get("content-type") ?? "");
}

async function hashOf(body: Uint8Array<ArrayBuffer>): Promise<string> {
  return toHex(new Uint8Array(await crypto.subtle.digest("SHA-256", body)));
}
