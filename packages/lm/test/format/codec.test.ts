import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { Codec } from "../../src/format/codec.js";
import { Tokenizer } from "../../src/tokenizer.js";
import { goldenFamilies } from "../golden/families.js";
import { golden, goldenFolder } from "../golden/gpt2.js";
import { folderOf, namedCodecs, varied, type NamedCodec } from "./codecs.js";

const CUT = "\uFFFD";
const codecs = await namedCodecs();

/** Texts with difficult edges; without special tokens and "▁", which SentencePiece treats as a space. */
const text = fc
  .array(
    fc.oneof(
      fc.constantFrom(
        ..." |  |   |\n|\n\n|\n \n|\t|\r\n|a|The| train|Don't|1234|.|...| . |é|e\u0301|\u0301|n\u0303o|각|ᄀ".split(
          "|",
        ),
        ..."今天|天气很好 |東京|😀|👩‍👩‍👧|🇫🇷|مرحبا|שלום| שלום|Привет|\u00a0|\u200b|\u3000|_|<s|##x".split("|"),
      ),
      fc.string({ unit: "grapheme", maxLength: 4 }).filter((each) => !/[\u2581\uFEFF\uFFFD]/u.test(each)),
    ),
    { maxLength: 8 },
  )
  .map((pieces) => pieces.join(""));

/** Ids that a model may sample: those of a text, or arbitrary ones, none of them a part of a character. */
function sampled({ codec, tokenizer }: NamedCodec): fc.Arbitrary<number[]> {
  const whole = Array.from({ length: tokenizer.vocabSize }, (_, id) => id).filter(
    (id) => !codec.decode([id]).includes(CUT),
  );
  return fc.oneof(
    text.map((each) => codec.continue(each)),
    fc.array(fc.constantFrom(...whole), { maxLength: 6 }),
    fc.tuple(text, fc.nat(20)).map(([each, from]) => codec.continue(each).slice(from)),
  );
}

describe("two models read exactly the recorded text", () => {
  const pairs = codecs.flatMap((tester) => codecs.map((target) => [tester, target] as const));

  it.each(pairs.map(([tester, target]) => [tester.name, target.name, tester, target] as const))(
    "with %s and %s",
    (_, __, tester, target) => {
      const turns = fc.array(fc.tuple(sampled(tester), sampled(target)), { minLength: 1, maxLength: 3 });
      const specials = [tester, target]
        .flatMap(({ tokenizer }) => Object.values(tokenizer.specialTokens))
        .filter((each) => each !== "<unk>");
      fc.assert(
        fc.property(text.filter(Boolean), turns, (prompt, spoken) => {
          const sides = [tester, target].map((side) => ({
            ...side,
            row: side.codec.begin(prompt),
            said: side.codec.heard(prompt, "begin"),
          }));
          // After only the prefix, the next ids are themselves the beginning of a text.
          fc.pre(sides.every(({ said }) => said !== ""));
          for (const turn of spoken) {
            turn.forEach((ids, who) => {
              const record = sides[who]!.codec.decode(ids);
              if (record.includes(CUT)) return; // cut inside a character
              // Spelled out byte by byte, it is decoded to that token's text, which the tokenizer's own decoding omits.
              // A normalizer may spell it, too: `<s\uFE65` with NFKC.
              const heard = [record, ...sides.map(({ codec }) => codec.heard(record))];
              if (specials.some((each) => heard.some((one) => one.includes(each)))) return;
              sides.forEach((side, at) => {
                side.row.push(...(at === who ? ids : side.codec.continue(record)));
                side.said += at === who ? record : side.codec.heard(record);
                if (side.hears !== null) expect(side.codec.heard(record)).toBe(side.hears(record));
              });
            });
          }
          for (const { tokenizer, row, said } of sides) {
            expect(tokenizer.decode(row)).toBe(said.replaceAll("<unk>", ""));
          }
        }),
        { numRuns: 40 },
      );
    },
  );

  it("records a special token that a normalizer spells", () => {
    const { codec, tokenizer } = codecs.find(({ name }) => name === "unigram")!;
    const row = codec.continue("a<s\uFE65");
    expect(row).toContain(tokenizer.idOf("<s>"));
    expect(codec.heard("a<s\uFE65")).toBe("a<s>");
  });
});

