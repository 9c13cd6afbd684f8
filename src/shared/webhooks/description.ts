/** A header, by its name. Sent twice it counts as missing. */
export type HeaderPlace = `header:${string}`;
/** A parameter of the URL's query. */
export type QueryPlace = `query:${string}`;
/** A field of a JSON body: names with dots between them, a number for a place in a list, `*` for the only item of a list. */
export type BodyPlace = `body:${string}`;
export type Place = HeaderPlace | QueryPlace | BodyPlace;

/** What a signature begins with: "sha256=", "v1,". One that begins otherwise is none. */
export type Label = `${string}${"=" | "," | " "}`;

/** Where the signature of a request stands, and in what form. */
export interface SignaturePlace {
  /**
   * One place, or headers that are all looked at. A header that ends in `-*` stands for that name with every number: `header:X-Sig-*`.
   * A place in the body is for signatures of single fields.
   */
  readonly from: HeaderPlace | QueryPlace | BodyPlace | readonly HeaderPlace[];
  /** What stands between several signatures, or between a signature and its fields. Each is trimmed. */
  readonly separator?: " " | "," | ";";
  readonly label?: Label;
  /** Both are read strictly: hexadecimal digits of either case, and base64 with its padding. */
  readonly encoding: "hex" | "base64";
}

/** When a request was signed, and how far from now that may be. */
export interface SignedTime {
  /** `field:t` is the item `t=…` beside the signature, of a header with a separator. It must be part of what is signed. */
  readonly from: HeaderPlace | BodyPlace | `field:${string}`;
  /** Unix seconds or milliseconds, in digits only, or a text such as `2019-11-16T10:11:12.634Z`. */
  readonly unit: "s" | "ms" | "rfc3339";
  /** Into the past and into the future alike; just as far is still accepted. */
  readonly toleranceSeconds: number;
}

interface Described {
  /** Stands in logs and errors: "stripe". */
  readonly name: string;
  /**
   * The provider's own id of a delivery, the same in every retry, as a template of places: `{header:webhook-id}`, `{body:id}`.
   * The first that the request has everything for counts.
   */
  readonly deliveryId?: string | readonly string[];
}

interface Signed extends Described {
  readonly signature: SignaturePlace;
  /**
   * What is signed, as a template of its bytes. Placeholders: `{body}`; `{timestamp}`, as it was received; `{url}`; `{decodedUrl}`,
   * HubSpot's form of it; `{method}`; `{sha256}`, of the body, in hexadecimal digits; and the places `{header:name}`, `{query:name}`,
   * `{segment:name}`, which is what follows that name in the path, and `{body:path}`. A place that ends in `?` may be missing; any
   * other that is missing makes the request refused.
   */
  readonly content: string;
  readonly timestamp?: SignedTime;
}

/** HMAC. */
export interface HmacSigned extends Signed {
  readonly algorithm: "hmac-sha1" | "hmac-sha256" | "hmac-sha512";
  /** How the secret becomes the key. `whsec`: base64, after `whsec_` where it has that. `utf8`: as it is, whatever it looks like. */
  readonly key: "utf8" | "whsec" | "base64" | "hex";
}

/** SHA-256 of the secret and then the content, without HMAC. Whoever has one signature can lengthen what it signs: only for old providers. */
export interface HashSigned extends Signed {
  readonly algorithm: "secret-then-content-sha256";
  readonly key: "utf8";
}

/** The BLAKE3 keyed hash, with a key of 32 bytes, of a content that is text. */
export interface Blake3Signed extends Signed {
  readonly algorithm: "blake3";
  readonly key: "hex";
}

/** Ed25519; the secret is the provider's public key of 32 bytes. `whpk`: base64 after `whpk_`. */
export interface Ed25519Signed extends Signed {
  readonly algorithm: "ed25519";
  readonly key: "hex" | "base64" | "whpk";
}

/** ECDSA on P-256 with SHA-256, the signature in DER; the secret is the provider's public key, as base64 of its SPKI. */
export interface EcdsaSigned extends Signed {
  readonly algorithm: "ecdsa-p256";
  readonly key: "spki";
}

/** No signature at all: the secret itself comes with the request. */
export interface TokenSent extends Described {
  readonly algorithm: "token";
  readonly signature: { readonly from: HeaderPlace | QueryPlace; readonly label?: Label };
}

/** The provider signs by a key that only it has. */
export type PublicKeySigned = Ed25519Signed | EcdsaSigned;

/** How a provider signs. */
export type WebhookDescription = HmacSigned | HashSigned | Blake3Signed | PublicKeySigned | TokenSent;
