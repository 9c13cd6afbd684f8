/**
 * A connection string with what `pg` does today about sslmode spelt out. `pg` takes `prefer`, `require` and `verify-ca` for
 * `verify-full` and prints a long warning about it, which every Neon connection string would set off.
 */
export function withExplicitSslMode(connectionString: string): string {
  const url = new URL(connectionString);
  const mode = url.searchParams.get("sslmode");
  if (!url.searchParams.has("uselibpqcompat") && ["prefer", "require", "verify-ca"].includes(mode ?? "")) {
    url.searchParams.set("sslmode", "verify-full");
  }
  return url.href;
}

/** A text without what it may quote of a connection string: the string itself, and its password in either spelling. */
export function redact(text: string, url: URL): string {
  return [url.href, url.password, decoded(url.password)]
    .filter((secret) => secret !== "")
    .reduce((redacted, secret) => redacted.replaceAll(secret, "…"), text);
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return "";
  }
}
