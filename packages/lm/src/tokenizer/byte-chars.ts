/**
 * The character that represents each byte in byte-level vocabularies (GPT-2): itself if it is printable, else U+0100….
 */
export const CHAR_OF_BYTE: readonly string[] = (() => {
  let hidden = 0x100;
  return Array.from({ length: 256 }, (_, byte) => {
    const visible = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte !== 0xad);
    return String.fromCharCode(visible ? byte : hidden++);
  });
})();

/** By UTF-16 unit; −1 for units that represent no byte. */
const BYTE_OF_CHAR = new Int16Array(0x144).fill(-1);
for (const [byte, char] of CHAR_OF_BYTE.entries()) BYTE_OF_CHAR[char.charCodeAt(0)] = byte;

const encoder = new TextEncoder();

export function bytesToChars(text: string): string {
  let result = "";
  for (const byte of encoder.encode(text)) result += CHAR_OF_BYTE[byte]!;
  return result;
}

/**
 * Appends the bytes that a token represents; the UTF-8 bytes of its text if any of its characters represents no byte.
 */
export function pushBytes(token: string, bytes: number[]): void {
  const before = bytes.length;
  for (let index = 0; index < token.length; index++) {
    const byte = BYTE_OF_CHAR[token.charCodeAt(index)] ?? -1;
    if (byte < 0) {
      bytes.length = before;
      for (const own of encoder.encode(token)) bytes.push(own);
      return;
    }
    bytes.push(byte);
  }
}
