/** Spellings by their UTF-16 units; an id where one ends. */
export class Trie {
  readonly next = new Map<number, Trie>();
  /** −1 where no spelling ends. */
  id = -1;

  /** Of spellings that are the same the first counts, unless `replace` is set. */
  insert(spelling: string, id: number, replace = false): void {
    const end = this.#walk(spelling, true)!;
    if (end.id < 0 || replace) end.id = id;
  }

  /** What follows a beginning; null where nothing does. */
  behind(beginning: string): Trie | null {
    return this.#walk(beginning, false);
  }

  /** The longest spelling that stands in a text at an index: its id and where it ends; id −1 where none does. */
  longestAt(text: string, from: number): { id: number; end: number } {
    let [id, end] = [-1, from];
    let node = this.next.get(text.charCodeAt(from));
    for (let index = from + 1; node !== undefined; index++) {
      if (node.id >= 0) [id, end] = [node.id, index];
      if (index >= text.length) break;
      node = node.next.get(text.charCodeAt(index));
    }
    return { id, end };
  }

  #walk(spelling: string, make: boolean): Trie | null {
    let node: Trie = this;
    for (let index = 0; index < spelling.length; index++) {
      const unit = spelling.charCodeAt(index);
      let child = node.next.get(unit);
      if (child === undefined) {
        if (!make) return null;
        node.next.set(unit, (child = new Trie()));
      }
      node = child;
    }
    return node;
  }
}
