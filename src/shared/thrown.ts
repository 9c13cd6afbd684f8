/** The name of what was thrown: for logs and answers, as a message may quote what was stored or sent. */
export function nameOf(thrown: unknown): string {
  return thrown instanceof Error ? thrown.name : typeof thrown;
}

/** What was thrown as text, whatever it is: an object without a prototype, for one, can't be made text. */
export function textOf(thrown: unknown): string {
  try {
    return String(thrown);
  } catch {
    return typeof thrown;
  }
}

/** An error's message, else its name; anything else as text. */
export function messageOf(thrown: unknown): string {
  return thrown instanceof Error ? textOf(thrown.message) || thrown.name : textOf(thrown);
}
