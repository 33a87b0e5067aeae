"""Makes tiny random checkpoints of every family and tokenizer kind, and the values that transformers gives for them.

    python3 make_families.py            (torch 2.13, transformers 5.18, tokenizers; versions are written beside the values)
    python3 make_families.py qwen2-bos  makes only the families named

Each folder `families/<name>` holds a checkpoint as transformers saves it and `expected.json`. Nothing is downloaded.
"""

import json
import math
import os
import shutil
import sys

import tokenizers
import torch
import transformers
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

ONLY = set(sys.argv[1:])
HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "families")

# Original text, only used to train the tokenizers' merges.
CORPUS = [
    "The morning train was late again, and nobody on the platform knew why.",
    "She planted tomatoes, beans and 3 rows of carrots behind the old shed in 2021.",
    "\"Don't worry,\" he said, \"it's only rain; we'll dry out by the time they've opened the gate.\"",
    "Numbers such as 7, 42, 1000 and 123456 appear now and then.",
    "Der Zug hat Verspätung, naïve café, señor, smörgåsbord.",
    "Привет, как дела? Сегодня хорошая погода.",
    "今天天气很好，我们去公园吧。 東京の朝は静かです。",
    "مرحبا كيف حالك اليوم؟ שלום עולם",
    "Emoji: 😀 🎉 👩‍👩‍👧 🇫🇷 and e\u0301 combining marks.",
    "Tabs\tand\nnewlines\r\nand  double   spaces   too.",
] * 4

TEXTS = [
    "The train was late.",
    " leading space and trailing space ",
    "it's 12345 o'clock, they've gone",
    "Verspätung naïve e\u0301",
    "今天天气很好 東京",
    "مرحبا שלום",
    "😀🎉👩‍👩‍👧 🇫🇷",
    "a\tb\nc\r\nd   e",
    "\u0000\u0007\u200b\ufeff odd",
    "x",
    "",
]


def byte_bpe(vocab_size, specials):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=specials, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def llama3_bpe(vocab_size, specials):
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    pattern = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=specials, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    begin = "<|begin_of_text|>"
    tokenizer.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(
                single=f"{begin} $A", pair=f"{begin} $A {begin}:1 $B:1", special_tokens=[(begin, tokenizer.token_to_id(begin))]
            ),
        ]
    )
    return tokenizer


def with_begin(tokenizer, begin):
    """A begin-of-text token in the post-processor; NFC and the pattern as Qwen's own tokenizers have them."""
    tokenizer.normalizer = normalizers.NFC()
    pattern = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A", pair=f"{begin} $A {begin}:1 $B:1", special_tokens=[(begin, tokenizer.token_to_id(begin))]
    )
    return tokenizer


def sentencepiece_bpe(vocab_size, specials):
    """As in Llama 2 and Mistral: ▁ for spaces, unknown characters as <0x..> bytes."""
    bytes_ = [f"<0x{value:02X}>" for value in range(256)]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    # Trained on words, so that merges stay inside them; used without a pre-tokenizer, as SentencePiece does.
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="never")
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, special_tokens=specials + bytes_, limit_alphabet=60, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    state = json.loads(tokenizer.to_str())
    state["pre_tokenizer"] = None
    # The byte pieces are ordinary vocabulary, not special tokens.
    state["added_tokens"] = [token for token in state["added_tokens"] if token["content"] in specials]
    tokenizer = Tokenizer.from_str(json.dumps(state))
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))]
    )
    return tokenizer


def unigram(vocab_size):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    specials = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trainer = trainers.UnigramTrainer(vocab_size=vocab_size, special_tokens=specials, unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in ("<s>", "</s>")],
    )
    return tokenizer


def wordpiece(vocab_size):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=vocab_size, special_tokens=specials, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")],
    )
    return tokenizer


def gemma_tokenizer(vocab_size):
    """Gemma's own class, over pieces with ▁ for spaces, and as published with a begin-of-text token."""
    specials = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
    model = json.loads(sentencepiece_bpe(vocab_size, ["<unk>", "<s>", *specials[:3], "<mask>"]).to_str())["model"]
    merges = [tuple(merge) for merge in model["merges"]]
    tokenizer = transformers.GemmaTokenizer(vocab=model["vocab"], merges=merges)
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<bos> $A", pair="<bos> $A <bos>:1 $B:1", special_tokens=[("<bos>", tokenizer.bos_token_id)]
    )
    return tokenizer


