"""Golden ids and texts of many small tokenizers, from Python's `tokenizers` and `transformers`.

    python make_tokenizers.py          # writes golden.json.gz beside this file

Each recipe is a folder as a checkpoint would have it (tokenizer.json, tokenizer_config.json, …), which `transformers`
reads. Its results for every text, and for random ids, are recorded. Recipes that Python itself refuses are omitted.
Versions that made the committed file: see "versions" in it.
"""

import base64, copy, gzip, io, json, os, random, sys, tempfile, unicodedata
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
import sentencepiece, tokenizers, transformers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

SEED = 8
CORPUS = [
    "The quick brown fox jumps over the lazy dog. It's the dog's day, isn't it? We'll see; they've said 'no'.",
    "def f(x):\n    return x + 1  # 12345 and 3.14159\n\n\tif x:\r\n\t\tpass",
    "Ein Käfer läuft über die Straße. Le café est là, l'été à Noël. El niño comió piñas. Ærøskøbing, Łódź.",
    "Привет, мир! Як справи? שלום עולם, مرحبا بالعالم। नमस्ते दुनिया। สวัสดีชาวโลก 今日は世界、你好世界。한국어 문장입니다",
    "👩‍👩‍👧 🏳️‍🌈 🇩🇪 🔥 👍🏽 ½ ² ﬁ ﬂ Ⅷ ㎏ ｆｕｌｌ　ｗｉｄｔｈ İstanbul ΣΊΣΥΦΟΣ ΑΣ naïve co\u0301operate",
    "aaaa bbbb abab the the there then them lower lowest newer newest wide wider widest hello world hello",
] * 4
BYTES_ALPHABET = pre_tokenizers.ByteLevel.alphabet()

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace("{1,3}", "")
TEKKEN = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
GPT4O = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CL100K = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
DEEPSEEK = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
KIMI = r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def texts():
    rng = random.Random(SEED)
    assigned = [
        c
        for c in range(0x110000)
        if unicodedata.category(chr(c)) not in ("Cs", "Co", "Cn")
        and not (0x4E00 <= c < 0xA000 or 0xAC00 <= c < 0xD7A4 or 0x17000 <= c < 0x19000 or 0x20000 <= c < 0x32000)
    ]
    by_hand = """
    |a| |  |hello world| hello  world | Hello, World!|it's IT'S we'LL 'ſ 'K|12345678 1 22 333|x\t\ty\n\n z\r\n|\r\n\r\n   \n
    café naïve co\u0301op e\u0301\u0323|ſKİıßẞ|ΑΣ ΣΑΣ Σ|ﬁﬂ½²Ⅷ㎏ｆｕｌｌ　ｗ|\u0085x\ufeffy\u2028z\u00a0w\u3000v\u200bu\u180et|\ufeff|\ufeffa
    <s>|</s>a</s>|a <s> b|<unk>|<pad>x|<mask>| <mask> x|a<mask>b|a  <mask>  b|[CLS] a [SEP]|[MASK]|a[MASK]b|  [MASK]  |<|endoftext|>
    a<|endoftext|>b|<|endoftext|><|endoftext|>|<|begin_of_text|>x|word|sword word words word.|a word b|wordword|_word word_|éword|LOWER lower|Lower
    <extra>|a<extra>b|<img>|a <img> b|[FOO]|[foo] x [Foo]|▁|▁a|a▁b|▁▁|  ▁ a|<0x41>|<0x0A>|##a|a##b|_|a_b c_d|$5 <>^`~|+=|«»„“‘’|—–-
    (a)[b]{c}|a.b,c!d?e;f:g|...|!!!|?!|'|''|' '| ' |don't do not n't| do not . ? !|a , b . c ! d ? e ' f 's 'm 've 're n't
    今日は世界|你好，世界。|한국어|สวัสดี|नमस्ते|שלום עולם|مَرْحَبًا|Привет|ა|አማርኛ|ᏣᎳᎩ|𐍈𐌰|𝔘𝔫𝔦|𓀀|👩‍👩‍👧|🏳️‍🌈🇩🇪|👍🏽|🔥🔥
    \x00|\x00a\x01b\x7f|\x1b[31mred|\u202eabc\u202c|\ufffd|\ufffda|\ue000|\U0010ffff|\u0301a|a\u200db|\u0334\u0345a\u0315|\u0fb2\u0f81
    a{b}|a\\b|a/b/c|http://x.y/z?q=1&r=2#f|foo_bar fooBar FooBAR HTTPServer|x=1;y=2|0x1F|1,000.50|١٢٣|４２|²³|٣x""".strip("\n")
    out = []
    for line in by_hand.split("\n"):
        line = line.removeprefix("    ")
        # "<|" and "|>" belong to tokens
        parts = line.replace("<|", "\ue001").replace("|>", "\ue002").split("|")
        out += [p.replace("\ue001", "<|").replace("\ue002", "|>") for p in parts]
    out += ["", " " * 40, "a" * 300, "ab" * 150, "lower" * 60, "x" * 101, "é" * 100, "\n" * 30, " \n \n" * 8, "🔥" * 30]
    out += CORPUS[:6]
    pieces = [t for t in out if 0 < len(t) < 40]
    for _ in range(150):
        made = []
        for _ in range(rng.randint(1, 8)):
            kind = rng.random()
            if kind < 0.35:
                made.append(rng.choice(pieces))
            elif kind < 0.65:
                made.append("".join(chr(rng.choice(assigned)) for _ in range(rng.randint(1, 6))))
            elif kind < 0.7:
                c = rng.randrange(0x110000)
                made.append("" if 0xD800 <= c < 0xE000 else chr(c))
            elif kind < 0.85:
                made.append(rng.choice([" ", "  ", "\n", "\t", "", "", "\u0301", "\u200d", "'s", ".", "1"]))
            else:
                made.append(rng.choice(["the", "lower", "word", "hello", "newest", "dog"]))
        out.append("".join(made))
    return list(dict.fromkeys(out))


