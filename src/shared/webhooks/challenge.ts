import type { Challenge, Greeting, WebhookDescription } from "./description.ts";
import { toHex, utf8 } from "./encoding.ts";
import { isAmong, type Key } from "./keys.ts";
import { type Read, readerOf, type Source, sourceOf, textOf } from "./places.ts";
import type { HandshakeAnswer, WebhookRequest } from "./scheme.ts";

type Value = { readonly number: number } | { readonly read: Read; readonly isMac: boolean };
type Condition = (source: Source) => boolean;

interface CompiledChallenge {
  readonly when: Condition;
  readonly text?: Read;
  readonly json?: readonly (readonly [name: string, value: Value])[];
}

/**
 * Takes the challenges of a description apart.
 *
 * @throws Error for one that can't be meant
 */
export function compileChallenges({
  name,
  algorithm,
  challenges = [],
}: WebhookDescription): readonly CompiledChallenge[] {
  return challenges.map(({ when, respond }: Challenge) => {
    const condition = conditionOf(when);
    if (respond === "nothing") return { when: condition };
    if ("text" in respond) return { when: condition, text: readerOf(respond.text) };
    const json = Object.entries(respond.json).map(([field, value]): readonly [string, Value] => {
      if (typeof value === "number") return [field, { number: value }];
      const isMac = value.startsWith("mac:");
      if (isMac && !algorithm.startsWith("hmac-")) {
        throw new Error(`the webhook scheme "${name}": mac: wants an HMAC`);
      }
      return [field, { read: readerOf(isMac ? `body:${value.slice("mac:".length)}` : value), isMac }];
    });
    return { when: condition, json };
  });
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

/** What the first challenge that a request fits wants to hear; `null` where it fits none, or lacks what is to be answered. */
export async function answerOf(
  challenges: readonly CompiledChallenge[],
  source: Source,
  key: () => Promise<Key>,
): Promise<HandshakeAnswer | null> {
  const challenge = challenges.find(({ when }) => when(source));
  if (challenge === undefined) return null;
  if (challenge.text !== undefined) return textAnswer(textOf(challenge.text(source)));
  if (challenge.json === undefined) return { status: 204, headers: {}, body: null };
  const fields: [string, unknown][] = [];
  for (const [name, value] of challenge.json) {
    if ("number" in value) {
      fields.push([name, value.number]);
      continue;
    }
    const text = textOf(value.read(source));
    const given = text !== undefined && value.isMac ? await macOf(text, await key()) : text;
    if (given === undefined) return null;
    fields.push([name, given]);
  }
  return {
    status: 200,
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(Object.fromEntries(fields)),
  };
}

async function macOf(text: string, key: Key): Promise<string | undefined> {
  return key.sign && toHex(await key.sign(utf8(text)));
}

function textAnswer(body: string | undefined): HandshakeAnswer | null {
  return body === undefined ? null : { status: 200, headers: { "Content-Type": "text/plain" }, body };
}

/** Answers the greeting that a description speaks of: with what it wants back, or 403 where its token isn't ours. */
export function greetingOf(
  { when, token, respond }: Greeting,
  expected: string,
): (request: WebhookRequest) => Promise<HandshakeAnswer | null> {
  const fits = conditionOf(when);
  const [given, back] = [readerOf(token), readerOf(respond.text)];
  return async (request) => {
    const source = sourceOf(request);
    if (request.method !== "GET" || !fits(source)) return null;
    const isOurs = await isAmong(utf8(expected), [utf8(textOf(given(source)) ?? "")]);
    return (isOurs ? textAnswer(textOf(back(source))) : null) ?? { status: 403, headers: {}, body: null };
  };
}
