"""Trains small sentencepiece models and records the tokens of texts for each class of tokenizers.

    python src/text/class_tokenizer/testdata/make.py            # all of them
    python src/text/class_tokenizer/testdata/make.py encoders   # the classes of encoders anew

Marian, M2M100 and BART are transformers' classes. Those of the other classes with a sentencepiece
model are made by hand from the library's pieces, as the slow tokenizers of transformers 4 make
them: transformers 5 has only fast ones, which cut a few texts in other ways. Nothing is downloaded.

Needs: sentencepiece, protobuf, transformers >= 5, tokenizers.
"""

import io
import json
import os
import random
import sys
import tempfile
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import sentencepiece as spm
import transformers as hf
from tokenizers import BertWordPieceTokenizer, ByteLevelBPETokenizer

HERE = Path(__file__).parent
DRAW = random.Random(7)
RULES = {
    "\u3000": " ", "\u00a0": " ", "\t": " ", "\n": " ", "\u200b": "", "\ufb01": "fi",
    "\u2460": "1", "\uff76\uff9e": "\u30ac", "\uff76": "\u30ab", "e\u0301": "\u00e9",
    "\u1112\u1161\u11ab": "\ud55c", "\u2026": "...", "\u3131": "\u1100",
}  # fmt: skip
SCRIPTS = [
    "abcdefgh ABC", "\u00e9\u00e0\u00fc\u00df\u00f1e\u0301", "\u0430\u0431\u0432\u0433\u0434",
    "\u03b1\u03b2\u03b3\u03b4", "\u4e2d\u6587\u5b57\u65e5\u672c", "\u304b\u306a\uff76\uff9e\u30ab",
    "\ud55c\uad6d\u1112\u1161\u11ab\u3131", "\u0645\u0631\u062d\u0628\u0627", "\u05e9\u05dc\u05d5",
    "\u0939\u093f\u0928\u094d", "\u0e44\u0e17\u0e22", "0123456789\u2460", "!.,-\u2026()'",
    "\U0001f600\U0001f1e9\U0001f1ea\u200d", "\t\n\u00a0\u3000\u200b ", "\ufb01x\u2581",
]  # fmt: skip
SPECIAL = ["</s>", "<unk>", "<pad>", "<s>", "<mask>", ">>fra<<", ">>xyz<<", "<extra_id_3>",
           "<mask_1>", "de_DE", "fra_Latn", "__de__"]  # fmt: skip


def word():
    script = DRAW.choice(SCRIPTS)
    return "".join(DRAW.choice(script) for _ in range(DRAW.randint(1, 6)))


WORDS = [word() for _ in range(150)]


def text(special=()):
    parts = []
    for _ in range(DRAW.randint(0, 16)):
        kind = DRAW.random()
        known = DRAW.choice(WORDS)
        repeated = DRAW.choice("a.!\u00e9\u4e2d") * DRAW.randint(1, 12)
        parts.append(known if kind < 0.6 else repeated if kind < 0.75 else word())
        if special and DRAW.random() < 0.1:
            parts.append(DRAW.choice(special))
        parts.append(DRAW.choice([" ", " ", " ", "", "  ", "\n"]))
    return "".join(parts)


def train(name, **fields):
    """Trains a model on drawn texts and writes it."""
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as rules:
        code = lambda chars: " ".join(f"{ord(c):X}" for c in chars)
        rules.write("".join(f"{code(a)}\t{code(b)}\n" for a, b in RULES.items()))
        rules.flush()
        corpus = [text().replace("\n", " ") for _ in range(1500)]
        model = io.BytesIO()
        spm.SentencePieceTrainer.train(
            sentence_iterator=iter(corpus),
            model_writer=model,
            normalization_rule_tsv=rules.name,
            character_coverage=0.98,
            minloglevel=2,
            **fields,
        )
    (HERE / name).write_bytes(model.getvalue())
    return spm.SentencePieceProcessor(model_proto=model.getvalue())


def cut(text, special):
    """Cuts a text at special tokens. Of those that begin at a place, the longest counts."""
    parts, begin, at = [], 0, 0
    while at < len(text):
        found = max((t for t in special if text.startswith(t, at)), key=len, default=None)
        if found is None:
            at += 1
            continue
        parts += [(text[begin:at], None), (found, special[found])]
        begin = at = at + len(found)
    return parts + [(text[begin:], None)]


