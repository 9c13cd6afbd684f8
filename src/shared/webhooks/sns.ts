import { err, ok, type Result } from "../result.ts";
import { fromBase64, utf8 } from "./encoding.ts";
import { fieldsOf } from "./jwks.ts";
import { sourceOf, textOf } from "./places.ts";
import {
  accept,
  type HandshakeAnswer,
  type VerifyContext,
  type WebhookRequest,
  type WebhookScheme,
} from "./scheme.ts";
import { certificates, type RsaSigned } from "./x509.ts";

/**
 * SNS and nothing else of AWS. A region is letters and a number at the end: looser patterns take `sns.s3-us-west-2.amazonaws.com`,
 * which is a bucket of somebody's.
 */
const HOST = String.raw`https://sns\.(?:[a-z]+-)+\d+\.amazonaws\.com(?:\.cn)?`;
const CERTIFICATE_URL = new RegExp(String.raw`^${HOST}/SimpleNotificationService-[\w-]+\.pem$`);
const SUBSCRIBE_URL = new RegExp(String.raw`^${HOST}/\?Action=ConfirmSubscription&[\w.~:/?&=%+-]+$`);
const TOPIC_ARN = /^arn:aws[\w-]*:sns:[\w-]+:\d+:[\w.-]+$/;
const CONFIRM_TIMEOUT_MS = 5_000;

/** What is signed of a message by its type, in this order. */
const CONFIRMATION = ["Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"];
const SIGNED = new Map<unknown, readonly string[]>([
  ["Notification", ["Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type"]],
  ["SubscriptionConfirmation", CONFIRMATION],
  ["UnsubscribeConfirmation", CONFIRMATION],
]);
/** By SignatureVersion. */
const HASHES = new Map<unknown, RsaSigned["hash"]>([
  ["1", "SHA-1"],
  ["2", "SHA-256"],
]);

/** Whose messages are taken. */
export interface SnsOptions {
  /** The topics: SNS signs anyone's messages, and anyone could subscribe our URL to theirs. */
  readonly topicArns: readonly string[];
  /**
   * How long ago a message may have been published, in seconds. Retries keep the first time, and SNS can be told to go on for days,
   * so that it wants to be hours at least; what tells a message that comes again is the delivery's id.
   *
   * @default as long as one likes
   */
  readonly maxAgeSeconds?: number;
}

/**
 * Amazon SNS over https, SignatureVersion 1 and 2; no secret. A subscription to one of the topics is confirmed by itself.
 * https://docs.aws.amazon.com/sns/latest/dg/sns-verify-signature-of-message.html
 *
 * Raw message delivery isn't signed, and refused. Attributes and UnsubscribeURL aren't signed either. A delivery's id is its MessageId.
 *
 * @throws Error where a topic's ARN isn't one, or there is none
 */
export function sns({ topicArns, maxAgeSeconds = Number.POSITIVE_INFINITY }: SnsOptions): WebhookScheme {
  if (topicArns.length === 0) throw new Error("the webhook scheme sns wants the ARNs of its topics");
  const wrong = topicArns.find((arn) => !TOPIC_ARN.test(arn));
  if (wrong !== undefined) throw new Error(`the webhook scheme sns: "${wrong}" isn't the ARN of a topic`);
  const known = certificates({ chain: false });
  return {
    name: "sns",
    secrets: "none",
    variables: [],
    deliveryId: (_, payload) => textOf(fieldsOf(payload).MessageId),
    ready: () =>
      ok({
        async verify(request, context) {
          const signed = signedOf(request, context.now);
          if (!signed.ok) return err({ status: "refused", reason: signed.error });
          const fits = await known.fits(signed.value, context);
          return fits.ok ? ok(accept(request)) : fits;
        },
        async answer(request, context) {
          const { Type, SubscribeURL } = fieldsOf(sourceOf(request).json());
          if (Type === "Notification") return null;
          const confirmed = Type !== "SubscriptionConfirmation" || (await confirm(SubscribeURL, context));
          // Not a 2xx: SNS asks again.
          return answerWith(confirmed ? 200 : 502);
        },
      }),
  };

  /** What a message's signature is to be checked by, or why it isn't genuine. */
  function signedOf(request: WebhookRequest, now: Date): Result<RsaSigned, string> {
    if (request.headers.has("x-amz-sns-rawdelivery"))
      return err("raw message delivery is on: it isn't signed");
    const message = fieldsOf(sourceOf(request).json());
    const { Type, TopicArn, Timestamp, SignatureVersion, Signature, SigningCertURL } = message;
    const names = SIGNED.get(Type);
    if (names === undefined) return err("it isn't a message of SNS");
    if (typeof TopicArn !== "string" || !topicArns.includes(TopicArn)) return err("it is of another topic");
    const hash = HASHES.get(SignatureVersion);
    if (hash === undefined) return err("it is signed by a version that isn't 1 or 2");
    const signature = typeof Signature === "string" ? fromBase64(Signature) : null;
    if (signature === null) return err("it has no signature of the right form");
    if (typeof SigningCertURL !== "string" || !CERTIFICATE_URL.test(SigningCertURL)) {
      return err("its certificate isn't one of SNS");
    }
    const age = now.getTime() - Date.parse(String(Timestamp));
    if (!(age <= maxAgeSeconds * 1000)) return err("it was published too long ago");
    let content = "";
    for (const name of names) {
      const value = message[name];
      if (name === "Subject" && (value === undefined || value === null)) continue;
      // Names and values are told apart by line breaks alone: only a message may have some.
      if (typeof value !== "string" || (name !== "Message" && value.includes("\n"))) {
        return err(`it has no ${name} of the right form`);
      }
      content += `${name}\n${value}\n`;
    }
    return ok({ certificateUrl: SigningCertURL, hash, signature, contents: [utf8(content)] });
  }
}

function answerWith(status: number): HandshakeAnswer {
  return { status, headers: {}, body: null };
}

/** Confirms a subscription by a GET of the URL that SNS sent, and signed. */
async function confirm(url: unknown, { fetch }: VerifyContext): Promise<boolean> {
  if (typeof url !== "string" || !SUBSCRIBE_URL.test(url)) return false;
  try {
    const signal = AbortSignal.timeout(CONFIRM_TIMEOUT_MS);
    const { status, body } = await fetch(new Request(url, { redirect: "manual", signal }));
    await body?.cancel();
    return status === 200;
  } catch {
    return false;
  }
}
