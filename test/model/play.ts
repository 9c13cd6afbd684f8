import { setTimeout as sleep } from "node:timers/promises";
import { explain, outcomes } from "./explain.ts";
import { CONTENDED, Flight } from "./flight.ts";
import { brokenLaws } from "./laws.ts";
import type { Operation } from "./operation.ts";
import type { Cast, Pace, Step } from "./script.ts";
import { emptyModel, type Model, type Told } from "./state.ts";
import { adopt, differences, type View, viewOf } from "./view.ts";
import type { World } from "./world.ts";

/** Operations that are under way at a time, at the most. */
const MAX_FLIGHTS = 4;
/** Nothing takes that many calls by itself: somebody goes round in circles. */
const MAX_CALLS = 60;
/** Between two looks at who waits for a lock. */
const LOCK_POLL_MS = 3;

/** What was done, and how often what came of it. */
export interface Played {
  steps: number;
  calls: number;
  /** How often somebody had to wait for what another one held. */
  waits: number;
  readonly answers: Record<string, number>;
}

/** The model and the tables have come apart. */
export class Disagreement extends Error {
  override readonly name = "Disagreement";
  constructor(script: readonly string[], problems: readonly string[]) {
    super(
      `the model and the database have come apart:\n\n${script.join("\n")}\n\n${problems.map((line) => `  ${line}`).join("\n")}`,
    );
  }
}

/** Plays a script on an empty database. @throws Disagreement at the first step after which model and database aren't the same */
export async function play(world: World, script: readonly Step[], played: Played): Promise<void> {
  await world.reset();
  const stage = new Stage(world, played);
  try {
    for (const step of script) await stage.take(step);
    await stage.finish();
  } finally {
    await stage.abandon();
  }
}

class Stage {
  readonly #world: World;
  readonly #played: Played;
  readonly #lines: string[] = [];
  #model: Model = emptyModel();
  #flights: Flight[] = [];
  readonly #told = new Map<string, Told>();
  #begun = 0;
  #named = 0;

  constructor(world: World, played: Played) {
    this.#world = world;
    this.#played = played;
  }