def by_hand(model, special, ids, before, after, strips=()):
    """Returns the tokens of a text as a slow tokenizer of transformers 4 finds them."""

    def encode(text):
        parts = cut(text, special)
        tokens = list(before)
        for at, (part, token) in enumerate(parts):
            if token is not None:
                tokens.append(token)
                continue
            if at and parts[at - 1][0] in strips and strips[parts[at - 1][0]][1]:
                part = part.lstrip()
            if at + 1 < len(parts) and parts[at + 1][0] in strips and strips[parts[at + 1][0]][0]:
                part = part.rstrip()
            tokens += [ids(piece) for piece in model.encode(part, return_type="proto").pieces]
        return tokens + list(after)

    return encode


def fairseq(model, codes, source, is_behind):
    size = model.get_piece_size()
    special = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3}
    special |= {code: size + 1 + i for i, code in enumerate(codes)}
    special["<mask>"] = size + 1 + len(codes)
    ids = lambda piece: piece.id + 1 if piece.id != model.unk_id() else 3
    language = special[source]
    around = ([], [2, language]) if is_behind else ([language], [2])
    return by_hand(model, special, ids, *around, strips={"<mask>": (True, False)})


def codes(name):
    module = getattr(hf.models, name)
    return getattr(module, f"tokenization_{name}").FAIRSEQ_LANGUAGE_CODES


def loaded(kind, files, config):
    """Writes a folder and loads it with transformers."""
    folder = Path(tempfile.mkdtemp())
    for name, content in files.items():
        if name.endswith((".model", ".spm")):
            (folder / name).write_bytes((HERE / content).read_bytes())
        else:
            is_text = isinstance(content, str)
            (folder / name).write_text(content if is_text else json.dumps(content))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer = kind.from_pretrained(folder)
    return lambda text: tokenizer(text).input_ids


def main():
    unigram = train("unigram.model", vocab_size=420, hard_vocab_limit=False)
    t5 = train("t5.model", vocab_size=400, hard_vocab_limit=False, pad_id=0, eos_id=1, unk_id=2,
               bos_id=-1)  # fmt: skip
    bpe = train("bpe.model", vocab_size=420, model_type="bpe")
    tokens = [unigram.id_to_piece(i) for i in range(3, unigram.get_piece_size())]
    # A few pieces are in no list, and the list has texts that are no pieces.
    listed = ["</s>", "<unk>", ">>fra<<", ">>deu<<", "\u05dc"] + tokens[5:] + ["<pad>"]
    vocab = {token: i for i, token in enumerate(dict.fromkeys(listed))}
    listed = ["<s>", "<pad>", "</s>", "<unk>"] + tokens[:-7]
    m2m_vocab = {token: i for i, token in enumerate(dict.fromkeys(listed))}
    byte_level = ByteLevelBPETokenizer()
    byte_level.train_from_iterator(
        [text() for _ in range(500)], vocab_size=400,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
    )  # fmt: skip

    folder = Path(tempfile.mkdtemp())
    byte_level.save_model(str(folder))
    byte_vocab = json.loads((folder / "vocab.json").read_text())
    merges = (folder / "merges.txt").read_text()
    all_codes = hf.models.m2m_100.tokenization_m2m_100.FAIRSEQ_LANGUAGE_CODES["m2m100"]
    languages = [f"__{code}__" for code in all_codes]

    def t5_ids():
        size = t5.get_piece_size()
        special = {"<pad>": 0, "</s>": 1, "<unk>": 2}
        sentinels = {f"<extra_id_{i}>": size + 99 - i for i in range(100)}
        strips = {token: (True, True) for token in sentinels}
        return by_hand(t5, special | sentinels, lambda piece: piece.id, [], [1], strips)

    def pegasus_ids():
        special = {"<pad>": 0, "</s>": 1, "<mask_1>": 2, "<mask_2>": 3, "<unk>": 105}
        special |= {f"<unk_{i}>": 2 + i for i in range(2, 103)}
        return by_hand(t5, special, lambda piece: piece.id + 103, [], [1])

    marian = {"source.spm": "unigram.model", "target.spm": "bpe.model", "vocab.json": vocab}
    m2m100 = {"sentencepiece.bpe.model": "unigram.model", "vocab.json": m2m_vocab}
    m2m100_config = {
        "tokenizer_class": "M2M100Tokenizer", "src_lang": "fr",
        "additional_special_tokens": languages,
    }  # fmt: skip
    of_unigram = {"sentencepiece.bpe.model": "unigram.model"}
    of_bpe = {"sentencepiece.bpe.model": "bpe.model"}
    of_t5 = {"spiece.model": "t5.model"}
    bytes_of = {"vocab.json": byte_vocab, "merges.txt": merges}
    mbart, mbart50, nllb = codes("mbart"), codes("mbart50"), codes("nllb")
    blenderbot = {"tokenizer_class": "BlenderbotTokenizer", "add_prefix_space": True}
    without_eos = loaded(hf.BlenderbotTokenizer, bytes_of, blenderbot)
    eos = byte_vocab["</s>"]
    # The name, the files, `tokenizer_config.json`, `model_type`, and the tokens of a text.
    cases = [
        ("marian", marian, {"source_lang": "en"}, "marian", loaded(hf.MarianTokenizer, marian, {})),
        ("m2m100", m2m100, m2m100_config, "m2m_100",
         loaded(hf.M2M100Tokenizer, m2m100, m2m100_config)),
        ("mbart", of_unigram, {}, "mbart", fairseq(unigram, mbart, "en_XX", True)),
        ("mbart50", of_unigram, {"tokenizer_class": "MBart50Tokenizer", "src_lang": "ro_RO"},
         "mbart", fairseq(unigram, mbart50, "ro_RO", False)),
        ("nllb", of_bpe, {"tokenizer_class": "NllbTokenizer"}, "m2m_100",
         fairseq(bpe, nllb, "eng_Latn", False)),
        ("nllb-legacy", of_bpe, {"tokenizer_class": "NllbTokenizerFast", "legacy_behaviour": True},
         "m2m_100", fairseq(bpe, nllb, "eng_Latn", True)),
        ("t5", of_t5, {"tokenizer_class": "T5Tokenizer"}, "t5", t5_ids()),
        ("pegasus", of_t5, {"tokenizer_class": "PegasusTokenizer"}, "pegasus", pegasus_ids()),
        ("bart", bytes_of, {}, "bart", loaded(hf.BartTokenizer, bytes_of, {})),
        # transformers 5 leaves the end out, which 4 has.
        ("blenderbot", bytes_of, blenderbot, "blenderbot",
         lambda text: [id for id in without_eos(text) if text or id != eos] + [eos]),
    ]  # fmt: skip
    recorded = []
    for name, files, config, model_type, encode in cases:
        texts = [text(SPECIAL) for _ in range(60)] + ["", " ", "a", "</s>", ">>fra<< a>>fra<<b"]
        recorded.append(dict(
            name=name, files=files, config=config, model_type=model_type,
            texts=[[text, encode(text)] for text in texts],
        ))  # fmt: skip
        print(name, sum(len(ids) for _, ids in recorded[-1]["texts"]))
    recorded += decoders(byte_vocab, merges)
    recorded += encoders(unigram, byte_vocab, merges)
    (HERE / "goldens.json").write_text(json.dumps(recorded) + "\n")


