import { storableText } from "./json.ts";

/** What the name of an error looks like. One that looks otherwise was put together from what was at hand. */
const NAME = /^[A-Za-z_$][\w$]{0,63}$/;

/**
 * What the log says of something that was thrown: the name of an error, or the type of what is none. No message: it may quote what was
 * sent or stored. Never throws.
 */
export function nameOf(thrown: unknown): string {
  try {
    if (!(thrown instanceof Error)) return typeof thrown;
    const name: unknown = thrown.name;
    return typeof name === "string" && NAME.test(name) ? name : "Error";
  } catch {
    return typeof thrown;
  }
}

/**
 * All that something thrown says of itself, storable: for a job's or a delivery's own record in the database, never for the log. Never
 * throws: what can't be made a text is called by its type.
 */
export function textOf(thrown: unknown): string {
  try {
    return storableText(String(thrown));
  } catch {
    return nameOf(thrown);
  }
}

/** The message of an error; of one without, and of anything else, as {@link textOf}. */
export function messageOf(thrown: unknown): string {
  try {
    if (thrown instanceof Error && thrown.message !== "") return storableText(thrown.message);
  } catch {
    // Its message is no text, or throws itself.
  }
  return textOf(thrown);
}
