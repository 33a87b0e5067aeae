"""How the parts of Python's `tokenizers` classify each code point, determined by calling them.

    python make_unicode_tables.py > tables.json
    npx tsx make-unicode-tables.ts tables.json      # writes src/tokenizer/unicode-tables.ts

The parts were built with different Unicode versions: Oniguruma (patterns), the regex crate (Whitespace, single words),
unicode_categories (BERT, punctuation), unicode-normalization, Rust itself (digits).
"""

import json, sys
import tokenizers
from tokenizers import Regex, normalizers as N, pre_tokenizers as P

POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co Cn".split()
SCRIPTS = "Han Hiragana Katakana Hangul Thai Latin Greek Cyrillic Arabic Hebrew Devanagari".split()
STEP = 4000


def ranges(points):
    out = []
    for c in points:
        if out and (out[-1][1] == c - 1 or (out[-1][1] == 0xD7FF and c == 0xE000)):
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def kept(pattern):
    """Code points that remain when all matches are removed."""
    take = N.Replace(Regex(pattern), "")
    text = "".join(map(chr, POINTS))
    return [ord(c) for i in range(0, len(text), 20000) for c in take.normalize_str(text[i : i + 20000])]


def each(normalizer, build):
    """A normalizer's output for each code point, many at a time."""
    out = {}
    for i in range(0, len(POINTS), STEP):
        chunk = POINTS[i : i + STEP]
        parts = normalizer.normalize_str("|".join(build(chr(c)) for c in chunk)).split("|")
        if 0x7C in chunk or len(parts) != len(chunk):
            parts = [normalizer.normalize_str(build(chr(c))) for c in chunk]
        out.update(zip(chunk, parts))
    return out


def cuts(pre_tokenizer):
    """Which stretches remain of "a" and each code point, between spaces."""
    out = {}
    for i in range(0, len(POINTS), STEP):
        chunk = POINTS[i : i + STEP]
        end_of = {x: y for _, (x, y) in pre_tokenizer.pre_tokenize_str(" ".join("a" + chr(c) for c in chunk))}
        for index, c in enumerate(chunk):
            at, found = 3 * index, []
            while at < 3 * index + 2:
                if at in end_of:
                    found.append((at - 3 * index, end_of[at] - 3 * index))
                    at = max(at + 1, end_of[at])
                else:
                    at += 1
            out[c] = tuple(found)
    return out


def where(values, wanted):
    return ranges(c for c in POINTS if wanted(c, values[c]))


bert = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
whole, apart = ((0, 2),), ((0, 1), (1, 2))
clean = each(N.BertNormalizer(**{**bert, "clean_text": True}), lambda c: f"a{c}b")
cjk = each(N.BertNormalizer(**{**bert, "handle_chinese_chars": True}), lambda c: f"a{c}b")
accents = each(N.BertNormalizer(**{**bert, "strip_accents": True}), lambda c: c)
marks = each(N.StripAccents(), lambda c: f"a{c}b")
words = cuts(P.Whitespace())
digits = cuts(P.Sequence([P.WhitespaceSplit(), P.Digits(individual_digits=True)]))
punctuation = cuts(P.Sequence([P.WhitespaceSplit(), P.Punctuation()]))
assert punctuation == cuts(P.BertPreTokenizer())
decomposed = each(N.NFD(), lambda c: c)
# A mark of class 1 moves before the character, or the character before one of class 240: it is a combining mark.
low, high = each(N.NFD(), lambda c: c + "\u0334"), each(N.NFD(), lambda c: "x\u0345" + c)
space = ranges(kept(r"\S"))
assert space == where(words, lambda c, found: found == ((0, 1),))

json.dump(
    {
        "version": tokenizers.__version__,
        "categories": {name: ranges(kept(r"[^\p{%s}]" % name)) for name in CATEGORIES},
        "sets": {
            "space": space,
            "onigurumaWord": ranges(kept(r"\W")),
            "word": where(words, lambda c, found: found == whole),
            "numeric": where(digits, lambda c, found: found == apart),
            "punctuation": where(punctuation, lambda c, found: found == apart),
            "bertRemoved": where(clean, lambda c, text: text == "ab"),
            "bertSpace": where(clean, lambda c, text: text == "a b"),
            "cjk": where(cjk, lambda c, text: text == f"a {chr(c)} b"),
            "marks": where(marks, lambda c, text: text == "ab"),
            "accents": where(accents, lambda c, text: text == ""),
            **{name: ranges(kept(r"[^\p{%s}]" % name)) for name in SCRIPTS},
        },
        "combining": ranges(c for c in POINTS if low[c] != decomposed[c] + "\u0334" or high[c] != "x\u0345" + decomposed[c]),
        "forms": {
            form: {c: text for c, text in each(getattr(N, form)(), lambda c: c).items() if text != chr(c)}
            for form in ["NFC", "NFD", "NFKC", "NFKD"]
        },
    },
    sys.stdout,
)
