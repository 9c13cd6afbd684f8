import { explain, outcomes } from "./explain.ts";
import { Flight } from "./flight.ts";
import { brokenLaws } from "./laws.ts";
import type { Operation } from "./operation.ts";
import type { Cast, Step } from "./script.ts";
import { emptyModel, type Model, type Told } from "./state.ts";
import { adopt, differences, type View, viewOf } from "./view.ts";
import type { World } from "./world.ts";

/** Operations that are under way at a time, at the most. */
const MAX_FLIGHTS = 4;
/** Nothing takes that many calls by itself: somebody goes round in circles. */
const MAX_CALLS = 60;

/** What was done, and how often what came of it. */
export interface Played {
  steps: number;
  calls: number;
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
  await stage.look();
  for (const step of script) await stage.take(step);
  await stage.finish();
}

class Stage {
  readonly #world: World;
  readonly #played: Played;
  readonly #lines: string[] = [];
  #model: Model = emptyModel();
  #view: View = viewOf(emptyModel());
  #flights: Flight[] = [];
  readonly #told = new Map<string, Told>();
  #begun = 0;
  #named = 0;

  constructor(world: World, played: Played) {
    this.#world = world;
    this.#played = played;
  }

  async look(): Promise<void> {
    const { view } = await this.#world.look();
    this.#view = view;
  }

  async take(step: Step): Promise<void> {
    switch (step.type) {
      case "go on": {
        const flight = this.#flights[step.who % (this.#flights.length || 1)];
        if (flight === undefined) return;
        this.#played.steps++;
        return this.#advance([flight], `${flight.name} goes on`);
      }
      case "together": {
        const flights = step.who.flatMap((who) => this.#flights[who] ?? []);
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
          return this.#begin(next, step.isWhole);
        }
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
    for (let flight = this.#flights[0]; flight !== undefined; flight = this.#flights[0]) {
      await this.#advance([flight], `${flight.name} goes on`);
    }
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

  async #begin(operation: Operation, isWhole: boolean): Promise<void> {
    if (operation.told !== undefined) this.#told.set(operation.told.id, operation.told);
    this.#begun++;
    const flight = new Flight(nameOf(this.#begun), operation, this.#world);
    operation.began?.(this.#model);
    this.#flights.push(flight);
    await flight.ready();
    const build = operation.isBroken === true ? ", by the broken build" : "";
    if (!isWhole || flight.hasEnded) {
      this.#say(`${flight.name} begins: ${operation.text}${build}`);
      if (flight.hasEnded) this.#land(flight);
      return;
    }
    const text = `${flight.name}: ${operation.text}${build}`;
    await this.#advance([flight], text);
    while (!flight.hasEnded) await this.#advance([flight], null);
  }

  /** Lets some make their next call, all at once, and looks for how that can have come out as it did. */
  async #advance(flights: readonly Flight[], text: string | null): Promise<void> {
    if (text !== null) this.#say(text);
    this.#disturb(flights);
    await Promise.all(flights.map((flight) => flight.goOn()));
    this.#played.calls += flights.length;
    const found = await this.#world.look();
    const explanation = explain(this.#model, flights, found.view);
    if (explanation === null) this.#fail(this.#problems(flights, found.view));
    const broken = brokenLaws(this.#view, found.view);
    if (broken.length > 0) this.#fail(broken);
    this.#model = explanation.model;
    this.#view = found.view;
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
    }
  }

  /** Others have done something meanwhile. */
  #disturb(by: readonly Flight[]): void {
    for (const flight of this.#flights) {
      const isByOthers = by.length !== 1 || by[0] !== flight;
      if (isByOthers && (flight.calls > 0 || by.includes(flight))) flight.isAlone = false;
    }
  }

  #land(flight: Flight): void {
    this.#flights = this.#flights.filter((other) => other !== flight);
    const { operation, answer, commits } = flight;
    if (answer === null) return;
    if (flight.calls === 0)
      for (const { answer: told } of outcomes(this.#model, flight)) flight.possible.add(told);
    if (!flight.possible.has(answer)) {
      this.#fail([
        `${flight.name} said ${answer}, expected ${[...flight.possible].join(" or ") || "another"}`,
      ]);
    }
    operation.ended?.(this.#model, answer, commits);
    const last = this.#lines.length - 1;
    const line = this.#lines[last] ?? "";
    this.#lines[last] = `${line}${line.includes(" → ") ? ";" : ""} → ${flight.name} is told: ${answer}`;
    const what = `${operation.kind}: ${answer.replaceAll(/\b(by )?job \d+(\/\d+)?/g, "job")}`;
    this.#played.answers[what] = (this.#played.answers[what] ?? 0) + 1;
  }

  #say(line: string): void {
    this.#lines.push(`${String(this.#lines.length + 1).padStart(3)}. ${line}`);
  }

  #compare(found: View): void {
    const different = differences(viewOf(this.#model), found);
    if (different.length > 0) this.#fail(different);
    this.#view = found;
  }

  /** Why the rules can't explain what is in the tables: by whom each expectation is. */
  #problems(flights: readonly Flight[], found: View): string[] {
    const unchanged = differences(viewOf(this.#model), found);
    const lines = [`had nothing changed: ${unchanged.join("; ") || "as found"}`];
    for (const flight of flights) {
      lines.push(`${flight.name} ${flight.answer === null ? "goes on" : `said ${flight.answer}`}`);
      for (const { model, answer } of outcomes(this.#model, flight)) {
        const different = differences(viewOf(model), found);
        lines.push(`had it been "${answer}": ${different.join("; ") || "as found"}`);
      }
      if (flight.possible.size > 0) lines.push(`it might have said ${[...flight.possible].join(" or ")}`);
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
