import { describeValue, UsageError } from "@astra-rl/base";
import { checkId } from "./model.js";
import { Part } from "./part.js";

/** Ids added before and after those of a single text. */
export interface Frame {
  prefix: readonly number[];
  suffix: readonly number[];
}

export const NO_FRAME: Frame = { prefix: [], suffix: [] };

/** Reads the post-processor of a tokenizer.json. Throws UsageError for one not known to match Python's. */
export function readPostProcessor(part: Part): Frame {
  switch (part.type) {
    case "Sequence":
      return part
        .parts("processors")
        .map((each) => each.read(readPostProcessor))
        .reduce(
          (inner, outer) => ({
            prefix: [...outer.prefix, ...inner.prefix],
            suffix: [...inner.suffix, ...outer.suffix],
          }),
          NO_FRAME,
        );
    case "ByteLevel":
      part.ignore(["add_prefix_space", "trim_offsets", "use_regex"]); // affect offsets only, not ids
      return NO_FRAME;
    case "RobertaProcessing":
    case "BertProcessing":
      if (part.type === "RobertaProcessing") part.ignore(["trim_offsets", "add_prefix_space"]);
      return { prefix: [idOfPair(part, "cls")], suffix: [idOfPair(part, "sep")] };
    case "TemplateProcessing":
      return readTemplate(part);
    default:
      throw part.refuse("unsupported-type", "type", "this post-processor is not supported");
  }
}

/** ["[CLS]", 101]. */
function idOfPair(part: Part, name: string): number {
  const [token, id] = part.list(name);
  checkId(part.inside(name), String(token), id);
  return id;
}

function readTemplate(part: Part): Frame {
  part.list("pair", { fallback: null });
  const tokens = part.nested("special_tokens") ?? new Part({}, part.inside("special_tokens"));
  const prefix: number[] = [];
  const suffix: number[] = [];
  let side = prefix;
  for (const piece of part.parts("single")) {
    const special = piece.nested("SpecialToken");
    const sequence = piece.nested("Sequence");
    if (sequence?.string("id") === "A" && special === null && side === prefix) {
      side = suffix;
    } else if (special !== null && sequence === null) {
      const name = special.string("id");
      const token = tokens.nested(name);
      if (token === null) {
        throw new UsageError(
          "unlisted-special-token",
          `${piece.where}: "special_tokens" must list ${describeValue(name)}`,
        );
      }
      for (const id of token.list("ids")) {
        checkId(token.where, name, id);
        side.push(id);
      }
    } else {
      throw new UsageError(
        "invalid-template-piece",
        `${piece.where} must be {"SpecialToken": …}, or once {"Sequence": {"id": "A"}}`,
      );
    }
  }
  if (side === prefix) {
    throw new UsageError(
      "missing-sequence",
      `${part.inside("single")} must hold {"Sequence": {"id": "A"}}: the text itself`,
    );
  }
  return { prefix, suffix };
}
