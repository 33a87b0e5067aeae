/** A trie of texts by UTF-16 units, with an id where one ends. */
export class Trie {
  readonly next = new Map<number, Trie>();
  /** −1 if no text ends here. */
  id = -1;

  /** If the text was inserted before, its first id is kept unless `replace` is set. */
  insert(spelling: string, id: number, replace = false): void {
    const end = this.#walk(spelling, true)!;
    if (end.id < 0 || replace) end.id = id;
  }

  /** The subtrie after a prefix; null if there is none. */
  behind(beginning: string): Trie | null {
    return this.#walk(beginning, false);
  }

  /** The longest entry that matches a text at an index: its id and end; id −1 if none matches. */
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
    let node: Trie | null = null;
    for (let index = 0; index < spelling.length; index++) {
      const unit = spelling.charCodeAt(index);
      const parent: Trie = node ?? this;
      let child: Trie | undefined = parent.next.get(unit);
      if (child === undefined) {
        if (!make) return null;
        parent.next.set(unit, (child = new Trie()));
      }
      node = child;
    }
    return node ?? this;
  }
}