def gpt_neox_tokenizer(vocab_size):
    model = json.loads(byte_bpe(vocab_size, ["<|endoftext|>", "<|padding|>"]).to_str())["model"]
    merges = [tuple(merge) for merge in model["merges"]]
    return transformers.GPTNeoXTokenizer(vocab=model["vocab"], merges=merges)


def roberta_bpe(vocab_size):
    tokenizer = byte_bpe(vocab_size, ["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    tokenizer.post_processor = processors.RobertaProcessing(
        ("</s>", tokenizer.token_to_id("</s>")), ("<s>", tokenizer.token_to_id("<s>")), add_prefix_space=False
    )
    return tokenizer


CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<|start_header_id|>{{ message['role'] }}<|end_header_id|>\n\n"
    "{{ message['content'] | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
CHAT = [
    {"role": "system", "content": "You are terse."},
    {"role": "user", "content": "  Hello there! 😀 "},
    {"role": "assistant", "content": "Hi."},
    {"role": "user", "content": "Why?"},
]


def wrap(tokenizer, **specials):
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **specials)


def randomise(model, seed, norm_centre=1.0):
    """Weights large enough that the distributions are far from uniform, biases and norms far from their defaults.

    norm_centre is 0 where the weights of norms are stored as differences from one.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() == 1:
                centre = norm_centre if "norm" in name.lower() and name.endswith("weight") else 0.0
                parameter.copy_(centre + 0.1 * noise)
            else:
                parameter.copy_(noise * (1.2 / math.sqrt(parameter.shape[-1])))
    return model


def rewrite_config(folder, change):
    path = os.path.join(folder, "config.json")
    with open(path) as file:
        config = json.load(file)
    change(config)
    with open(path, "w") as file:
        json.dump(config, file, indent=2)


def save(name, model, tokenizer, shard=None, storage=torch.float32):
    folder = os.path.join(HERE, name)
    shutil.rmtree(folder, ignore_errors=True)
    model.to(storage).save_pretrained(folder, max_shard_size=shard or "5GB")
    tokenizer.save_pretrained(folder)
    return folder


def window_of(config):
    """The context length; with LongRoPE the original one, beyond which transformers has other frequencies."""
    config = config.get_text_config()
    parameters = getattr(config, "rope_parameters", None) or {}
    if parameters.get("rope_type") == "longrope":
        return config.original_max_position_embeddings
    return config.max_position_embeddings


def causal_values(folder, tokenizer, greedy_lengths=12):
    """Loads what was saved (config spellings included) and computes in float32."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    window = window_of(model.config)
    pairs, prompts = [], []
    ids_of = [tokenizer.encode(text, add_special_tokens=False) for text in TEXTS]
    ids_of = [ids for ids in ids_of if ids]
    for index, context in enumerate(ids_of):
        continuation = ids_of[(index + 3) % len(ids_of)]
        context, continuation = context[-window // 2 :], continuation[: window // 2]
        with torch.no_grad():
            logits = model(torch.tensor([context + continuation])).logits[0].log_softmax(-1)
        scored = [
            logits[len(context) + offset - 1, token].item() for offset, token in enumerate(continuation)
        ]
        pairs.append({"contextIds": context, "continuationIds": continuation, "logprobs": scored})
    for ids in ids_of:
        ids = ids[-(window - greedy_lengths) :]
        with torch.no_grad():
            output = model.generate(
                torch.tensor([ids]),
                attention_mask=torch.ones(1, len(ids), dtype=torch.long),
                max_new_tokens=greedy_lengths,
                do_sample=False,
                pad_token_id=0,
            )
        prompts.append({"ids": ids, "greedy": output[0, len(ids) :].tolist()})
    return {"pairs": pairs, "greedy": prompts}


def tokenizer_values(tokenizer):
    rows = []
    for text in TEXTS:
        ids = tokenizer.encode(text, add_special_tokens=False)
        rows.append(
            {
                "text": text,
                "ids": ids,
                "idsWithSpecials": tokenizer.encode(text),
                "decoded": tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False),
            }
        )
    return rows


def write(folder, values):
    values["versions"] = {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "tokenizers": tokenizers.__version__,
    }
    with open(os.path.join(folder, "expected.json"), "w") as file:
        json.dump(values, file, ensure_ascii=False)
        file.write("\n")


