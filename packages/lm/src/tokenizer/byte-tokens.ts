const encoder = new TextEncoder();

/** Encodes a text as the tokens of its bytes, "<0x41>", …; null if one of them is missing from the vocabulary. */
export function byteTokens(idOf: ReadonlyMap<string, number>): (text: string) => number[] | null {
  const ids = Array.from({ length: 256 }, (_, byte) =>
    idOf.get(`<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`),
  );
  return (text) => {
    const found: number[] = [];
    for (const byte of encoder.encode(text)) {
      const id = ids[byte];
      if (id === undefined) return null;
      found.push(id);
    }
    return found;
  };
}
