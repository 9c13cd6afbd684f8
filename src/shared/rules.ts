import type { Json, JsonObject } from "./json.ts";
import type { Result } from "./result.ts";

/**
 * What a callback's payload decides: conditions and a transformation in CEL over the one variable `payload`, which is null
 * where the delivery had none. How its numbers behave stands with evaluatorOf in cel.ts.
 *
 * Stored with the callback as jsonb.
 */
export interface Rules {
  /** Only payloads for which this is true are looked at; the callback goes on waiting for another one. */
  readonly filter?: string;
  /** Where this is true the job completes. */
  readonly onComplete?: string;
  /** Where this is true the job fails, even where onComplete is true as well. */
  readonly onFail?: string;
  /** What the job gets instead of the payload where onComplete is true. */
  readonly transform?: string;
  /** What happens where neither condition is true. Default "complete". */
  readonly default?: "complete" | "fail" | "ignore";
}

/** What rules make of a payload. */
export type Judgement =
  | { readonly type: "complete"; readonly payload: Json }
  | {
      readonly type: "fail";
      readonly error: string;
      /** The condition that was true; null where the default decided. */
      readonly expression: string | null;
    }
  /** The callback goes on waiting. */
  | { readonly type: "ignore"; readonly reason: string };

/** What checks and evaluates rules: `celRules`. It is large, so only a registry that is given it has rules. */
export interface RuleEngine {
  /** Checks rules at registration. @returns them ready to be stored, or what is wrong */
  check(rules: Rules): Result<JsonObject, string>;
  /** Decides what becomes of a payload. @throws Error where the stored rules are none that a build of ours has stored */
  judge(stored: JsonObject, payload: Json): Judgement;
}

/** What to do where a build comes upon rules and has nothing to evaluate them with. */
export const NO_RULE_ENGINE =
  "this build evaluates no rules: give its registry what does, registry.withRules(celRules)";
