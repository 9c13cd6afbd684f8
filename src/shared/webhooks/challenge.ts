import { err, ok } from "../result.ts";
import type { Place, QueryPlace } from "./description.ts";
import { toHex, utf8 } from "./encoding.ts";
import { isAmong, whyBadText } from "./keys.ts";
import { type Read, readerOf, type Source, sourceOf, textOf } from "./places.ts";
import type {
  HandshakeAnswer,
  ReadyScheme,
  Signing,
  VerifyContext,
  WebhookRequest,
  WebhookScheme,
} from "./scheme.ts";

/** A value of an answer: a number as it is, a place of the request, or `mac:` and a path: the field's HMAC by our secret, as hex. */
export type AnswerValue = number | Place | `mac:${string}`;

/** A signed request that asks whether we are there, and what it wants to hear. */
export interface Challenge {
  /** Places and what stands there. `null`: nothing does. */
  readonly when: Readonly<Partial<Record<Place, string | null>>>;
  /** A text is answered by 200, as is JSON; nothing by 204. */
  readonly respond:
    | { readonly text: Place }
    | { readonly json: Readonly<Record<string, AnswerValue>> }
    | "nothing";
}

/** An unsigned GET that brings a token, and wants a value of its query back where the token is right. */
export interface Greeting {
  readonly when: Readonly<Partial<Record<QueryPlace, string>>>;
  readonly token: QueryPlace;
  /** The variable that holds the token. */
  readonly variable: string;
  readonly respond: { readonly text: QueryPlace };
}

/** What a provider asks before it sends events. */
export interface Handshakes {
  readonly challenges?: readonly Challenge[];
  readonly greeting?: Greeting;
}

/**
 * Adds to a scheme the answers to what its provider asks before it sends events. A challenge is answered after it was verified, and by
 * the secret that it is signed by, while secrets rotate.
 *
 * @throws Error for handshakes that can't be meant
 */
export function answering(scheme: WebhookScheme, { challenges = [], greeting }: Handshakes): WebhookScheme {
  const compiled = challenges.map(compileChallenge);
  const wantsMac = compiled.some(({ json = [] }) =>
    json.some(([, value]) => "isMac" in value && value.isMac),
  );
  const greet = greeting === undefined ? undefined : greetingOf(greeting);
  return {
    ...scheme,
    variables: greeting === undefined ? scheme.variables : [...scheme.variables, greeting.variable],
    ready(secrets, variables) {
      const ready = scheme.ready(secrets, variables);
      if (!ready.ok) return ready;
      // Of a token the MAC would be the token itself.
      if (wantsMac && !ready.value.signing?.description.algorithm.startsWith("hmac-")) {
        return err("is no key of an HMAC, which a challenge is to be answered by");
      }
      const token = greeting && (variables[greeting.variable] ?? "");
      const reason = token === undefined ? null : whyBadText(token);
      if (reason !== null) return err(`needs another variable, ${greeting?.variable}, which ${reason}`);
      const each = secrets.map((secret) => scheme.ready([secret], variables));
      const schemes = each.filter((one) => one.ok).map((one) => one.value);
      return ok({
        ...ready.value,
        ...(compiled.length > 0 && {
          answer: async (request, context) => {
            const source = sourceOf(request);
            const challenge = compiled.find(({ when }) => when(source));
            if (challenge === undefined) return (await ready.value.answer?.(request, context)) ?? null;
            return answerOf(challenge, source, () => signingOf(schemes, request, context));
          },
        }),
        ...(greet !== undefined && token !== undefined && { greet: (request) => greet(request, token) }),
      });
    },
  };
}

/** What a verified request is signed by. */
async function signingOf(
  schemes: readonly ReadyScheme[],
  request: WebhookRequest,
  context: VerifyContext,
): Promise<Signing | undefined> {
  for (const scheme of schemes) {
    if ((await scheme.verify(request, context)).ok) return scheme.signing;
  }
  return undefined;
}

type Value = { readonly number: number } | { readonly read: Read; readonly isMac: boolean };
type Condition = (source: Source) => boolean;

interface CompiledChallenge {
  readonly when: Condition;
  readonly text?: Read;
  readonly json?: readonly (readonly [name: string, value: Value])[];
}

function compileChallenge({ when, respond }: Challenge): CompiledChallenge {
  const condition = conditionOf(when);
  if (respond === "nothing") return { when: condition };
  if ("text" in respond) return { when: condition, text: readerOf(respond.text) };
  const json = Object.entries(respond.json).map(([field, value]): readonly [string, Value] => {
    if (typeof value === "number") return [field, { number: value }];
    const isMac = value.startsWith("mac:");
    return [field, { read: readerOf(isMac ? `body:${value.slice("mac:".length)}` : value), isMac }];
  });
  return { when: condition, json };
}

function conditionOf(when: Readonly<Record<string, string | null | undefined>>): Condition {
  const tests = Object.entries(when).map(([place, wanted]): Condition => {
    const read = readerOf(place);
    return (source) => {
      const value = read(source);
      return wanted === null ? value === undefined : textOf(value) === wanted;
    };
  });
  if (tests.length === 0) throw new Error("a challenge wants to say by what it is known");
  return (source) => tests.every((test) => test(source));
}

/** What a challenge wants to hear; `null` where it lacks what is to be answered. */
async function answerOf(
  { text, json }: CompiledChallenge,
  source: Source,
  signing: () => Promise<Signing | undefined>,
): Promise<HandshakeAnswer | null> {
  if (text !== undefined) return textAnswer(textOf(text(source)));
  if (json === undefined) return { status: 204, headers: {}, body: null };
  const fields: [string, unknown][] = [];
  for (const [name, value] of json) {
    if ("number" in value) {
      fields.push([name, value.number]);
      continue;
    }
    const given = textOf(value.read(source));
    const mac = given !== undefined && value.isMac ? await (await signing())?.mac(utf8(given)) : undefined;
    const said = value.isMac ? mac && toHex(mac) : given;
    if (said === undefined) return null;
    fields.push([name, said]);
  }
  return {
    status: 200,
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(Object.fromEntries(fields)),
  };
}

function textAnswer(body: string | undefined): HandshakeAnswer | null {
  return body === undefined ? null : { status: 200, headers: { "Content-Type": "text/plain" }, body };
}

/** Answers a greeting: with what it wants back, or 403 where its token isn't ours. */
function greetingOf({
  when,
  token,
  respond,
}: Greeting): (request: WebhookRequest, expected: string) => Promise<HandshakeAnswer | null> {
  const fits = conditionOf(when);
  const [given, back] = [readerOf(token), readerOf(respond.text)];
  return async (request, expected) => {
    const source = sourceOf(request);
    if (request.method !== "GET" || !fits(source)) return null;
    const isOurs = await isAmong(utf8(expected), [utf8(textOf(given(source)) ?? "")]);
    return (isOurs ? textAnswer(textOf(back(source))) : null) ?? { status: 403, headers: {}, body: null };
  };
}