  async take(step: Step): Promise<void> {
    switch (step.type) {
      case "go on": {
        const able = this.#flights.filter(({ isMoving }) => !isMoving);
        const flight = able[step.who % (able.length || 1)];
        if (flight === undefined) return;
        this.#played.steps++;
        return this.#advance([flight], `${flight.name} goes on`);
      }
      case "together": {
        const flights = step.who
          .flatMap((who) => this.#flights[who] ?? [])
          .filter(({ isMoving }) => !isMoving);
        if (flights.length < 2) return;
        this.#played.steps++;
        return this.#advance(flights, `${flights.map(({ name }) => name).join(" and ")} go on at once`);
      }
      case "do": {
        const next = step.cast(this.#cast());
        if (next === null) return;
        if (!("sql" in next)) {
          if (this.#flights.length >= MAX_FLIGHTS) return;
          this.#played.steps++;
          return this.#begin(next, step.pace);
        }
        // What they hold may be what time would pass for.
        if (this.#flights.some(({ holds }) => holds)) return;
        this.#played.steps++;
        this.#say(next.text);
        await this.#world.pool.query(next.sql, [...next.values]);
        next.passes(this.#model);
        this.#disturb([]);
        const found = await this.#world.look();
        this.#compare(found.view);
        adopt(this.#model, found);
      }
    }
  }

  /** Lets everybody come to an end. */
  async finish(): Promise<void> {
    while (this.#flights.length > 0) {
      const flight = this.#flights.find(({ isMoving }) => !isMoving);
      if (flight === undefined) await this.#advance([], "they wait for each other");
      else await this.#advance([flight], `${flight.name} goes on`);
    }
  }

  /** Leaves nothing open behind. */
  async abandon(): Promise<void> {
    await Promise.all(this.#flights.map((flight) => flight.abandon()));
  }

  #cast(): Cast {
    const { ids } = this.#world;
    const names = [...ids.keys()].toReversed();
    const busy = new Set(this.#flights.map(({ operation }) => operation.attempt));
    const isCallback = (name: string) => name.includes("'");
    return {
      model: this.#model,
      jobs: names.filter((name) => !isCallback(name)),
      callbacks: names.filter(isCallback),
      told: [...this.#told.values()].toReversed(),
      idle: this.#model.attempts.filter(({ name }) => !busy.has(name)).toReversed(),
      nextJob: () => `job ${++this.#named}`,
    };
  }

  async #begin(operation: Operation, pace: Pace): Promise<void> {
    if (operation.told !== undefined) this.#told.set(operation.told.id, operation.told);
    this.#begun++;
    const flight = new Flight(nameOf(this.#begun), operation, this.#world, pace === "slow");
    operation.began?.(this.#model);
    this.#flights.push(flight);
    await flight.stopped;
    const build = operation.isBroken === true ? ", by the broken build" : "";
    if (pace !== "whole" || flight.hasEnded) {
      const begins = pace === "slow" ? "begins, statement by statement" : "begins";
      this.#say(`${flight.name} ${begins}: ${operation.text}${build}`);
      if (flight.hasEnded) this.#land(flight);
      return;
    }
    const text = `${flight.name}: ${operation.text}${build}`;
    await this.#advance([flight], text);
    while (!flight.hasEnded && !flight.isMoving) await this.#advance([flight], null);
  }

  /** Lets some make their next call, all at once, and looks for how that can have come out as it did. */
  async #advance(released: readonly Flight[], text: string | null): Promise<void> {
    if (text !== null) this.#say(text);
    this.#disturb(released);
    for (const flight of released) flight.goOn();
    this.#played.calls += released.length;
    // Those who waited for what one of these held may go on now.
    const flights = this.#flights.filter((flight) => flight.isMoving);
    await this.#settle(flights);
    const found = await this.#world.look();
    for (const flight of flights) {
      if (flight.answer !== null) flight.answer = this.#world.named(flight.answer);
    }
    const explanation = explain(this.#model, flights, found.view);
    if (explanation === null) this.#fail(this.#problems(flights, found.view));
    for (const [i, view] of explanation.views.entries()) {
      const broken = brokenLaws(explanation.views[i - 1] ?? view, view);
      if (broken.length > 0) this.#fail(broken);
    }
    this.#model = explanation.model;
    adopt(this.#model, found);
    for (const flight of flights) {
      const told = explanation.committed.get(flight);
      if (told !== undefined) {
        flight.commits++;
        flight.possible.clear();
        flight.possible.add(told);
      }
      for (const answer of explanation.seen.get(flight) ?? [])
        if (told === undefined) flight.possible.add(answer);
      if (flight.calls > MAX_CALLS) this.#fail([`${flight.name} comes to no end`]);
      if (flight.hasEnded) this.#land(flight);
      else if (flight.isMoving) {
        this.#played.waits++;
        this.#note(`${flight.name} waits for a lock`);
      }
    }
  }

  /** Waits until each of those who were let go has come to its next call, or waits for a lock that another one holds. */
  async #settle(flights: readonly Flight[]): Promise<void> {
    const isHeld = this.#flights.some(({ holds, isSlow }) => holds || isSlow);
    const all = Promise.all(flights.map(({ stopped }) => stopped));
    if (!isHeld) return void (await all);
    for (;;) {
      await Promise.race([all, sleep(LOCK_POLL_MS)]);
      const moving = flights.filter(({ isMoving }) => isMoving).length;
      const isSomebodyAble = this.#flights.some(({ isMoving }) => !isMoving);
      if (moving === 0 || (isSomebodyAble && (await this.#world.blocked()) >= moving)) return;
    }
  }

  /** Others have done something meanwhile, or are in the middle of it. */
  #disturb(by: readonly Flight[]): void {
    const holders = this.#flights.filter(({ holds }) => holds);
    for (const flight of this.#flights) {
      const isByOthers = by.length !== 1 || by[0] !== flight;
      const isBeside = holders.some((holder) => holder !== flight);
      if ((isByOthers && flight.calls > 0) || by.length > 1 || isBeside) flight.isAlone = false;
    }
  }

  #land(flight: Flight): void {
    this.#flights = this.#flights.filter((other) => other !== flight);
    const { operation, answer, commits } = flight;
    if (answer === null) return;
    if (flight.calls === 0)
      for (const { answer: told } of outcomes(this.#model, flight)) flight.possible.add(told);
    const isContended = answer === CONTENDED && !flight.isAlone;
    if (!flight.possible.has(answer) && !isContended) {
      this.#fail([
        `${flight.name} was told: ${answer}`,
        `it might have been told: ${[...flight.possible].join(", or ") || "something else"}`,
      ]);
    }
    operation.ended?.(this.#model, answer, commits);
    this.#note(`${flight.name} is told: ${answer}`);
    const what = `${operation.kind}: ${answer.replaceAll(/\b(by )?job \d+(\/\d+)?/g, "job")}`;
    this.#played.answers[what] = (this.#played.answers[what] ?? 0) + 1;
  }

  #note(text: string): void {
    const last = this.#lines.length - 1;
    const line = this.#lines[last] ?? "";
    this.#lines[last] = `${line}${line.includes(" → ") ? "; " : " → "}${text}`;
  }

  #say(line: string): void {
    this.#lines.push(`${String(this.#lines.length + 1).padStart(3)}. ${line}`);
  }

  #compare(found: View): void {
    const different = differences(viewOf(this.#model), found);
    if (different.length > 0) this.#fail(different);
  }

  /** Why the rules can't explain what is in the tables: what each expectation misses. */
  #problems(flights: readonly Flight[], found: View): string[] {
    const lines: string[] = [];
    const compare = (what: string, model: Model) => {
      const different = differences(viewOf(model), found);
      const isNew = !lines.includes(`${what}:`);
      if (isNew) lines.push(`${what}:`, ...different.map((line) => `  ${line}`));
      if (isNew && different.length === 0) lines.push("  the tables would be as they are");
    };
    compare("had nothing changed", this.#model);
    for (const flight of flights) {
      const { name, answer, possible } = flight;
      for (const outcome of outcomes(this.#model, flight)) {
        compare(`had ${name} been told: ${outcome.answer}`, outcome.model);
      }
      lines.push(answer === null ? `${name} goes on` : `${name} was told: ${answer}`);
      if (possible.size > 0) lines.push(`it might have been told: ${[...possible].join(", or ")}`);
    }
    return lines;
  }

  #fail(problems: readonly string[]): never {
    throw new Disagreement(this.#lines, problems);
  }
}

/** A, B, … Z, A1, B1, … */
function nameOf(n: number): string {
  const round = Math.floor((n - 1) / 26);
  return `${String.fromCharCode(65 + ((n - 1) % 26))}${round === 0 ? "" : round}`;
}
