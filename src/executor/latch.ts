/** Tells whether something has happened since it was reset, and waits for it. What happens in between isn't missed. */
export class Latch {
  #isSet = false;
  #release: () => void = () => undefined;
  #released: Promise<void> = Promise.resolve();

  constructor() {
    this.reset();
  }

  get isSet(): boolean {
    return this.#isSet;
  }
  reset(): void {
    this.#isSet = false;
    this.#released = new Promise((resolve) => {
      this.#release = resolve;
    });
  }
  set(): void {
    this.#isSet = true;
    this.#release();
  }
  /** Resolves when it is set, at once where it is. */
  wait(): Promise<void> {
    return this.#released;
  }
}