describe.each(codecs)("the codec of $name", ({ name, codec, tokenizer, hears }) => {
  it("begins a text like the tokenizer, without its suffix", () => {
    fc.assert(
      fc.property(text, (each) => {
        const whole = tokenizer.encode(each, { addSpecialTokens: true });
        const ids = codec.begin(each);
        expect(whole.slice(0, ids.length)).toEqual(ids);
        expect(ids.slice(0, codec.prefix.length)).toEqual(codec.prefix);
        expect(ids.slice(codec.prefix.length)).toEqual(tokenizer.encode(each));
      }),
      { numRuns: 60 },
    );
    expect(codec.begin("")).toEqual(codec.prefix);
  });

  it("decodes what ids add after others, wherever a text is split", () => {
    fc.assert(
      fc.property(text, fc.nat(30), (each, at) => {
        const ids = codec.continue(each);
        const [first, rest] = [ids.slice(0, at), ids.slice(at)];
        const texts = [codec.decode(first), codec.decode(rest)];
        fc.pre(!texts.join("").includes(CUT));
        expect(texts.join("")).toBe(codec.decode(ids));
        expect(codec.continue("")).toEqual([]);
        expect(codec.decode([])).toBe("");
      }),
      { numRuns: 60 },
    );
  });

  it("returns the text that it reads if it has no ids for the given one", () => {
    const special = tokenizer.decode([tokenizer.eosId ?? 0], { skipSpecialTokens: false });
    const spelled = `a${special}`;
    expect(codec.heard(spelled).replaceAll(" ", "")).toBe(spelled);
    expect(codec.continue(spelled)).toContain(tokenizer.eosId ?? 0);
    if (hears === null) {
      expect(codec.heard("今天ﬁ")).not.toBe("今天ﬁ");
      expect(codec.heard(" a", "begin")).toBe("a");
    } else if (name !== "bytes with a space in front") {
      expect(codec.heard("x", "begin")).toBe("x");
    } else {
      expect(codec.heard("x", "begin")).toBe(" x");
    }
  });
});

describe.each(goldenFamilies)("the codec of the golden $name", ({ folder, expected }) => {
  it("begins texts like Python's tokenizer(text), without the end-of-text", async () => {
    const codec = Codec.of(await Tokenizer.load(folder));
    const [empty] = expected.tokenizer.filter(({ text: each }) => each === "");
    const end = empty!.idsWithSpecials.length - codec.prefix.length;
    for (const { text: each, idsWithSpecials } of expected.tokenizer) {
      expect(codec.begin(each)).toEqual(idsWithSpecials.slice(0, idsWithSpecials.length - end));
    }
    expect(codec.begin("")).toEqual(codec.prefix);
    expect([...codec.prefix, ...empty!.idsWithSpecials.slice(codec.prefix.length)]).toEqual(
      empty!.idsWithSpecials,
    );
  });
});

describe.each(codecs)("with $name, the pieces of a text", ({ codec, tokenizer }) => {
  it("are what each id adds, also at the start of a row, and in bytes", () => {
    for (const written of ["Hello there.", "안녕하세요 여러분, 今天 😀!", " a  b\n", "x"]) {
      const ids = codec.begin(written).slice(codec.prefix.length);
      expect(codec.spell(ids, "begin").join("")).toBe(codec.heard(written, "begin"));
      const later = codec.continue(written);
      expect(codec.spell(later).join("")).toBe(codec.heard(written));
      const bytes = Buffer.from(later.flatMap((id) => codec.bytesOf(id)));
      expect(bytes.toString()).toBe(codec.decode(later, { skipSpecialTokens: false }));
    }
    const half = tokenizer.encode("여").find((id) => codec.decode([id]).includes(CUT));
    if (half !== undefined) expect(Buffer.from("여").includes(Buffer.from(codec.bytesOf(half)))).toBe(true);
  });
});

describe("the codec of a tokenizer that cleans up spaces", () => {
  it("does not clean up: the record contains the sampled space", () => {
    const tokenizer = varied(
      folderOf("xlm-roberta"),
      (_, settings) => (settings["clean_up_tokenization_spaces"] = true),
    );
    const codec = Codec.of(tokenizer);
    const ids = codec.continue("The .");
    expect(tokenizer.decode(ids)).toBe("The.");
    expect(codec.decode(ids)).toBe("The .");
  });
});

describe("the codec of a byte-level tokenizer", () => {
  it("equals the tokenizer, id for id", async () => {
    const tokenizer = await Tokenizer.load(goldenFolder);
    const codec = Codec.of(tokenizer);
    expect(Codec.of(tokenizer)).toBe(codec);
    expect(codec.prefix).toEqual([]);
    fc.assert(
      fc.property(text, fc.array(fc.nat(tokenizer.vocabSize + 3), { maxLength: 9 }), (each, ids) => {
        expect(codec.begin(each)).toEqual(tokenizer.encode(each));
        expect(codec.continue(each)).toEqual(tokenizer.encode(each));
        expect(codec.heard(each)).toBe(each);
        expect(codec.decode(ids)).toBe(tokenizer.decode(ids));
      }),
    );
    for (const { context } of golden.logprobs)
      expect(codec.begin(context)).toEqual(tokenizer.encode(context));
  });

  it("tokenizes nothing twice", async () => {
    const tokenizer = await Tokenizer.load(goldenFolder);
    const codec = Codec.of(tokenizer);
    const calls: string[] = [];
    const encode = tokenizer.encode.bind(tokenizer);
    const decode = tokenizer.decode.bind(tokenizer);
    tokenizer.encode = (...given) => (calls.push("encode"), encode(...given));
    tokenizer.decode = (...given) => (calls.push("decode"), decode(...given));
    const ids = codec.continue(" hello there");
    codec.begin("hello");
    codec.decode(ids);
    expect(calls).toEqual(["encode", "encode", "decode"]);
  });
});