def encoders(unigram, vocab, merges):
    """Records the classes of encoders."""
    global DRAW
    DRAW = random.Random(23)
    words = BertWordPieceTokenizer(lowercase=False, strip_accents=False)
    words.train_from_iterator([text() for _ in range(500)], vocab_size=500, show_progress=False)
    lines = [token for token, _ in sorted(words.get_vocab().items(), key=lambda pair: pair[1])]
    of_mpnet = dict(zip(["[PAD]", "[CLS]", "[SEP]", "[MASK]"], ["<pad>", "<s>", "</s>", "<mask>"]))
    of_bert = {"vocab.txt": "\n".join(lines) + "\n"}
    mpnet = {"vocab.txt": "\n".join(of_mpnet.get(line, line) for line in lines) + "\n"}
    bytes_of = {"vocab.json": vocab, "merges.txt": merges}
    size = unigram.get_piece_size()
    special = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "<mask>": size + 1}
    ids = lambda piece: piece.id + 1 if piece.id != unigram.unk_id() else 3
    xlmr = by_hand(unigram, special, ids, [0], [2], strips={"<mask>": (True, False)})
    cased = {"tokenizer_class": "BertTokenizer", "do_lower_case": False}
    accents = {"tokenizer_class": "ElectraTokenizer", "strip_accents": False}
    cases = [
        ("bert", of_bert, {}, "bert", loaded(hf.BertTokenizer, of_bert, {})),
        ("bert-cased", of_bert, cased, "bert", loaded(hf.BertTokenizer, of_bert, cased)),
        ("electra", of_bert, accents, "electra", loaded(hf.BertTokenizer, of_bert, accents)),
        ("distilbert", of_bert, {"tokenizer_class": "DistilBertTokenizer"}, "distilbert",
         loaded(hf.DistilBertTokenizer, of_bert, {})),
        ("mpnet", mpnet, {"tokenizer_class": "MPNetTokenizer"}, "mpnet",
         loaded(hf.MPNetTokenizer, mpnet, {})),
        ("roberta", bytes_of, {}, "roberta", loaded(hf.RobertaTokenizer, bytes_of, {})),
        ("roberta-prefix", bytes_of,
         {"tokenizer_class": "RobertaTokenizer", "add_prefix_space": True}, "roberta",
         loaded(hf.RobertaTokenizer, bytes_of, {"add_prefix_space": True})),
        ("xlm-roberta", {"sentencepiece.bpe.model": "unigram.model"}, {}, "xlm-roberta", xlmr),
    ]  # fmt: skip
    recorded = []
    for name, files, config, model_type, encode in cases:
        texts = [text(SPECIAL + ["[MASK]", "[SEP]"]) for _ in range(30)]
        texts += ["", " ", "a", "</s>", "\u2603 E\u0301 it's \u4e2d\u65871234"]
        recorded.append(dict(
            name=name, files=files, config=config, model_type=model_type,
            texts=[[text, encode(text)] for text in texts],
        ))  # fmt: skip
        print(name, sum(len(ids) for _, ids in recorded[-1]["texts"]))
    return recorded


