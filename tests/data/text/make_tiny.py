#!/usr/bin/env python3
"""Writes the tiny tokenizer of the tests and the committed golden set, from the text below.

Run in the repository root: python3 tests/data/text/make_tiny.py
The ids come from a plain BPE written out here, the renderings from jinja2 (pip install jinja2).
"""
import json
import pathlib
import re
from collections import Counter

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

TEXT = """
A trainer teaches and a rollout writes. The trainer adds two numbers, the rollout adds two numbers,
and when the answer is right the reward is one. When the answer is wrong the reward is zero. Then the
trainer takes a step, the weights move over, and the rollout writes again. What is seven plus five?
Seven plus five is twelve. The answer is 12. I don't know what you've said, but we'll see.
"""
SPECIAL = ["<|end|>", "<|turn|>", "<|close|>"]
WORD = re.compile(
    r"'s|'t|'re|'ve|'m|'ll|'d| ?[^\W\d_]+| ?\d+| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+")


def alphabet():
    itself = [*range(33, 127), *range(161, 173), *range(174, 256)]
    chars, extra = {}, 256
    for b in range(256):
        chars[b] = chr(b) if b in itself else chr(extra)
        extra += b not in itself
    return chars


CHARS = alphabet()


def words(text):
    for part in re.split(r"(\d)", text):
        for word in WORD.findall(part):
            yield [CHARS[b] for b in word.encode()]


def merge(word, pair):
    out, i = [], 0
    while i < len(word):
        if tuple(word[i:i + 2]) == pair:
            out.append(word[i] + word[i + 1])
            i += 2
        else:
            out.append(word[i])
            i += 1
    return out


def train(count):
    corpus, merges = [list(w) for w in words(TEXT)], []
    for _ in range(count):
        pairs = Counter(p for w in corpus for p in zip(w, w[1:]))
        best = max(sorted(pairs), key=pairs.get)
        merges.append(best)
        corpus = [merge(w, best) for w in corpus]
    return merges


MERGES = train(60)
VOCAB = {t: i for i, t in enumerate(SPECIAL + sorted(CHARS.values()) + ["".join(m) for m in MERGES])}
ADDED = {t: VOCAB[t] for t in SPECIAL} | {"<tool>": len(VOCAB)}


def encode(text):
    ids = []
    for piece in re.split("(" + "|".join(map(re.escape, ADDED)) + ")", text):
        if piece in ADDED:
            ids.append(ADDED[piece])
            continue
        for word in words(piece):
            for pair in MERGES:
                word = merge(word, pair)
            ids += [VOCAB[t] for t in word]
    return ids


def decode(ids, skip):
    back = {c: b for b, c in CHARS.items()}
    tokens = {i: t for t, i in VOCAB.items()} | {i: t for t, i in ADDED.items()}
    kept = [tokens[i] for i in ids if not (skip and tokens[i] in SPECIAL)]
    return bytes(back[c] for t in kept for c in t).decode("utf-8", errors="replace")


TEMPLATE = """\
{%- for m in messages %}
    {%- if m.role not in ['system', 'user', 'assistant'] %}
        {{- raise_exception('no role ' ~ m.role) }}
    {%- endif %}
    {{- '<|turn|>' ~ m.role ~ '\\n' ~ m.content | trim ~ '<|close|>\\n' }}
{%- endfor %}
{%- if tools %}{{ tools | tojson }}{% endif %}
{%- if add_generation_prompt %}
    {{- '<|turn|>assistant\\n' }}
{%- endif %}
"""


def tokenizer_files(folder):
    added = [{"id": i, "content": t, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": t not in SPECIAL, "special": t in SPECIAL} for t, i in ADDED.items()]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": None, "post_processor": None, "decoder": byte_level,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Digits", "individual_digits": True}, byte_level]},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "fuse_unk": False,
                  "byte_fallback": False, "ignore_merges": False, "vocab": VOCAB,
                  "merges": [list(m) for m in MERGES]}}
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "tokenizer.json", tokenizer)
    write(folder / "tokenizer_config.json", {
        "bos_token": "<|turn|>", "eos_token": {"content": "<|close|>"}, "chat_template": TEMPLATE})
    write(folder / "generation_config.json", {"eos_token_id": [VOCAB["<|end|>"], VOCAB["<|close|>"]]})


def tokenizer_cases():
    option = {"tokenizer": "../data/text/tiny/tokenizer.json"}
    texts = ["", "The trainer adds 12 and 7.", " two  spaces\n\n\tend ", "don't we'll I've",
             "<|turn|>user\nWhat is it?<|close|><tool>x", "caf\u00e9 \u4e2d\u6587 \U0001f600", "a_b--c!?"]
    cases = []
    for n, text in enumerate(texts):
        ids = encode(text)
        cases.append({"id": f"tiny/encode/{n}", "fn": "tokenizer", "options": option,
                      "inputs": {"text": text},
                      "outputs": {"ids": ids, "ids_without_special": ids,
                                  "decoded_keep_special": decode(ids, False),
                                  "decoded_skip_special": decode(ids, True)}})
    emoji = encode("ok \U0001f600 \u4e2d")
    for n, ids in enumerate([emoji[:-1], emoji[1:4], emoji[::-1], [1, 5, 2, 300]]):
        cases.append({"id": f"tiny/decode/{n}", "fn": "tokenizer_decode", "options": option,
                      "inputs": {"ids": ids},
                      "outputs": {"keep_special": decode(ids, False), "skip_special": decode(ids, True)}})
    cases.append({"id": "tiny/stream", "fn": "tokenizer_decode_prefixes", "options": option,
                  "inputs": {"ids": emoji},
                  "outputs": {"texts": [decode(emoji[:i], False) for i in range(len(emoji) + 1)]}})
    return cases


def template_cases():
    def refuse(message):
        raise jinja2.exceptions.TemplateError(message)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    env.filters["tojson"] = lambda x: json.dumps(x, ensure_ascii=False)
    env.globals["raise_exception"] = refuse
    talk = [{"role": "system", "content": " Be brief. "}, {"role": "user", "content": "What is 7 + 5?\n"}]
    tool = [{"name": "add", "note": "caf\u00e9 <b>"}]
    cases = []
    for n, (messages, tools, prompt) in enumerate(
            [(talk, None, True), (talk[1:], tool, False), ([], None, True),
             ([{"role": "critic", "content": "no"}], None, True)]):
        case = {"id": f"tiny/{n}", "fn": "chat_template",
                "options": {"template": "tiny", "tokenizer": "../data/text/tiny/tokenizer.json",
                            "add_generation_prompt": prompt},
                "inputs": {"messages": messages, "tools": tools}}
        try:
            text = env.from_string(TEMPLATE).render(
                messages=messages, tools=tools, add_generation_prompt=prompt)
            case["outputs"] = {"text": text, "ids": encode(text)}
        except jinja2.exceptions.TemplateError:
            case["raises"] = "TemplateError"
        cases.append(case)
    return cases


def write(path, value):
    path.write_text(json.dumps(value, ensure_ascii=True) + "\n")


def main():
    tokenizer_files(pathlib.Path("tests/data/text/tiny"))
    golden = pathlib.Path("tests/golden")
    golden.mkdir(exist_ok=True)
    write(golden / "tokenizers.json", {"family": "tokenizers", "set": "tiny", "cases": tokenizer_cases()})
    write(golden / "chat_templates.json", {"family": "chat_templates", "set": "tiny",
                                           "templates": {"tiny": TEMPLATE}, "cases": template_cases()})


main()
