"""Golden ids of tokenizers that come as the files of a vocabulary, without tokenizer.json, from Python's `transformers`.

    python make_vocabularies.py        # writes vocabularies.json.gz beside this file; needs sentencepiece and protobuf

Each recipe is a folder as older checkpoints have it (vocab.txt, vocab.json and merges.txt, sentencepiece.bpe.model), which
AutoTokenizer reads. Versions that made the committed file: see "versions" in it.
"""

import base64
import gzip
import io
import json
import os
import tempfile
from pathlib import Path

import sentencepiece
import tokenizers
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import AutoTokenizer

from make_tokenizers import BYTES_ALPHABET, CORPUS, texts


def wordpiece(lowercase):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(CORPUS, trainers.WordPieceTrainer(vocab_size=400, special_tokens=specials, show_progress=False))
    vocab = tokenizer.get_vocab()
    return sorted(vocab, key=vocab.get)


def byte_level(specials):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=specials, initial_alphabet=BYTES_ALPHABET, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    merges = [" ".join(merge) if isinstance(merge, list) else merge for merge in model["merges"]]
    return {
        "vocab.json": json.dumps(model["vocab"], ensure_ascii=False).encode(),
        "merges.txt": ("#version: 0.2\n" + "\n".join(merges) + "\n").encode(),
    }


def sentence_piece(**options):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([line for text in CORPUS for line in text.splitlines() if line.strip()]),
        model_writer=model,
        vocab_size=options.pop("vocab_size", 420),
        model_type="unigram",
        hard_vocab_limit=False,
        minloglevel=2,
        num_threads=1,
        **options,
    )
    return {"sentencepiece.bpe.model": model.getvalue()}


def as_json(value):
    return json.dumps(value, ensure_ascii=False).encode()


def recipes():
    lower, cased = wordpiece(True), wordpiece(False)
    lines = lambda tokens, end="\n": end.join([*tokens, ""]).encode()
    bert = {"config.json": as_json({"model_type": "bert"})}
    roberta = {"config.json": as_json({"model_type": "roberta"})}
    xlm = {"config.json": as_json({"model_type": "xlm-roberta"})}
    roberta_files = byte_level(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    token = lambda text, **flags: {"content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": True, "__type": "AddedToken", **flags}
    published_roberta = {
        name: token(text)
        for name, text in [("unk_token", "<unk>"), ("bos_token", "<s>"), ("eos_token", "</s>"), ("sep_token", "</s>"), ("cls_token", "<s>"), ("pad_token", "<pad>")]
    } | {"mask_token": token("<mask>", lstrip=True), "add_prefix_space": False, "errors": "replace", "model_max_length": 512, "special_tokens_map_file": None}
    return {
        "bert": {**bert, "vocab.txt": lines(lower)},
        "bert published": {
            **bert,
            "vocab.txt": lines(lower),
            "tokenizer_config.json": as_json(
                {"do_lower_case": True, "unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]", "cls_token": "[CLS]", "mask_token": "[MASK]",
                 "tokenize_chinese_chars": True, "strip_accents": None, "model_max_length": 512, "special_tokens_map_file": None}
            ),
            "special_tokens_map.json": as_json({"unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]", "cls_token": "[CLS]", "mask_token": "[MASK]"}),
        },
        "bert cased": {**bert, "vocab.txt": lines(cased), "tokenizer_config.json": as_json({"do_lower_case": False})},
        "bert accents": {**bert, "vocab.txt": lines(cased), "tokenizer_config.json": as_json({"strip_accents": False, "tokenize_chinese_chars": False})},
        # Blank lines, spaces behind tokens, a token twice, line breaks of Windows, none at the end.
        "bert odd lines": {
            **bert,
            "vocab.txt": "\r\n".join([*cased[:40], "", "the \t", cased[30], "\u3000", "\u00a0x\u0085", *cased[40:], "", "last"]).encode(),
        },
        "bert added": {**bert, "vocab.txt": lines(lower), "added_tokens.json": as_json({"<extra>": len(lower), "[FOO]": len(lower) + 1})},
        "distilbert": {"config.json": as_json({"model_type": "distilbert"}), "vocab.txt": lines(lower)},
        "roberta": {**roberta, **roberta_files},
        "roberta published": {**roberta, **roberta_files, "tokenizer_config.json": as_json(published_roberta)},
        "roberta prefix": {**roberta, **roberta_files, "tokenizer_config.json": as_json({"add_prefix_space": True})},
        "roberta no version": {**roberta, **roberta_files, "merges.txt": roberta_files["merges.txt"].split(b"\n", 1)[1].replace(b"\n", b"\r\n")},
        "gpt2": {"config.json": as_json({"model_type": "gpt2"}), **byte_level(["<|endoftext|>"])},
        "gpt2 with ends": {
            "config.json": as_json({"model_type": "gpt2"}), **byte_level(["<|endoftext|>"]), "tokenizer_config.json": as_json({"add_bos_token": True, "add_eos_token": True})
        },
        "gpt-neox with a beginning": {
            "config.json": as_json({"model_type": "gpt_neox"}), **byte_level(["<|endoftext|>", "<|padding|>"]), "tokenizer_config.json": as_json({"add_bos_token": True})
        },
        "xlm-roberta published": {
            **xlm,
            **sentence_piece(normalization_rule_name="nmt_nfkc"),
            "tokenizer_config.json": as_json({"model_max_length": 512, "mask_token": token("<mask>", lstrip=True)}),
            "special_tokens_map.json": as_json({"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "sep_token": "</s>", "cls_token": "<s>", "pad_token": "<pad>", "mask_token": "<mask>"}),
        },
        "xlm-roberta symbols": {**xlm, **sentence_piece(user_defined_symbols=["<extra>", "[FOO]"], control_symbols=["<img>"])},
    }


def main():
    given = texts()
    written = {}
    for name, files in recipes().items():
        with tempfile.TemporaryDirectory() as folder:
            for file, content in files.items():
                Path(folder, file).write_bytes(content)
            try:
                tokenizer = AutoTokenizer.from_pretrained(folder)
            except Exception as error:
                print(f"{name}: Python refuses: {type(error).__name__}: {str(error)[:150]}")
                continue
            ids = [tokenizer.encode(text, add_special_tokens=False) for text in given]
            written[name] = {
                "class": type(tokenizer).__name__,
                "files": {file: base64.b64encode(content).decode() for file, content in files.items()},
                "size": len(tokenizer),
                "ids": ids,
                "framed": tokenizer.encode("a framed text"),
                "decoded": [tokenizer.decode(row, skip_special_tokens=True, clean_up_tokenization_spaces=False) for row in ids[::7]],
            }
            print(name, type(tokenizer).__name__, len(tokenizer))
    versions = {module.__name__: module.__version__ for module in (transformers, tokenizers, sentencepiece)}
    golden = json.dumps({"versions": versions, "texts": given, "recipes": written}, ensure_ascii=False)
    path = Path(__file__).parent / "vocabularies.json.gz"
    path.write_bytes(gzip.compress(golden.encode(), mtime=0))
    print(path.stat().st_size)


if __name__ == "__main__":
    os.environ["HF_HUB_OFFLINE"] = "1"
    main()
