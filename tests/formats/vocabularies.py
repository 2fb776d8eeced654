"""The tokenizers of `make_fixtures.py`, in GGUF files. Some texts come with the tokens of
transformers, of the models' own `tokenizer.json`, and of sentencepiece."""

import io
import json
import sys
from pathlib import Path

import gguf
import sentencepiece
import tiktoken
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers, processors, trainers
from transformers.convert_slow_tokenizer import bytes_to_unicode
from transformers.models.gemma.tokenization_gemma import GemmaTokenizer
from transformers.models.qwen2.tokenization_qwen2 import Qwen2Tokenizer
from transformers.models.roberta.tokenization_roberta import RobertaTokenizer

OUT = Path(__file__).parent / "fixtures"
sys.path.insert(0, str(Path(__file__).parent.parent / "fidelity"))
from corpus import sentences  # noqa: E402

BPE_VOCAB = 288
TEXTS = [
    "",
    " ",
    "Hello, world!",
    " leading and trailing  ",
    "I've DON'T we'LL they're",
    "12345 6 78 1.5e10 3,141,592",
    "tabs\tand\nnew\r\nlines\n\n\nmany   spaces",
    "naïve cafe\u0301 façade Å",
    "東京の駅 привет мир 한국어",
    "🎭🎻 family: 👨‍👩‍👧",
    "def f(x):\n    return {x: [1, 2]} # comment",
    "<|im_start|>user\nHi<|im_end|>\n<tool_call>x</tool_call>",
    "CamelCaseWords HTTPServer fooBAR",
    "a_b-c/d\\e$f+g=h<i>j^k~l|m",
    "½ litre, x², ①, ٣٤",
    "\u00a0non-breaking\u3000ideographic",
    "<s>x</s>",
    "".join(chr(c) for c in range(1, 128)),
]
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def train_bpe(vocab_size):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(sentences(0, 4_000), trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], [tuple(merge) for merge in model["merges"]]


def write_bpe(writer, tokens, types, merges, pre):
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges([f"{left} {right}" for left, right in merges])


CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def qwen_tokenizer():
    """Returns metadata of a Qwen tokenizer, and transformers' tokenizer with the same vocabulary."""
    added = SPECIAL + ["<tool_call>", "</tool_call>"]
    vocab, merges = train_bpe(BPE_VOCAB - len(added) - 1)
    tokens = sorted(vocab, key=vocab.get) + added + ["[PAD287]"]
    assert len(tokens) == BPE_VOCAB
    types = [gguf.TokenType.NORMAL] * len(vocab) + [gguf.TokenType.CONTROL] * len(SPECIAL)
    types += [gguf.TokenType.USER_DEFINED] * 2 + [gguf.TokenType.UNUSED]

    def metadata(writer):
        write_bpe(writer, tokens, types, merges, "qwen2")
        writer.add_bos_token_id(tokens.index("<|endoftext|>"))
        writer.add_eos_token_id(tokens.index("<|im_end|>"))
        writer.add_pad_token_id(tokens.index("<|endoftext|>"))
        writer.add_add_bos_token(False)
        writer.add_chat_template(CHAT_TEMPLATE)
        writer.add_float32("general.sampling.temp", 0.5)
        writer.add_int32("general.sampling.top_k", 20)

    ids = {token: id for id, token in enumerate(tokens[:-1])}
    reference = Qwen2Tokenizer(vocab=ids, merges=merges, eos_token="<|im_end|>")
    reference.add_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIAL])
    reference.add_tokens([AddedToken(t, normalized=False) for t in added[len(SPECIAL) :]])
    assert reference.convert_tokens_to_ids(added) == [tokens.index(t) for t in added]
    return metadata, lambda text: reference(text)["input_ids"]


# Expressions of the models' own tokenizer.json: Llama 3, gpt-oss, BLOOM, Seed-Coder, DeepSeek V3.
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
GPT4O = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
SEED = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

