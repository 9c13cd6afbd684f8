import { Agent, type ClientRequest, request } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import type { LoadStage } from "./stage.ts";

const RETRY_MS = 200;
const MAX_TRIES = 50;
const ANSWER_TIMEOUT_MS = 30_000;
/** Well before workerd closes an idle connection, after 15 s: a request that meets that would be lost. */
const IDLE_TIMEOUT_MS = 2_000;
/** Within this time a cut comes, and a second sending: before the first is worked on, meanwhile, and after. */
const MAX_CUT_MS = 40;
const MAX_SECOND_MS = 100;

/** What came back for one job's callback or webhook, over all tries. */
interface Tally {
  resolved: number;
  duplicates: number;
  unavailable: number;
  cuts: number;
}

/** The outside world: sends each request until it is answered for good, as a provider does. */
export class Sender {
  readonly #stage: LoadStage;
  readonly #agent: Agent;
  readonly #tallies: Tally[] = [];
  /** Answers that were none of those that a tally counts, and connections that somebody else broke, by what they were. */
  readonly #others = new Map<string, number>();
  #gaveUp = 0;
  /** How long each answer took, in milliseconds, in their order. */
  readonly tookMs: number[] = [];
  #underWay = 0;
  #waiting: (() => void)[] = [];
  sentTwice = 0;

  constructor(stage: LoadStage) {
    this.#stage = stage;
    this.#agent = new Agent({
      keepAlive: true,
      maxSockets: stage.options.atOnce * 2,
      timeout: IDLE_TIMEOUT_MS,
    });
    stage.scope.signal.addEventListener("abort", () => this.#wake());
  }

  /** Resolves when another request may be sent. */
  hasRoom(): Promise<void> {
    return this.#until(() => this.#underWay < this.#stage.options.atOnce);
  }

  async isDone(): Promise<void> {
    await this.#until(() => this.#underWay === 0);
    this.#agent.destroy();
  }

  /** Sends the n-th request, and for some a second time. */
  send(n: number): void {
    this.#tallies[n] = { resolved: 0, duplicates: 0, unavailable: 0, cuts: 0 };
    void this.#track(this.#untilAnswered(n));
    if (Math.random() >= this.#stage.options.duplicates) return;
    this.sentTwice++;
    void this.#track(sleep(Math.random() * MAX_SECOND_MS).then(() => this.#untilAnswered(n)));
  }

  /** Of all jobs together. */
  sum(what: keyof Tally): number {
    return this.#tallies.reduce((sum, tally) => sum + tally[what], 0);
  }

  /** What came that nobody injected, by name. */
  unexpected(): Record<string, number> {
    const { faults, callbackIds } = this.#stage;
    const jobs = this.#tallies.map((tally, n) => ({
      ...tally,
      faults: faults.ofReceiving.get(callbackIds[n] ?? "") ?? 0,
    }));
    const count = (isWrong: (job: Tally & { faults: number }) => boolean) => jobs.filter(isWrong).length;
    return {
      // A fault that met a request which its sender had broken off is answered to nobody.
      "jobs answered 503 more often than a fault was injected": count((j) => j.unavailable > j.faults),
      "jobs answered 503 less often": count((j) => j.unavailable + j.cuts < j.faults),
      "jobs answered as resolved twice": count((j) => j.resolved > 1),
      "jobs only answered as duplicates, though no answer was lost": count(
        (j) => j.resolved === 0 && j.unavailable + j.cuts === 0,
      ),
      ...Object.fromEntries(this.#others),
      "requests never answered for good": this.#gaveUp,
    };
  }

  async #track(work: Promise<void>): Promise<void> {
    this.#underWay++;
    await work;
    this.#underWay--;
    this.#wake();
  }

  #wake(): void {
    for (const wake of this.#waiting.splice(0)) wake();
  }

  async #until(isSo: () => boolean): Promise<void> {
    for (; !isSo(); ) {
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
      this.#stage.scope.signal.throwIfAborted();
    }
  }

  async #untilAnswered(n: number): Promise<void> {
    const tally = this.#tallies[n];
    for (let tries = 0; tries < MAX_TRIES && tally !== undefined; tries++) {
      const isCut = Math.random() < this.#stage.options.faults;
      const startedAt = performance.now();
      const answer = await this.#post(n, isCut ? Math.random() * MAX_CUT_MS : null);
      if (answer === "cut") tally.cuts++;
      else {
        this.tookMs.push(performance.now() - startedAt);
        if (answer === "200 resolved") tally.resolved++;
        else if (answer === "200 duplicate") tally.duplicates++;
        else if (answer === "503 database_unavailable") tally.unavailable++;
        else this.#others.set(answer, (this.#others.get(answer) ?? 0) + 1);
        // As a provider: what is refused for good would be refused again.
        if (/^[234]/.test(answer)) return;
      }
      await sleep(RETRY_MS);
    }
    this.#gaveUp++;
  }

  /** @param cutAfterMs when to break the connection; `null`: not at all */
  async #post(n: number, cutAfterMs: number | null): Promise<string> {
    const { path, headers, body } = await this.#stage.prepare(n);
    const sent = request(`${this.#stage.workerUrl}${path}`, {
      method: "POST",
      agent: this.#agent,
      headers: { ...headers, "Content-Length": body.length },
      timeout: ANSWER_TIMEOUT_MS,
    });
    sent.on("timeout", () => sent.destroy());
    let isCut = false;
    const cut = () => {
      isCut = true;
      sent.destroy();
    };
    const cutTimer = cutAfterMs === null ? undefined : setTimeout(cut, cutAfterMs);
    sent.end(body);
    const answer = await answerTo(sent);
    clearTimeout(cutTimer);
    return answer ?? (isCut ? "cut" : `connection lost, ${sent.reusedSocket ? "kept" : "new"}`);
  }
}

/** The status, and what kind of answer it is; `null`: the connection broke before its end. */
function answerTo(sent: ClientRequest): Promise<string | null> {
  return new Promise((resolve) => {
    sent.on("error", () => resolve(null));
    sent.on("response", (response) => {
      const chunks: Buffer[] = [];
      response.on("data", (chunk) => chunks.push(chunk));
      response.on("error", () => resolve(null));
      response.on("end", () => {
        const { statusCode = 0 } = response;
        resolve(`${statusCode} ${kindOf(statusCode, Buffer.concat(chunks).toString("utf8"))}`);
      });
    });
  });
}

/** A webhook is told its `status`; a callback its job's state, and whether it is a duplicate; a refusal has a `code`. */
function kindOf(status: number, text: string): string {
  if (text.includes('"duplicate":true')) return "duplicate";
  const name = /"(?:status|code)":"(\w+)"/.exec(text)?.[1];
  return name ?? (status === 200 ? "resolved" : "without a code");
}
