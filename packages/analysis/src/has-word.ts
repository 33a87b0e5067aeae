/** Whether a text has a word: letters in a row without digits among them, which hexadecimal numbers do not have. */
export const hasWord = (text: string): boolean =>
  text.split(/[^\p{L}\p{M}\p{N}]+/u).some((part) => /\p{L}/u.test(part) && !/\p{N}/u.test(part));