def trained(model, trainer, pre=None, norm=None):
    t = Tokenizer(model)
    if norm: t.normalizer = norm
    if pre: t.pre_tokenizer = pre
    t.train_from_iterator(CORPUS, trainer)
    return json.loads(t.to_str())["model"]


def bases():
    b = {}
    b["bytes"] = trained(
        models.BPE(), trainers.BpeTrainer(vocab_size=520, initial_alphabet=BYTES_ALPHABET, show_progress=False,
                                          special_tokens=["<|endoftext|>", "<s>", "</s>", "<unk>", "<pad>", "<mask>"]),
        pre_tokenizers.ByteLevel(add_prefix_space=False))
    spm = trained(
        models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True),
        trainers.BpeTrainer(vocab_size=460, show_progress=False, limit_alphabet=60,
                            special_tokens=["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)]),
        pre_tokenizers.Metaspace(prepend_scheme="always", split=True))
    b["spm"] = spm
    b["chars"] = trained(models.BPE(unk_token="<unk>"),
                         trainers.BpeTrainer(vocab_size=260, show_progress=False, limit_alphabet=70, special_tokens=["<unk>", "<s>", "</s>"]),
                         pre_tokenizers.Whitespace())
    b["suffix"] = trained(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"),
                          trainers.BpeTrainer(vocab_size=300, show_progress=False, limit_alphabet=70, special_tokens=["<unk>"], end_of_word_suffix="</w>"),
                          pre_tokenizers.Whitespace())
    b["prefix"] = trained(models.BPE(unk_token="<unk>", continuing_subword_prefix="##"),
                          trainers.BpeTrainer(vocab_size=300, show_progress=False, limit_alphabet=70, special_tokens=["<unk>"], continuing_subword_prefix="##"),
                          pre_tokenizers.Whitespace())
    b["wordpiece"] = trained(models.WordPiece(unk_token="[UNK]"),
                             trainers.WordPieceTrainer(vocab_size=420, show_progress=False, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]),
                             pre_tokenizers.BertPreTokenizer(), normalizers.BertNormalizer())
    words = sorted({w for t in CORPUS for w in t.split()})
    b["words"] = {"type": "WordLevel", "vocab": {w: i for i, w in enumerate(["<unk>"] + words)}, "unk_token": "<unk>"}
    with tempfile.TemporaryDirectory() as d:
        # A small map of the same form as nmt_nfkc's: sequences, deletions, spaces.
        rules = [("\uff21", "A"), ("\ufb01", "fi"), ("\u00bd", "1/2"), ("\u3000", " "), ("\u200b", " "), ("\u0007", ""), ("\ufeff", " "),
                 ("e\u0301", "\u00e9"), ("a\u0308", "\u00e4"), ("\u2460", "1"), ("\u00a0", " "), ("\r\n", "\n"), ("\t", " "), ("ㅏ", "ᅡ")]
        tsv = "\n".join(" ".join(f"{ord(c):X}" for c in a) + "\t" + " ".join(f"{ord(c):X}" for c in z) for a, z in rules)
        Path(d, "r.tsv").write_text(tsv)
        Path(d, "c.txt").write_text("\n".join(CORPUS).replace("\0", ""))
        sentencepiece.SentencePieceTrainer.train(
            input=f"{d}/c.txt", model_prefix=f"{d}/m", vocab_size=300, normalization_rule_tsv=f"{d}/r.tsv",
            character_coverage=0.98, hard_vocab_limit=False, minloglevel=2, num_threads=1)
        from sentencepiece import sentencepiece_model_pb2 as pb
        proto = pb.ModelProto(); proto.ParseFromString(Path(d, "m.model").read_bytes())
        vocab = [["<s>", 0.0], ["<pad>", 0.0], ["</s>", 0.0], ["<unk>", 0.0]] + [[p.piece, p.score] for p in proto.pieces[3:]] + [["<mask>", 0.0]]
        b["unigram"] = {"type": "Unigram", "vocab": vocab, "unk_id": 3, "byte_fallback": False}
        b["charsmap"] = base64.b64encode(proto.normalizer_spec.precompiled_charsmap).decode()
    ties = [["<unk>", 0.0]] + [[c, -1.0] for c in "ab▁"] + [["aa", -2.0], ["ab", -2.0], ["ba", -2.0], ["aba", -3.0], ["▁a", -2.0], ["aab", -3.0], ["bb", -1.5]]
    b["ties"] = {"type": "Unigram", "vocab": ties, "unk_id": 0, "byte_fallback": False}
    b["bytegram"] = {"type": "Unigram", "vocab": ties + [[f"<0x{i:02X}>", -9.0] for i in range(256)], "unk_id": 0, "byte_fallback": True}
    return b