JAIS2 = LLAMA3.removesuffix(r"|\s+(?!\S)|\s+") + "".join(
    rf"|\s{{{n}}}(?!\S)" for n in ("512", "256", "128", "64", "32", "16", "8", "4", "1,2")
) + r"|\s{1}"
EXAONE_MOE = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
)
# Of Kimi K2's own class, `tokenization_kimi.py`, which cuts with tiktoken.
KIMI_K2 = (
    r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def byte_level(use_regex):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)


def splits(*expressions):
    return [pre_tokenizers.Split(Regex(e), "isolated") for e in expressions] + [byte_level(False)]


# How each model cuts a text, by llama.cpp's name for it.
PRE_TOKENIZERS = {
    "llama-bpe": splits(LLAMA3),
    "smollm": [pre_tokenizers.Digits(individual_digits=True), byte_level(True)],
    "gpt-2": [byte_level(True)],
    "gpt-4o": splits(GPT4O),
    "bloom": splits(BLOOM),
    "seed-coder": splits(SEED),
    "deepseek-v3": splits(r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK),
    "falcon": [
        pre_tokenizers.Punctuation("contiguous"),
        byte_level(True),
        pre_tokenizers.Digits(individual_digits=False),
        pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated"),
    ],
    "glm4": splits(LLAMA3),
    "jais-2": splits(JAIS2),
    "exaone-moe": splits(EXAONE_MOE),
}


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def tokenizer_file(name):
    return gguf.GGUFWriter(OUT / "tokenizers" / f"{name}.gguf", "llama")


def record(name, encode):
    rows = [dict(text=text, ids=encode(text)) for text in TEXTS]
    path = OUT / "tokenizers" / f"{name}.json"
    path.write_text(json.dumps(rows, separators=(",", ":")) + "\n")


def make_bpe_tokenizers():
    vocab, merges = train_bpe(BPE_VOCAB - 2)
    tokens = sorted(vocab, key=vocab.get) + ["<|begin_of_text|>", "<|eot_id|>"]
    types = [gguf.TokenType.NORMAL] * len(vocab) + [gguf.TokenType.CONTROL] * 2
    for pre, steps in PRE_TOKENIZERS.items():
        writer = tokenizer_file(pre)
        write_bpe(writer, tokens, types, merges, pre)
        writer.add_bos_token_id(len(vocab))
        writer.add_eos_token_id(len(vocab) + 1)
        finish(writer)

        # As in the models' own tokenizer.json.
        ignore = pre in ("llama-bpe", "glm4")
        reference = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=ignore))
        reference.add_special_tokens([AddedToken(t, special=True) for t in tokens[-2:]])
        reference.pre_tokenizer = pre_tokenizers.Sequence(steps)
        if pre == "llama-bpe":
            reference.post_processor = processors.TemplateProcessing(
                single="<|begin_of_text|> $A",
                special_tokens=[("<|begin_of_text|>", len(vocab))],
            )
        reference.decoder = decoders.ByteLevel()
        record(pre, lambda text: reference.encode(text).ids)


def make_roberta_tokenizer():
    """Records the ids of transformers' class of RoBERTa's tokenizers. The keys are those that
    llama.cpp's converter writes for it."""
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    vocab, merges = train_bpe(BPE_VOCAB - len(special))
    tokens = special + sorted(vocab, key=vocab.get)
    types = [gguf.TokenType.CONTROL] * len(special) + [gguf.TokenType.NORMAL] * len(vocab)
    writer = tokenizer_file("roberta-bpe")
    write_bpe(writer, tokens, types, merges, "roberta-bpe")
    writer.add_bos_token_id(0)
    writer.add_pad_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_sep_token_id(2)
    writer.add_unk_token_id(3)
    writer.add_mask_token_id(4)
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(True)
    writer.add_add_sep_token(True)
    finish(writer)
    reference = RobertaTokenizer({token: id for id, token in enumerate(tokens)}, merges)
    record("roberta-bpe", lambda text: reference(text)["input_ids"])


