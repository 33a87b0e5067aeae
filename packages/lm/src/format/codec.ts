import type { TokenDecoder } from "../generation-stop.js";
import type { Tokenizer } from "../tokenizer.js";
export class Codec implements TokenDecoder {
  readonly prefix: readonly number[] = [];
  private constructor(readonly tokenizer: Tokenizer) {}
  static of(tokenizer: Tokenizer): Codec { return new Codec(tokenizer); }
  begin(text: string): number[] { return this.tokenizer.encode(text); }
  continue(text: string): number[] { return this.tokenizer.encode(text); }
  decode(ids: readonly number[], options?: { skipSpecialTokens?: boolean }): string { return this.tokenizer.decode(ids, options); }
}
