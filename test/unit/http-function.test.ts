import { describe, expect, test } from "vitest";
import { failureOf, parseRetryAfter, type Refusal, readAnswer } from "../../src/executor/http-answer.ts";
import { type HttpFunctionOptions, httpFunction } from "../../src/executor/http-function.ts";
import { retryAfter, TerminalError } from "../../src/shared/registry/handler.ts";

const NOW_MS = Date.UTC(2026, 0, 2, 3, 4, 5);
const url = "https://functions.example/render?token=secret-token";

describe("what can't be is refused at registration, and not quoted", () => {
  test.each<[string, HttpFunctionOptions, string]>([
    ["no URL", { url: "secret-token" }, "its url is not an http(s) URL"],
    ["an empty URL", { url: "" }, "its url is not an http(s) URL"],
    ["another protocol", { url: "ftp://functions.example/secret-token" }, "its url is not an http(s) URL"],
    ["a password", { url: "https://me:secret-token@functions.example" }, "has a user name or a password"],
    ["a header's name", { url, headers: { "X Y": "secret-token" } }, 'its header "X Y" can\'t be sent'],
    ["a header's value", { url, headers: { "X-Y": "secret-token\n2" } }, 'its header "X-Y" can\'t be sent'],
    ["no time", { url, timeoutSeconds: 0 }, "timeoutSeconds must be above 0 and at most 300"],
    ["too much time", { url, timeoutSeconds: 301 }, "timeoutSeconds must be above 0 and at most 300"],
    ["no number", { url, callbackTimeoutSeconds: Number.NaN }, "above 0 and at most 31536000"],
  ])("%s", (_, options, message) => {
    const register = () => httpFunction(options);
    expect(register).toThrow(message);
    expect(register).not.toThrow("secret-token");
  });

  test("what the bindings make is looked at later", () => {
    expect(httpFunction({ url: () => undefined, headers: () => null })).toBeInstanceOf(Function);
  });
});

describe("Retry-After", () => {
  test.each([
    ["120", 120],
    ["1", 1],
    ["86400", 86_400],
    ["86401", 86_400],
    ["9".repeat(400), 86_400],
    ["Fri, 02 Jan 2026 03:05:05 GMT", 60],
    ["Fri, 02 Jan 2026 03:04:06 GMT", 1],
    ["Thu, 31 Dec 2099 23:59:59 GMT", 86_400],
  ])("%s", (header, seconds) => {
    expect(parseRetryAfter(header, NOW_MS)).toBe(seconds);
  });

  test.each([
    ["nothing", ""],
    ["no pause", "0"],
    ["a negative one", "-5"],
    ["a fraction", "1.5"],
    ["an exponent", "1e3"],
    ["words", "soon"],
    ["a date that has passed", "Fri, 02 Jan 2026 03:04:05 GMT"],
    ["another form of date", "2026-01-02T03:05:05Z"],
    ["a day that isn't", "Fri, 99 Jan 2026 03:05:05 GMT"],
  ])("%s: the usual back-off", (_, header) => {
    expect(parseRetryAfter(header, NOW_MS)).toBeNull();
  });

  test("a part of a second is waited for", () => {
    expect(parseRetryAfter("Fri, 02 Jan 2026 03:04:06 GMT", NOW_MS + 999)).toBe(1);
  });
});

describe("a refusal by its status", () => {
  const refusal = (status: number, more: Partial<Refusal> = {}): Refusal => ({
    status,
    text: "no",
    retryAfter: null,
    ...more,
  });
  function thrownBy(given: Refusal): unknown {
    try {
      return failureOf(given, NOW_MS);
    } catch (thrown) {
      return thrown;
    }
  }

  test.each([408, 425, 429, 500, 501, 503, 599])("%i is retried, with back-off", (status) => {
    const thrown = thrownBy(refusal(status));
    expect(thrown).toEqual(new Error(`function returned ${status}: no`));
    expect(thrown).not.toBeInstanceOf(TerminalError);
  });

  test.each([408, 425, 429, 500, 503])("%i is retried when it asks for it", (status) => {
    expect(thrownBy(refusal(status, { retryAfter: "7" }))).toEqual(
      retryAfter(7, `function returned ${status}: no`),
    );
  });

  test.each([300, 302, 307, 400, 401, 404, 409, 410, 422, 499])(
    "%i is final, whatever it asks for",
    (status) => {
      const thrown = thrownBy(refusal(status, { retryAfter: "7" }));
      expect(thrown).toBeInstanceOf(TerminalError);
      expect(thrown).toEqual(new TerminalError(`function returned ${status}: no`));
    },
  );

  test("without a body it is told by its status alone", () => {
    expect(thrownBy(refusal(500, { text: "" }))).toEqual(new Error("function returned 500"));
  });
});

test.each<["async" | "sync", number]>([
  ["async", 202],
  ["sync", 200],
])("%s: a body that nobody needs is cancelled and not read", async (mode, status) => {
  let isCancelled = false;
  const body = new ReadableStream({
    cancel() {
      isCancelled = true;
    },
  });
  expect(await readAnswer(new Response(body, { status }), mode)).toEqual({ ok: true, value: null });
  expect(isCancelled).toBe(true);
});