def make_kimi_tokenizer():
    """Records the ids of tiktoken. A token's rank is its id."""
    vocab, merges = train_bpe(BPE_VOCAB - 2)
    special = ["[BOS]", "[EOS]"]
    types = [gguf.TokenType.NORMAL] * len(vocab) + [gguf.TokenType.CONTROL] * 2
    writer = tokenizer_file("kimi-k2")
    write_bpe(writer, sorted(vocab, key=vocab.get) + special, types, merges, "kimi-k2")
    writer.add_bos_token_id(len(vocab))
    writer.add_eos_token_id(len(vocab) + 1)
    finish(writer)
    bytes_of = {char: byte for byte, char in bytes_to_unicode().items()}
    ranks = {bytes(bytes_of[char] for char in token): id for token, id in vocab.items()}
    reference = tiktoken.Encoding(
        "kimi-k2",
        pat_str=KIMI_K2,
        mergeable_ranks=ranks,
        special_tokens={token: len(vocab) + i for i, token in enumerate(special)},
    )
    record("kimi-k2", lambda text: reference.encode(text, allowed_special="all"))


def make_sentencepiece_tokenizer():
    """Records the ids of sentencepiece. The texts lack special tokens, which it does not find."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=sentences(0, 2_000),
        model_writer=model,
        model_type="bpe",
        vocab_size=420,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        character_coverage=0.995,
        minloglevel=2,
    )
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    tokens, scores, types = [], [], []
    for id in range(processor.get_piece_size()):
        tokens.append(processor.id_to_piece(id))
        scores.append(processor.get_score(id))
        if processor.is_unknown(id):
            types.append(gguf.TokenType.UNKNOWN)
        elif processor.is_control(id):
            types.append(gguf.TokenType.CONTROL)
        elif processor.is_byte(id):
            types.append(gguf.TokenType.BYTE)
        else:
            types.append(gguf.TokenType.NORMAL)
    writer = tokenizer_file("llama")
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_scores(scores)
    writer.add_token_types(types)
    writer.add_bos_token_id(processor.bos_id())
    writer.add_eos_token_id(processor.eos_id())
    writer.add_unk_token_id(processor.unk_id())
    finish(writer)
    texts = [text for text in TEXTS if "<s>" not in text and text]
    rows = [dict(text=t, ids=[processor.bos_id(), *processor.encode(t)]) for t in texts]
    path = OUT / "tokenizers" / "llama.json"
    path.write_text(json.dumps(rows, separators=(",", ":")) + "\n")


def make_gemma4_tokenizer():
    """Records the ids of transformers' class of Gemma's tokenizers."""
    names = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    trained = Tokenizer(models.BPE())
    trained.normalizer = normalizers.Replace(" ", "▁")
    trained.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    trainer = trainers.BpeTrainer(vocab_size=160, show_progress=False)
    trained.train_from_iterator(sentences(0, 2_000), trainer)
    model = json.loads(trained.to_str())["model"]
    pieces = sorted(model["vocab"], key=model["vocab"].get)
    merges = [tuple(merge) for merge in model["merges"]]
    tokens = names + bytes_ + pieces
    kinds = gguf.TokenType
    types = [kinds.CONTROL] * 3 + [kinds.UNKNOWN, kinds.CONTROL]
    types += [kinds.BYTE] * 256 + [kinds.NORMAL] * len(pieces)
    writer = tokenizer_file("gemma4")
    writer.add_tokenizer_model("gemma4")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types(types)
    writer.add_token_merges([f"{left} {right}" for left, right in merges])
    writer.add_bos_token_id(2)
    writer.add_eos_token_id(1)
    writer.add_unk_token_id(3)
    writer.add_pad_token_id(0)
    writer.add_add_space_prefix(False)
    writer.add_add_bos_token(True)
    finish(writer)
    ids = {token: id for id, token in enumerate(tokens)}
    reference = GemmaTokenizer(vocab=ids, merges=merges)
    record("gemma4", lambda text: [2] + reference(text, add_special_tokens=False)["input_ids"])