def causal(name, config, tokenizer, seed, change=None, shard=None, storage=torch.float32, chat=False, eos=None, norm_centre=1.0):
    if ONLY and name not in ONLY:
        return
    config.get_text_config().pad_token_id = None
    model = randomise(transformers.AutoModelForCausalLM.from_config(config), seed, norm_centre)
    if config.tie_word_embeddings:
        model.tie_weights()
    model.generation_config.eos_token_id = eos if eos is not None else tokenizer.eos_token_id
    model.generation_config.bos_token_id = tokenizer.bos_token_id
    folder = save(name, model, tokenizer, shard, storage)
    if change:
        rewrite_config(folder, change)
    # The class that AutoTokenizer selects for the folder also depends on the model type.
    read = transformers.AutoTokenizer.from_pretrained(folder)
    values = {"tokenizer": tokenizer_values(read), **causal_values(folder, tokenizer)}
    if chat:
        values["chat"] = [
            {
                "messages": CHAT[:count],
                "addGenerationPrompt": prompt,
                "text": read.apply_chat_template(CHAT[:count], tokenize=False, add_generation_prompt=prompt),
            }
            for count, prompt in ((2, True), (4, True), (3, False))
        ]
    write(folder, values)


def classifier(name, model, tokenizer, seed):
    if ONLY and name not in ONLY:
        return
    folder = save(name, randomise(model, seed), tokenizer)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()
    limit = tokenizer.model_max_length
    texts = [*TEXTS, " ".join(CORPUS)]
    rows = []
    for text in texts:
        batch = tokenizer(text, truncation=True, max_length=limit, return_tensors="pt")
        batch.pop("token_type_ids", None)
        with torch.no_grad():
            logits = model(**batch).logits[0]
        rows.append({"text": text, "ids": batch["input_ids"][0].tolist(), "logits": logits.tolist()})
    write(folder, {"tokenizer": tokenizer_values(tokenizer), "maxLength": limit, "rows": rows})


def old_spelling(scaling=None, theta=10000.0):
    def change(config):
        config.pop("rope_parameters", None)
        config["rope_theta"] = theta
        config["rope_scaling"] = scaling

    return change


