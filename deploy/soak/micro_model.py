"""Writes the smallest model that a run can train, as a Hugging Face directory: one layer, a byte-level
tokenizer, seeded random weights."""
import json
import random
import struct

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INTERMEDIATE, VOCABULARY, POSITIONS = 32, 2, 1, 16, 32, 264, 128
MERGE = ("1", "0")  # the only one: a tokenizer without merges is refused
FIRST_SPECIAL = 257
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TEMPLATE = ("{% for message in messages %}{{ message['content'] }}{% endfor %}"
            "{% if add_generation_prompt %}{{ '=' }}{% endif %}")


def tensors():
    """{name: shape}, in the order of the file."""
    layer = "model.layers.0."
    return {"model.embed_tokens.weight": (VOCABULARY, HIDDEN),
            layer + "input_layernorm.weight": (HIDDEN,),
            layer + "self_attn.q_proj.weight": (HEADS * HEAD_DIM, HIDDEN),
            layer + "self_attn.k_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            layer + "self_attn.v_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            layer + "self_attn.o_proj.weight": (HIDDEN, HEADS * HEAD_DIM),
            layer + "post_attention_layernorm.weight": (HIDDEN,),
            layer + "mlp.gate_proj.weight": (INTERMEDIATE, HIDDEN),
            layer + "mlp.up_proj.weight": (INTERMEDIATE, HIDDEN),
            layer + "mlp.down_proj.weight": (HIDDEN, INTERMEDIATE),
            "model.norm.weight": (HIDDEN,)}


def alphabet():
    """The character that stands for each byte, as GPT-2's byte-level tokenizers have it."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = iter(range(0x100, 0x200))
    return [chr(byte) if byte in shown else chr(next(hidden)) for byte in range(256)]


def tokenizer():
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    added = [{"id": FIRST_SPECIAL + i, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False, "special": True} for i, text in enumerate(SPECIAL)]
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
             "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
             "vocab": {text: i for i, text in enumerate([*alphabet(), "".join(MERGE)])},
             "merges": [" ".join(MERGE)]}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
            "pre_tokenizer": level, "post_processor": None, "decoder": level, "model": model}


def write(folder, seed=1):
    folder.mkdir(parents=True)
    generator = random.Random(seed)
    header, data = {"__metadata__": {"format": "pt"}}, bytearray()
    for name, shape in tensors().items():
        begin = len(data)
        for _ in range(shape[0] * (shape[1] if len(shape) > 1 else 1)):
            value = 1.0 if "norm" in name else generator.gauss(0, 0.2)
            data += struct.pack("<f", value)[2:]  # bf16: the upper half of an fp32
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16",
              "vocab_size": VOCABULARY, "hidden_size": HIDDEN, "num_hidden_layers": 1,
              "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM,
              "intermediate_size": INTERMEDIATE, "max_position_embeddings": POSITIONS,
              "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": True,
              "bos_token_id": FIRST_SPECIAL + 1, "eos_token_id": FIRST_SPECIAL + 2, "pad_token_id": FIRST_SPECIAL}
    for name, content in {"config.json": config, "tokenizer.json": tokenizer(),
                          "generation_config.json": {"eos_token_id": FIRST_SPECIAL + 2,
                                                     "pad_token_id": FIRST_SPECIAL},
                          "tokenizer_config.json": {
                              "tokenizer_class": "GPT2Tokenizer", "eos_token": SPECIAL[2],
                              "pad_token": SPECIAL[0], "chat_template": TEMPLATE}}.items():
        (folder / name).write_text(json.dumps(content, indent=1) + "\n")
