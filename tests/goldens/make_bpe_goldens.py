#!/usr/bin/env python3
"""Tokenizers and tokens by Hugging Face's `tokenizers`: writes the folder bpe/ beside this file.

Needs `pip install tokenizers`; run it only to change the cases.

    corpus.txt               what the vocabulary is learned from
    text.txt                 what is encoded: many scripts, white space and signs of all kinds
    tokenizer.json           learned from the corpus: GPT-2's pattern, min_frequency 2, one special token
    vocab.json, merges.txt   the same as GPT-2's two files
    split.json               the same tokens behind a pattern of its own (Llama 3's)
    many.json                the same with all that is supported: normalizers, several splits, added tokens with flags
    golden.json              the versions, and the tokens of text.txt by tokenizer

    make_bpe_goldens.py check TOKENIZER TEXT TOKENS

instead checks that Hugging Face reads TOKENIZER and gives TEXT, a document, the TOKENS that `gpt tokenize` wrote.
"""
import json
import os
import random
import struct
import sys
import unicodedata

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

END = "<|endoftext|>"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
ENGLISH = ("the of and a in to was is for on that with by as at from his it an were are which this also be had or has "
           "first one their its new after but who not they have her she two been other when during all into there").split()
SCRIPTS = [
    "Привет, мир! Это тест.", "これは日本語の文章です。東京都", "안녕하세요 세계", "مرحبا بالعالم ١٢٣", "שלום עולם",
    "नमस्ते दुनिया १२३", "Ελληνικά γλώσσα", "ภาษาไทย", "café naïve Größe", "ﬁ ½ ² Ⅷ ① ㊿", "a\u0301e\u0308 o\u0302",
    "👩‍👩‍👧 🇩🇪 👍🏽", "\u00a0\u2003x\u2028y\u2029z\u0085w\u180eq\u200b\ufeff k", "  tabs\t\tand\r\n\r\n  lines \n \n\nend   ",
    "I'm you're we'LL they've it's o'clock 'twas ''s", END + " is text, or not",
]


def random_sign(rng):
    while True:
        c = chr(rng.choice([rng.randrange(0x20, 0x250), rng.randrange(0x300, 0x3000), rng.randrange(0x3000, 0xD800),
                            rng.randrange(0x10000, 0x1FFFF)]))
        if unicodedata.category(c) not in ("Cn", "Co"):  # assigned: libraries know different versions of Unicode
            return c


def text(rng, words):
    out = []
    for _ in range(words):
        kind = rng.random()
        if kind < 0.6:
            out.append(rng.choice(ENGLISH) + rng.choice([" ", " ", ", ", ". ", "\n", "'s ", "'re ", "  "]))
        elif kind < 0.8:
            out.append(rng.choice(rng.choice(SCRIPTS).split(" ")) + " ")
        elif kind < 0.9:
            out.append(str(rng.randrange(10 ** rng.randrange(1, 9))) + " ")
        else:
            out.append("".join(random_sign(rng) for _ in range(rng.randrange(1, 4))))
    return "".join(out) + " ".join(SCRIPTS)


def save(name, content):
    with open(os.path.join(folder, name), "w", encoding="utf-8", newline="") as f:
        f.write(content)


def learned(corpus):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator([corpus], trainers.BpeTrainer(
        vocab_size=600, min_frequency=2, special_tokens=[END], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return t


def check(tokenizer, text_file, tokens):
    data = open(tokens, "rb").read()
    width, count = struct.unpack_from("<IQ", data, 12)
    ours = list(struct.unpack_from(f"<{count}{'H' if width == 2 else 'I'}", data, 64))
    t = Tokenizer.from_file(tokenizer)
    document = open(text_file, encoding="utf-8", newline="").read()
    assert END not in document, f"{END} in the text is text to `gpt tokenize`"
    theirs = t.encode(document).ids + [t.token_to_id(END)]
    assert ours == theirs, "the tokens differ"
    assert t.decode(ours[:-1]) == document, "the tokens are not the text"
    print("ok")


if len(sys.argv) > 1:
    check(*sys.argv[2:])
    sys.exit()

folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bpe")
os.makedirs(folder, exist_ok=True)
rng = random.Random(20240601)
corpus, document = text(rng, 1500), text(rng, 700)
save("corpus.txt", corpus)
save("text.txt", document)
plain = learned(corpus)
plain.save(os.path.join(folder, "tokenizer.json"), pretty=False)
plain.model.save(folder)
split = Tokenizer.from_str(plain.to_str())
split.pre_tokenizer = pre_tokenizers.Sequence([
    pre_tokenizers.Split(Regex(LLAMA3), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
split.save(os.path.join(folder, "split.json"), pretty=False)
many = Tokenizer.from_str(plain.to_str())
many.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase(), normalizers.Prepend("_"),
                                        normalizers.Replace("q", "_"), normalizers.Replace(Regex(r"[\t\r]+"), "  ")])
many.pre_tokenizer = pre_tokenizers.Sequence([
    pre_tokenizers.Split("the", "isolated"), pre_tokenizers.Digits(individual_digits=True),
    pre_tokenizers.ByteLevel(add_prefix_space=False)])
many.add_special_tokens([AddedToken("for", lstrip=True), AddedToken("with", rstrip=True), AddedToken("世界")])
many.add_tokens([AddedToken("on", single_word=True), AddedToken("THIS Å", normalized=True), AddedToken("e", normalized=True)])
many.save(os.path.join(folder, "many.json"), pretty=False)
golden = {"versions": {"tokenizers": tokenizers.__version__, "unicodedata": unicodedata.unidata_version},
          "tokenizer.json": plain.encode(document).ids, "split.json": split.encode(document).ids,
          "many.json": many.encode(document).ids}
save("golden.json", json.dumps(golden, separators=(",", ":")) + "\n")