def added(*tokens, first=None, vocab=None):
    out = []
    for t in tokens:
        content, flags = (t, {}) if isinstance(t, str) else t
        out.append({"id": 0, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
                    "normalized": False, "special": True, **flags})
    return out


def recipes(b):
    R = {}

    def put(name, model, pre=None, norm=None, post=None, dec=None, tokens=(), config=None, files=None, **overrides):
        model = {**b[model], **overrides}
        size = len(model["vocab"])
        vocab = {t: i for i, (t, _) in enumerate(model["vocab"])} if isinstance(model["vocab"], list) else model["vocab"]
        listed, next_id = [], size
        for t in added(*tokens):
            t["id"] = vocab.get(t["content"], -1)
            if t["id"] < 0: t["id"], next_id = next_id, next_id + 1
            listed.append(t)
        definition = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": listed, "normalizer": norm,
                      "pre_tokenizer": pre, "post_processor": post, "decoder": dec, "model": model}
        R[name] = {"tokenizer.json": definition, "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", **(config or {})}, **(files or {})}

    BL = lambda prefix=False, regex=True: {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}
    split = lambda p, behavior="Isolated", invert=False: {"type": "Split", "pattern": {"Regex": p}, "behavior": behavior, "invert": invert}
    seq = lambda *l: {"type": "Sequence", "pretokenizers": list(l)}
    nseq = lambda *l: {"type": "Sequence", "normalizers": list(l)}
    dseq = lambda *l: {"type": "Sequence", "decoders": list(l)}
    meta = lambda scheme="always", split=True: {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split}
    template = lambda before, after, ids: {"type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": t, "type_id": 0}} for t in before] + [{"Sequence": {"id": "A", "type_id": 0}}] + [{"SpecialToken": {"id": t, "type_id": 0}} for t in after],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {t: {"id": t, "ids": [i], "tokens": [t]} for t, i in ids.items()}}
    end = ["<|endoftext|>"]
    sent = {"<s>": 1, "</s>": 2}

    # Byte-level BPE
    put("gpt2", "bytes", BL(), dec=BL(), tokens=end, config={"eos_token": end[0], "bos_token": end[0]})
    put("gpt2-prefix-space", "bytes", BL(True), dec=BL(), tokens=end)
    put("bytes-no-regex", "bytes", BL(False, False), dec=BL(), tokens=end)
    for name, pattern in dict(llama3=LLAMA3, qwen2=QWEN2, tekken=TEKKEN, gpt4o=GPT4O, cl100k=CL100K, bloom=BLOOM, kimi=KIMI, gpt2split=GPT2).items():
        put("bytes-" + name, "bytes", seq(split(pattern), BL(False, False)), dec=BL(), tokens=end, ignore_merges=name == "llama3",
            norm={"type": "NFC"} if name == "qwen2" else None,
            post=template(["<s>"], [], sent) if name == "llama3" else None)
    put("bytes-deepseek", "bytes", seq(split(r"\p{N}{1,3}"), split("[一-龥\u3040-ゟ゠-ヿ]+"), split(DEEPSEEK), BL(False, False)), dec=BL(), tokens=end)
    put("bytes-digits-space", "bytes", seq({"type": "Digits", "individual_digits": True}, BL()), dec=BL(), tokens=["<s>", "</s>"],
        post={"type": "Sequence", "processors": [BL(), template(["<s>"], ["</s>"], {"<s>": 1, "</s>": 2})]})
    put("roberta-file", "bytes", BL(), dec=BL(), tokens=["<s>", "</s>", "<unk>", "<pad>", ("<mask>", {"lstrip": True})],
        post={"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 1], "trim_offsets": True, "add_prefix_space": False})
    put("bytes-normalizer", "bytes", norm={"type": "ByteLevel"}, dec=BL(), tokens=end)
    # Split: every behaviour, turned round or not, patterns and literals
    for behavior in ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]:
        put(f"split-{behavior}", "chars", split(r"\s|\p{P}", behavior), tokens=["<s>"])
        put(f"split-invert-{behavior}", "chars", split(r"\w+|[^\w\s]+", behavior, True), tokens=["<s>"])
        put(f"punctuation-{behavior}", "chars", seq({"type": "WhitespaceSplit"}, {"type": "Punctuation", "behavior": behavior}), tokens=["<s>"])
    put("split-literal", "chars", {"type": "Split", "pattern": {"String": " "}, "behavior": "Removed", "invert": False})
    put("split-literal-signs", "chars", {"type": "Split", "pattern": {"String": "."}, "behavior": "MergedWithPrevious", "invert": False})
    put("split-classes", "chars", split(r"\W+|\d|[a-c-e]+|[^\x00-\x7f\]\-]|\S"))
    put("split-edges", "chars", split(r"^\s+|\s+$|[[:ascii:]]" if False else r"^\s+|\s+$"))
    put("split-lazy", "chars", split(r"a.*?b|<.+?>| {2,}|(?:ab){1,2}|\n(?=\n)|x(?!y)"))
    put("whitespace", "chars", {"type": "Whitespace"})
    put("whitespace-fuse-unk", "chars", {"type": "Whitespace"}, fuse_unk=True)
    put("whitespace-no-unk", "chars", {"type": "Whitespace"}, unk_token=None)
    put("words", "words", {"type": "WhitespaceSplit"}, norm={"type": "Strip", "strip_left": True, "strip_right": True})
    put("delimiter", "words", {"type": "CharDelimiterSplit", "delimiter": "a"})
    put("suffix", "suffix", {"type": "Whitespace"}, dec={"type": "BPEDecoder", "suffix": "</w>"}, norm={"type": "Lowercase"})
    put("continuing-prefix", "prefix", {"type": "Whitespace"}, dec={"type": "WordPiece", "prefix": "##", "cleanup": False})
    put("digits", "chars", seq({"type": "Digits", "individual_digits": False}, {"type": "Whitespace"}), norm={"type": "NFKC"})
    # SentencePiece BPE
    llama = dseq({"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0})
    put("llama2-file", "spm", norm=nseq({"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}), dec=llama,
        post=template(["<s>"], [], sent), tokens=["<unk>", "<s>", "</s>"], config={"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"})
    put("llama2-normalized-tokens", "spm", norm=nseq({"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}), dec=llama,
        tokens=[("<unk>", {"normalized": True}), ("<s>", {"normalized": True}), ("word", {"normalized": True, "special": False})])
    for scheme in ["always", "first", "never"]:
        for whole in [True, False]:
            put(f"metaspace-{scheme}-{'split' if whole else 'whole'}", "spm", meta(scheme, whole), dec=meta(scheme, whole), tokens=["<unk>", "<s>", "</s>"],
                post=template(["<s>"], ["</s>"], sent), fuse_unk=whole)
    put("metaspace-first-after-split", "spm", seq({"type": "WhitespaceSplit"}, meta("first")), dec=meta("first"), tokens=["<s>"])
    put("gemma", "spm", split(" ", "MergedWithPrevious"), norm={"type": "Replace", "pattern": {"String": " "}, "content": "▁"}, tokens=["<unk>", "<s>"],
        dec=dseq({"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}))
    # WordPiece
    for name, options in {"uncased": {}, "cased": {"lowercase": False}, "accents": {"lowercase": False, "strip_accents": True}, "keep": {"strip_accents": False, "clean_text": False, "handle_chinese_chars": False}}.items():
        put("bert-" + name, "wordpiece", {"type": "BertPreTokenizer"},
            norm={"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True, **options},
            dec={"type": "WordPiece", "prefix": "##", "cleanup": name != "cased"}, tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
            post={"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}, config={"clean_up_tokenization_spaces": name == "cased"})
    put("wordpiece-short-words", "wordpiece", {"type": "Whitespace"}, max_input_chars_per_word=5, norm=nseq({"type": "NFD"}, {"type": "StripAccents"}, {"type": "Lowercase"}))
    # Unigram
    pre = {"type": "Precompiled", "precompiled_charsmap": b["charsmap"]}
    put("xlm-roberta-file", "unigram", seq({"type": "WhitespaceSplit"}, meta()), norm=pre, dec=meta(), tokens=["<s>", "<pad>", "</s>", "<unk>", ("<mask>", {"lstrip": True})],
        post=template(["<s>"], ["</s>"], {"<s>": 0, "</s>": 2}))
    put("t5-like", "unigram", meta(), norm=nseq(pre, {"type": "Strip", "strip_left": False, "strip_right": True}, {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"}), dec=meta(),
        tokens=["</s>", "<unk>"], post=template([], ["</s>"], {"</s>": 2}))
    put("unigram-ties", "ties", meta(), dec=meta())
    put("unigram-bytes", "bytegram", meta("never"), dec=dseq({"type": "ByteFallback"}, {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never", "split": True}))
    # Forms
    for form in ["NFC", "NFD", "NFKC", "NFKD"]:
        put("form-" + form, "bytes", BL(), norm={"type": form}, dec=BL())
    put("strip-left-lower", "bytes", BL(), norm=nseq({"type": "Strip", "strip_left": True, "strip_right": False}, {"type": "Lowercase"}), dec=BL())
    put("replace-regex", "bytes", BL(), norm=nseq({"type": "Replace", "pattern": {"Regex": r"[\s\p{Z}]+|[“”]"}, "content": "_"}, {"type": "Replace", "pattern": {"String": "a"}, "content": ""}), dec=BL())
    # Added tokens
    put("added-single-word", "bytes", BL(), dec=BL(), tokens=[("word", {"single_word": True, "special": False}), ("dog", {"single_word": True, "lstrip": True}), "<s>"])
    put("added-strips", "bytes", BL(), dec=BL(), tokens=[("<mask>", {"lstrip": True, "rstrip": True}), ("<extra>", {"lstrip": True}), ("<img>", {"rstrip": True})])
    put("added-normalized", "wordpiece", {"type": "BertPreTokenizer"}, norm={"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True},
        tokens=["[CLS]", ("[FOO]", {"normalized": True, "special": False}), ("[Foo]", {"normalized": True}), ("Lower", {"normalized": False, "special": False})], dec={"type": "WordPiece", "prefix": "##", "cleanup": True})
    put("added-overlap", "bytes", BL(), dec=BL(), tokens=["<s>", "<s>a", "a<s>", ("  ", {"special": False}), ("\n\n", {"special": False, "normalized": True})])
    # tokenizer_config.json and its neighbours
    base = dict(pre=BL(), dec=BL())
    put("config-extra-special", "bytes", **base, config={"additional_special_tokens": ["<extra>", "<img>"], "eos_token": "</s>", "pad_token": "[FOO]"})
    put("config-extra-special-new-name", "bytes", **base, config={"extra_special_tokens": ["<extra>"], "additional_special_tokens": ["<img>"]})
    put("config-extra-special-named", "bytes", **base, config={"extra_special_tokens": {"image_token": "<img>"}, "boi_token": "<extra>"})
    put("config-split-special", "bytes", **base, tokens=end, config={"split_special_tokens": True, "eos_token": end[0]})
    put("config-decoder-flags", "bytes", **base, tokens=[*end, ("word", {"special": False})], config={"added_tokens_decoder": {
        "0": {"content": end[0], "special": True, "rstrip": True}, "520": {"content": "word", "special": True, "lstrip": True},
        "521": {"content": "<extra>", "special": False}}, "eos_token": "</s>"}, files={"special_tokens_map.json": {"pad_token": "<img>"}})
    put("map-only", "bytes", **base, files={"special_tokens_map.json": {"eos_token": "</s>", "pad_token": {"content": "<extra>", "lstrip": True, "rstrip": False, "single_word": False, "normalized": False},
        "additional_special_tokens": ["<img>"]}, "added_tokens.json": {"[FOO]": 520, "dog": 521}}, config={"bos_token": "<s>"})
    put("config-add-bos", "bytes", **base, config={"add_bos_token": True, "bos_token": "<s>", "add_eos_token": True, "eos_token": "</s>"})
    put("config-cleanup", "wordpiece", {"type": "BertPreTokenizer"}, dec={"type": "WordPiece", "prefix": "##", "cleanup": False}, config={"clean_up_tokenization_spaces": True})
    # Classes that set up the tokenizer by themselves
    special_llama = dict(bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    for name, config in {"": {}, "-legacy": {"legacy": True}, "-no-prefix": {"add_prefix_space": False}}.items():
        put("class-llama" + name, "spm", norm=nseq({"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}), dec=llama,
            post=template(["<s>"], [], sent), tokens=["<unk>", "<s>", "</s>"], config={"tokenizer_class": "LlamaTokenizerFast", **special_llama, **config})
    for flag in [False, True]:
        put(f"class-gpt2-{flag}", "bytes", **base, tokens=end, config={"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": flag})
        put(f"class-roberta-{flag}", "bytes", **base, tokens=["<s>", ("<mask>", {"lstrip": True})], config={"tokenizer_class": "RobertaTokenizer", "add_prefix_space": flag})
    put("class-qwen2", "bytes", **base, tokens=end, config={"tokenizer_class": "Qwen2TokenizerFast", "additional_special_tokens": ["<extra>"]})
    for name, config in {"": {}, "-cased": {"do_lower_case": False}, "-plain": {"strip_accents": False, "tokenize_chinese_chars": False}}.items():
        put("class-bert" + name, "wordpiece", {"type": "BertPreTokenizer"}, dec={"type": "WordPiece", "prefix": "##", "cleanup": False}, tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
            config={"tokenizer_class": "BertTokenizer", **config})
    put("class-xlm-roberta", "unigram", meta(), norm=nseq(pre), dec=meta(), tokens=["<s>", ("<mask>", {"lstrip": True})], config={"tokenizer_class": "XLMRobertaTokenizer", "mask_token": "<mask>"})
    put("model-type-gpt2", "bytes", BL(True), dec=BL(), tokens=end, files={"config.json": {"model_type": "gpt2"}})
    del R["model-type-gpt2"]["tokenizer_config.json"]["tokenizer_class"]
    put("model-type-mistral", "spm", meta("never", False), dec=llama, tokens=["<s>"], config={"tokenizer_class": "LlamaTokenizer"}, files={"config.json": {"model_type": "mistral"}})
    # Classes that the file contradicts. The first has the form of models that were distilled into Qwen2.
    put("model-type-qwen2", "bytes", seq(split(r"\p{N}{1,3}"), split(DEEPSEEK), BL(False, False)), dec=BL(), tokens=["<s>", "</s>"], post=template(["<s>"], [], sent),
        config={"tokenizer_class": "LlamaTokenizerFast", "legacy": True, "bos_token": "<s>", "eos_token": "</s>", "add_bos_token": True}, files={"config.json": {"model_type": "qwen2"}})
    put("model-type-qwen3", "bytes", **base, tokens=end, config={"tokenizer_class": "GPT2TokenizerFast"}, files={"config.json": {"model_type": "qwen3"}})
    for name, post in {"template": template(["<s>"], [], sent), "roberta": {"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 1], "trim_offsets": True, "add_prefix_space": False}}.items():
        put("class-gpt-neox-" + name, "bytes", **base, post=post, tokens=["<s>", "</s>"], config={"tokenizer_class": "GPTNeoXTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "add_bos_token": True})
    # A model type that is not registered with a class, and a class that only config.json names.
    put("model-class-gpt-neox", "bytes", BL(True), dec=BL(), tokens=end, files={"config.json": {"model_type": "llama", "tokenizer_class": "GPTNeoXTokenizerFast"}})
    del R["model-class-gpt-neox"]["tokenizer_config.json"]["tokenizer_class"]
    return R


def load(folder, files):
    if "config.json" in files:
        return AutoTokenizer.from_pretrained(folder)
    name = files["tokenizer_config.json"].get("tokenizer_class")
    return getattr(transformers, name).from_pretrained(folder)


def main():
    transformers.logging.set_verbosity_error()
    rng = random.Random(SEED + 1)
    all_texts = texts()
    out = {"versions": {"python": sys.version.split()[0], "tokenizers": tokenizers.__version__, "transformers": transformers.__version__, "sentencepiece": sentencepiece.__version__},
           "seed": SEED, "texts": all_texts, "recipes": {}}
    for name, files in recipes(bases()).items():
        with tempfile.TemporaryDirectory() as folder:
            for file, content in files.items():
                Path(folder, file).write_text(json.dumps(content, ensure_ascii=False))
            t = load(folder, files)
        size = len(t)
        entry = {"files": files, "ids": [], "texts": [], "size": size}
        empty = t("").input_ids
        for text in all_texts:
            plain = t(text, add_special_tokens=False).input_ids
            full = t(text).input_ids
            entry["ids"].append(plain)
            framed = [i for i in range(len(full) - len(plain) + 1) if full[i:i + len(plain)] == plain]
            assert framed, (name, text)
        probe = t("hello").input_ids
        plain = t("hello", add_special_tokens=False).input_ids
        entry["framed"] = {text: t(text).input_ids for text in ["", "hello", " a <s> b"]}
        # (ids, skip_special_tokens, clean_up_tokenization_spaces) -> text
        decode = []
        for ids in rng.sample([i for i in entry["ids"] if i], 40) + [[rng.randrange(size) for _ in range(rng.randint(1, 12))] for _ in range(40)]:
            decode.append([ids, *(t.decode(ids, skip_special_tokens=skip, **clean) for skip in (True, False) for clean in ({}, {"clean_up_tokenization_spaces": False}))])
        entry["texts"] = decode
        entry["special"] = {k: getattr(t, k + "_id") for k in ["bos_token", "eos_token", "pad_token"]}
        out["recipes"][name] = entry
        print(name, size, file=sys.stderr)
    data = json.dumps(out, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    path = Path(__file__).with_name("golden.json.gz")
    path.write_bytes(gzip.compress(data, 9, mtime=0))
    print(len(out["recipes"]), "recipes,", len(all_texts), "texts,", len(data), "bytes,", path.stat().st_size, "compressed")


if __name__ == "__main__":
    main()