def encoders_anew():
    """Records the classes of encoders with the models and vocabularies that are there."""
    path = HERE / "goldens.json"
    known = json.loads(path.read_text())
    files = next(one["files"] for one in known if one["name"] == "bart")
    unigram = spm.SentencePieceProcessor(model_file=str(HERE / "unigram.model"))
    made = encoders(unigram, files["vocab.json"], files["merges.txt"])
    names = {one["name"] for one in made}
    kept = [one for one in known if one["name"] not in names]
    path.write_text(json.dumps(kept + made) + "\n")


def decoders(vocab, merges):
    """Records the classes of decoders."""
    model = train("llama.model", vocab_size=600, model_type="bpe", byte_fallback=True,
                  remove_extra_whitespaces=False, user_defined_symbols=[">>fra<<"])  # fmt: skip
    of_llama = {"tokenizer.model": "llama.model"}
    bytes_of = {"vocab.json": vocab, "merges.txt": merges}
    opt = dict.fromkeys(["bos_token", "eos_token", "unk_token"], "</s>")
    opt |= {"tokenizer_class": "GPT2Tokenizer", "pad_token": "<pad>", "add_bos_token": True}
    special = {"special": True, "normalized": False}
    declared = [{"content": token} | special for token in ["<|endoftext|>", "<|im_start|>"]]
    declared = {str(len(vocab) + i): token for i, token in enumerate(declared)}
    qwen = {"tokenizer_class": "Qwen2Tokenizer", "added_tokens_decoder": declared,
            "bos_token": None, "eos_token": "<|im_start|>"}  # fmt: skip
    llama = {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True}
    cases = [
        ("gpt2", bytes_of, {"tokenizer_class": "GPT2Tokenizer"}, "gpt2"),
        ("opt", bytes_of, opt, "opt"),
        ("qwen2", bytes_of, qwen, "qwen2"),
        ("llama", of_llama, llama | {"legacy": False}, "llama"),
        ("llama-legacy", of_llama, llama | {"legacy": True, "add_eos_token": True}, "llama"),
        ("llama-bare", of_llama, llama | {"add_prefix_space": False, "add_bos_token": False},
         "mistral"),
    ]  # fmt: skip
    cases = [(*case, loaded(getattr(hf, case[2]["tokenizer_class"]), *case[1:3])) for case in cases]
    special = {"<unk>": 0, "<s>": 1, "</s>": 2}
    cases.append(("internlm2", of_llama, {"tokenizer_class": "InternLM2Tokenizer"}, "internlm2",
                  by_hand(model, special, lambda piece: piece.id, [1], [])))  # fmt: skip
    recorded = []
    for name, files, config, model_type, encode in cases:
        texts = [text(SPECIAL + ["<|endoftext|>"]) for _ in range(40)]
        texts += ["", " ", "a", "</s>", ">>fra<< a>>fra<<b", "\u2603 e\u0301 it's 1234"]
        recorded.append(dict(
            name=name, files=files, config=config, model_type=model_type,
            texts=[[text, encode(text)] for text in texts],
        ))  # fmt: skip
        print(name, sum(len(ids) for _, ids in recorded[-1]["texts"]))
    return recorded


encoders_anew() if sys.argv[1:] == ["encoders"] else main()