def main():
    torch.manual_seed(0)
    vocabulary = 340
    small = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=96)

    sentencepiece = wrap(
        sentencepiece_bpe(vocabulary + 60, ["<unk>", "<s>", "</s>"]), unk_token="<unk>", bos_token="<s>", eos_token="</s>"
    )
    specials3 = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
    llama3 = wrap(llama3_bpe(vocabulary, specials3), bos_token=specials3[0], eos_token=specials3[1])
    llama3.chat_template = CHAT_TEMPLATE
    qwen = wrap(byte_bpe(vocabulary, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]), eos_token="<|endoftext|>")

    Llama = transformers.LlamaConfig
    causal(
        "llama2",
        Llama(**small, vocab_size=len(sentencepiece), num_key_value_heads=4, tie_word_embeddings=False, bos_token_id=1, eos_token_id=2),
        sentencepiece,
        seed=1,
        change=old_spelling(),
    )
    causal(
        "llama3-sharded",
        Llama(
            **small,
            vocab_size=len(llama3),
            num_key_value_heads=2,
            head_dim=16,
            tie_word_embeddings=False,
            rope_parameters={"rope_type": "default", "rope_theta": 500000.0},
            bos_token_id=0,
            eos_token_id=1,
        ),
        llama3,
        seed=2,
        shard="60KB",
        chat=True,
        eos=[1, 4],
    )
    llama3_scaling = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 24,
    }
    for name, change in (
        ("llama31-old-spelling", old_spelling(llama3_scaling, 500000.0)),
        ("llama32-new-spelling", None),
    ):
        causal(
            name,
            Llama(
                **small,
                vocab_size=len(llama3),
                num_key_value_heads=2,
                tie_word_embeddings=True,
                rope_parameters={**llama3_scaling, "rope_theta": 500000.0},
                bos_token_id=0,
                eos_token_id=1,
            ),
            llama3,
            seed=3,
            change=change,
            storage=torch.bfloat16 if change else torch.float16,
            chat=True,
            eos=[1, 4],
        )
    causal(
        "llama-linear",
        Llama(**small, vocab_size=len(sentencepiece), num_key_value_heads=2, rope_parameters={"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}),
        sentencepiece,
        seed=4,
        change=old_spelling({"type": "linear", "factor": 4.0}),
    )
    causal(
        "llama-dynamic",
        Llama(
            **{**small, "max_position_embeddings": 48},
            vocab_size=len(sentencepiece),
            num_key_value_heads=2,
            rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0},
        ),
        sentencepiece,
        seed=5,
    )
    causal(
        "qwen2",
        transformers.Qwen2Config(**small, vocab_size=len(qwen) + 12, num_key_value_heads=2, tie_word_embeddings=True, eos_token_id=0, bos_token_id=None),
        qwen,
        seed=6,
    )
    qwen_begin = "<|startoftext|>"
    qwen_with_begin = wrap(
        with_begin(byte_bpe(vocabulary, ["<|endoftext|>", qwen_begin]), qwen_begin), bos_token=qwen_begin, eos_token="<|endoftext|>"
    )
    causal(
        "qwen2-bos",
        transformers.Qwen2Config(
            **small, vocab_size=len(qwen_with_begin), num_key_value_heads=2, tie_word_embeddings=True, eos_token_id=0, bos_token_id=1
        ),
        qwen_with_begin,
        seed=12,
    )
    causal(
        "qwen3",
        transformers.Qwen3Config(**small, vocab_size=len(qwen), num_key_value_heads=2, head_dim=16, tie_word_embeddings=False, eos_token_id=0, bos_token_id=None),
        qwen,
        seed=7,
    )
    causal(
        "mistral",
        transformers.MistralConfig(**small, vocab_size=len(sentencepiece), num_key_value_heads=2, sliding_window=8, bos_token_id=1, eos_token_id=2),
        sentencepiece,
        seed=8,
    )

    gemma = gemma_tokenizer(vocabulary + 60)
    gemma_settings = dict(
        **small,
        vocab_size=len(gemma),
        num_key_value_heads=2,
        head_dim=12,
        query_pre_attn_scalar=20,
        sliding_window=8,
        layer_types=["sliding_attention", "full_attention"],
        bos_token_id=gemma.bos_token_id,
        eos_token_id=gemma.eos_token_id,
    )
    gemma_rotary = {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    }
    causal("gemma3", transformers.Gemma3TextConfig(**gemma_settings, rope_parameters=gemma_rotary), gemma, seed=14, norm_centre=0.0)
    causal(
        "gemma3-multimodal",
        transformers.Gemma3Config(
            text_config={**gemma_settings, "rope_parameters": gemma_rotary},
            vision_config=dict(hidden_size=8, intermediate_size=8, num_hidden_layers=3, num_attention_heads=2, image_size=8, patch_size=4),
            mm_tokens_per_image=4,
            image_token_index=len(gemma) - 1,
            boi_token_index=len(gemma) - 2,
            eoi_token_index=len(gemma) - 3,
            tie_word_embeddings=True,
        ),
        gemma,
        seed=15,
        norm_centre=0.0,
    )
    causal(
        "phi3",
        transformers.Phi3Config(**small, vocab_size=len(sentencepiece), num_key_value_heads=2, sliding_window=8, bos_token_id=1, eos_token_id=2),
        sentencepiece,
        seed=16,
    )
    longrope = {"short_factor": [1.0, 1.25, 1.5], "long_factor": [1.5, 2.5, 6.0]}

    def as_published(config):
        old_spelling({"type": "longrope", **longrope})(config)
        config.update(original_max_position_embeddings=48, partial_rotary_factor=0.75)

    causal(
        "phi4-mini",
        transformers.Phi3Config(
            **small,
            vocab_size=len(qwen),
            num_key_value_heads=2,
            tie_word_embeddings=True,
            original_max_position_embeddings=48,
            rope_parameters={"rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.75, **longrope},
            bos_token_id=None,
            eos_token_id=0,
        ),
        qwen,
        seed=17,
        change=as_published,
        storage=torch.bfloat16,
    )
    causal(
        "olmo2",
        transformers.Olmo2Config(**small, vocab_size=len(qwen), num_key_value_heads=2, rope_parameters={"rope_type": "default", "rope_theta": 500000.0}, eos_token_id=0),
        qwen,
        seed=18,
    )
    causal(
        "smollm3",
        transformers.SmolLM3Config(**small, vocab_size=len(qwen), num_key_value_heads=2, no_rope_layers=[1, 0], bos_token_id=None, eos_token_id=0),
        qwen,
        seed=19,
    )

    causal(
        "granite",
        transformers.GraniteConfig(
            **small, vocab_size=len(qwen), num_key_value_heads=2, attention_bias=True, mlp_bias=True, tie_word_embeddings=True, bos_token_id=0, eos_token_id=0,
            embedding_multiplier=3.0, residual_multiplier=0.4, attention_multiplier=0.2, logits_scaling=2.5,
        ),
        qwen,
        seed=21,
        storage=torch.bfloat16,
    )
    # Queries grow twice within the window.
    ministral_rotary = {
        "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 24, "max_position_embeddings": 96,
        "beta_fast": 4.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 0.5, "llama_4_scaling_beta": 0.3,
    }
    causal(
        "ministral3",
        transformers.Ministral3Config(
            **small, vocab_size=len(sentencepiece), num_key_value_heads=2, head_dim=12, tie_word_embeddings=False, rope_parameters=ministral_rotary, bos_token_id=1, eos_token_id=2
        ),
        sentencepiece,
        seed=22,
        storage=torch.bfloat16,
    )
    causal(
        "olmo3",
        transformers.Olmo3Config(
            **small,
            vocab_size=len(qwen),
            num_key_value_heads=2,
            sliding_window=8,
            layer_types=["sliding_attention", "full_attention"],
            rope_parameters={
                "sliding_attention": {"rope_type": "default", "rope_theta": 500000.0},
                "full_attention": {"rope_type": "yarn", "rope_theta": 500000.0, "factor": 4.0, "original_max_position_embeddings": 24, "beta_fast": 4.0, "beta_slow": 1.0, "attention_factor": 1.2},
            },
            eos_token_id=0,
        ),
        qwen,
        seed=24,
        storage=torch.float16,
    )
    causal(
        "seed-oss",
        transformers.SeedOssConfig(**small, vocab_size=len(qwen), num_key_value_heads=2, head_dim=12, attention_out_bias=True, bos_token_id=0, eos_token_id=0),
        qwen,
        seed=25,
        storage=torch.bfloat16,
    )
    causal(
        "glm4",
        transformers.Glm4Config(**small, vocab_size=len(qwen), num_key_value_heads=2, head_dim=16, bos_token_id=None, eos_token_id=[0]),
        qwen,
        seed=26,
        storage=torch.bfloat16,
    )

    def neox_spelling(config):
        config.pop("rope_parameters", None)
        config.update(rotary_pct=0.25, rotary_emb_base=10000)

    neox = gpt_neox_tokenizer(vocabulary)
    causal(
        "gpt-neox",
        transformers.GPTNeoXConfig(**{**small, "num_attention_heads": 2}, vocab_size=len(neox), bos_token_id=0, eos_token_id=0),
        neox,
        seed=20,
        change=neox_spelling,
        storage=torch.float16,
    )

    encoder = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48)
    labels = ["toxicity", "severe_toxicity", "obscene", "threat", "insult", "identity_attack"]
    bert_tokenizer = wrap(
        wordpiece(vocabulary), unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]", model_max_length=64
    )
    classifier(
        "bert",
        transformers.BertForSequenceClassification(
            transformers.BertConfig(
                **encoder,
                vocab_size=len(bert_tokenizer),
                max_position_embeddings=64,
                problem_type="multi_label_classification",
                id2label=dict(enumerate(labels)),
                label2id={label: index for index, label in enumerate(labels)},
            )
        ),
        bert_tokenizer,
        seed=9,
    )
    roberta_tokenizer = wrap(
        roberta_bpe(vocabulary),
        bos_token="<s>", eos_token="</s>", unk_token="<unk>", pad_token="<pad>", cls_token="<s>", sep_token="</s>", mask_token="<mask>",
        model_max_length=64,
    )
    classifier(
        "roberta",
        transformers.RobertaForSequenceClassification(
            transformers.RobertaConfig(**encoder, vocab_size=len(roberta_tokenizer), max_position_embeddings=66, type_vocab_size=1, num_labels=16, pad_token_id=1)
        ),
        roberta_tokenizer,
        seed=10,
    )
    unigram_tokenizer = wrap(
        unigram(vocabulary),
        bos_token="<s>", eos_token="</s>", unk_token="<unk>", pad_token="<pad>", cls_token="<s>", sep_token="</s>", mask_token="<mask>",
        model_max_length=64,
    )
    classifier(
        "xlm-roberta",
        transformers.XLMRobertaForSequenceClassification(
            transformers.XLMRobertaConfig(**encoder, vocab_size=len(unigram_tokenizer), max_position_embeddings=66, type_vocab_size=1, num_labels=16, pad_token_id=1)
        ),
        unigram_tokenizer,
        seed=11,
    )
    classifier(
        "distilbert",
        transformers.DistilBertForSequenceClassification(
            transformers.DistilBertConfig(
                dim=32, n_layers=2, n_heads=4, hidden_dim=48, vocab_size=len(bert_tokenizer), max_position_embeddings=64,
                id2label={0: "NEGATIVE", 1: "POSITIVE"}, label2id={"NEGATIVE": 0, "POSITIVE": 1},
            )
        ),
        bert_tokenizer,
        seed=13,
    )


if __name__ == "__main__":
    main()
