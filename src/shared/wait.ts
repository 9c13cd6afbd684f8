import { DEFAULT_CALLBACK_TIMEOUT_SECONDS, MAX_CALLBACK_TIMEOUT_SECONDS } from "./callback.ts";
import type { CallbackId } from "./ids.ts";
import type { JsonObject } from "./json.ts";
import { whyNoName } from "./registry/options.ts";
import { err, ok, type Result } from "./result.ts";
import { NO_RULE_ENGINE, type RuleEngine, type Rules } from "./rules.ts";

/** What a job waits for. */
export interface Wait {
  /** In seconds, above 0 and up to a year. Default 3600. */
  readonly timeoutSeconds?: number;
  /** A name for this wait, up to 200 characters. Default "". */
  readonly name?: string;
  /** The source of webhooks that it belongs to: no other source can resolve it. */
  readonly source?: string;
  /**
   * What the source's provider knows it by, 1 to 200 characters, where it can't be given our callback's id. One pending wait a source
   * has it, and it isn't to be used for another job afterwards: what comes late for the first would be taken for early.
   */
  readonly correlationKey?: string;
  /** What a payload has to be, for deliveries that mean `resolve`. */
  readonly rules?: Rules;
}

/** What a wait is checked against: the registry of this build. */
export interface WaitRegistry {
  source(name: string): object | undefined;
  ruleEngine(): RuleEngine | null;
}

/** A wait that can be registered. */
export interface CheckedWait {
  readonly name: string;
  readonly timeoutSeconds: number;
  readonly source: string | null;
  readonly correlationKey: string | null;
  /** As they are stored. */
  readonly rules: JsonObject | null;
}

/**
 * Checks a wait.
 *
 * @param registry says which sources this build has, as a misspelt one would never call, and whether it evaluates rules
 * @returns the wait, or what is wrong with it, without quoting any value
 */
export function checkWait(
  {
    timeoutSeconds = DEFAULT_CALLBACK_TIMEOUT_SECONDS,
    name = "",
    source,
    correlationKey,
    rules,
  }: { readonly [O in keyof Wait]: Wait[O] | undefined },
  registry: WaitRegistry,
): Result<CheckedWait, string> {
  if (!(timeoutSeconds > 0 && timeoutSeconds <= MAX_CALLBACK_TIMEOUT_SECONDS)) {
    return err(`timeoutSeconds must be above 0 and at most ${MAX_CALLBACK_TIMEOUT_SECONDS}`);
  }
  const wrong =
    (name === "" ? null : whyNoName(name, "name")) ??
    (correlationKey === undefined ? null : whyNoName(correlationKey, "correlationKey"));
  if (wrong !== null) return err(wrong);
  if (source !== undefined && registry.source(source) === undefined) {
    return err("source isn't a source of this registry");
  }
  if (correlationKey !== undefined && source === undefined) {
    return err("correlationKey needs the source whose key it is");
  }
  const checked =
    rules === undefined ? ok(null) : (registry.ruleEngine()?.check(rules) ?? err(NO_RULE_ENGINE));
  if (!checked.ok) return checked;
  return ok({
    name,
    timeoutSeconds,
    source: source ?? null,
    correlationKey: correlationKey ?? null,
    rules: checked.value,
  });
}

/** Where webhooks arrive. */
export const WEBHOOK_PATH = "/webhooks";

/** The URL at which a source's provider reaches one callback. @param baseUrl where the ingress is, without a slash at the end */
export function webhookUrl(baseUrl: string, source: string, callbackId: CallbackId): string {
  return `${baseUrl}${WEBHOOK_PATH}/${source}/${callbackId}`;
}
