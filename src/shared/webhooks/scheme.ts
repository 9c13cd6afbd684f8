import type { Result } from "../result.ts";
import type { WebhookDescription } from "./description.ts";
import type { Bytes } from "./encoding.ts";

/** A webhook request exactly as it was received. */
export interface WebhookRequest {
  readonly method: string;
  /** The whole URL that the provider called, query included. Behind a proxy it isn't the one that the Worker sees. */
  readonly url: string;
  readonly headers: Headers;
  /** The bytes as they came: nothing has parsed, decoded or normalised them. */
  readonly body: Uint8Array<ArrayBuffer>;
}

declare const verified: unique symbol;

/** A request that a verifier vouches for: {@link accept} makes it, and nothing else of it may be recorded. */
export type VerifiedRequest = WebhookRequest & { readonly [verified]: true };

/** Marks a request as verified: for the verifiers of this folder, at the one place of each where its signature was found right. */
export function accept(request: WebhookRequest): VerifiedRequest {
  return request as VerifiedRequest;
}

/**
 * Why a request isn't accepted. `refused`: it isn't genuine, or too old. `unavailable`: we couldn't tell, because a key that has to be
 * fetched couldn't be. The reason is for our log: it quotes no secret, no signature and nothing of the body.
 */
export interface NotVerified {
  readonly status: "refused" | "unavailable";
  readonly reason: string;
}

/** What a verification needs beside the request and its secrets. */
export interface VerifyContext {
  readonly now: Date;
  /** For keys and certificates that a provider publishes. */
  readonly fetch: (request: Request) => Promise<Response>;
}

/** What a provider wants to hear before it sends events. */
export interface HandshakeAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | null;
}

/** How one provider signs, described once, without secrets: `stripe()`, `github()`, `hmac({…})`. */
export interface WebhookScheme {
  /** Stands in logs and errors: "stripe". */
  readonly name: string;
  /** Whether a source has to name a variable with its secrets. `none`: the provider publishes its keys. */
  readonly secrets: "required" | "none";
  /** Further variables that it reads, by name. */
  readonly variables: readonly string[];
  /** The provider's own id of a delivery, the same in every retry; `undefined` where it has none, or the request lacks it. Never throws. */
  deliveryId(request: WebhookRequest, payload: unknown): string | undefined;
  /**
   * Takes the secrets in: all of them verify, the first one signs.
   *
   * @param secrets as configured, at least one where they are required
   * @param variables the further variables, by name
   * @returns what verifies, or what is wrong with a secret, without quoting it: "is not whsec_ and base64: …"
   */
  ready(secrets: readonly string[], variables: Readonly<Record<string, string>>): Result<ReadyScheme, string>;
}

/** A scheme with its secrets. None of it throws, whatever a request holds. */
export interface ReadyScheme {
  /** Whether a request is genuine, by the bytes of its body. Compares in constant time. */
  verify(request: WebhookRequest, context: VerifyContext): Promise<Result<VerifiedRequest, NotVerified>>;
  /** Answers what a provider asks unsigned, by GET or OPTIONS; `null` where the request isn't that. */
  readonly greet?: (request: WebhookRequest) => Promise<HandshakeAnswer | null>;
  /** Answers a signed request that is a handshake and no event; `null` where it is an event. */
  readonly answer?: (request: VerifiedRequest, context: VerifyContext) => Promise<HandshakeAnswer | null>;
  /** What a webhook is signed with by hand, see sign.ts; absent where only the provider can. */
  readonly signing?: Signing;
}

/** What signs as a provider does. It is data, so that what uses it isn't in the Worker. */
export interface Signing {
  readonly description: WebhookDescription;
  /** The signature of a content, by the first secret. Throws where the content can't be signed. */
  readonly mac: (content: Bytes) => Promise<Bytes>;
  /** The request as it is to be sent, and as the description signs it, where that isn't the same; `null` where it can't be signed. */
  readonly asSigned?: (
    request: WebhookRequest,
  ) => Promise<{ readonly sent: WebhookRequest; readonly signed: WebhookRequest } | null>;
}
