#!/usr/bin/env python3
"""torch's and transformers' figures of the shapes that gpu_check.sh measures.

  torch_counterparts.py matmul|sdpa
  torch_counterparts.py decode|train [MODEL...] [--seconds S] [--device cuda]

decode and train build transformers' Qwen3 of a size (0.6b, 4b, 8b), with random weights, and print
the figures that gpu_model_bench has for the same work (tests/gpu/model_bench/bench_model.h): a prompt
of 512 tokens, then 32 timed ones by generate(), which samples and gives no log-probs; steps of AdamW
on samples of 2048 tokens. Nothing begins after S seconds (60). What does not run prints "not_run NAME
REASON". --device cpu and the model tiny are to test this program.
"""
import argparse
import importlib
import sys
import time

SIZES = {
    "0.6b": dict(num_hidden_layers=28, hidden_size=1024, num_attention_heads=16,
                 intermediate_size=3072, tie_word_embeddings=True),
    "4b": dict(num_hidden_layers=36, hidden_size=2560, num_attention_heads=32,
               intermediate_size=9728, tie_word_embeddings=True),
    "8b": dict(num_hidden_layers=36, hidden_size=4096, num_attention_heads=32,
               intermediate_size=12288, tie_word_embeddings=False),
    "tiny": dict(num_hidden_layers=2, hidden_size=64, num_attention_heads=2, intermediate_size=64,
                 tie_word_embeddings=True),
}
WARM, TIMED = 4, 32  # tokens of each sample


class Work:
    """How much of it: as BenchModel."""

    def __init__(self, name):
        tiny = name == "tiny"
        self.vocab, self.heads, self.head_dim = (288, 1, 64) if tiny else (151936, 8, 128)
        self.batches = (1, 3) if tiny else (1, 64, 256)
        self.prompt = 9 if tiny else 512
        self.samples = 3 if tiny else (16 if name == "0.6b" else 8)
        self.train_prompt, self.train_response = (5, 7) if tiny else (512, 1536)
        self.at_once = 2 if tiny else (8 if name == "0.6b" else 4)


def synchronize(torch, device):
    if device == "cuda":
        torch.cuda.synchronize()


def best(torch, work, repeats=20):
    """Seconds of the shortest run."""
    shortest = float("inf")
    for _ in range(repeats):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        work()
        torch.cuda.synchronize()
        shortest = min(shortest, time.perf_counter() - begin)
    return shortest


def matmul(torch):
    """The four products of an 8B layer, 256 rows, bf16."""
    shapes = [(6144, 4096), (4096, 4096), (24576, 4096), (4096, 12288)]
    seconds = 0.0
    for out, inner in shapes:
        rows = torch.randn(256, inner, device="cuda", dtype=torch.bfloat16)
        weight = torch.randn(out, inner, device="cuda", dtype=torch.bfloat16)
        seconds += best(torch, lambda: torch.nn.functional.linear(rows, weight))
    flops = sum(2 * 256 * out * inner for out, inner in shapes)
    print(f"figure torch_linear_tflops {flops / seconds * 1e-12:.4g} TFLOP/s")


def sdpa(torch):
    """One decode step of 256 samples with 2048 keys each: 32 query and 8 KV heads of 128."""
    query = torch.randn(256, 32, 1, 128, device="cuda", dtype=torch.bfloat16)
    key = torch.randn(256, 8, 2048, 128, device="cuda", dtype=torch.bfloat16)
    value = torch.randn_like(key)
    attend = torch.nn.functional.scaled_dot_product_attention
    seconds = best(torch, lambda: attend(query, key, value, enable_gqa=True))
    print(f"figure torch_sdpa_gbps {2 * key.numel() * 2 / seconds * 1e-9:.4g} GB/s")


def random_model(torch, transformers, name, device, dtype):
    work = Work(name)
    config = transformers.Qwen3Config(vocab_size=work.vocab, num_key_value_heads=work.heads,
                                      head_dim=work.head_dim, max_position_embeddings=40960,
                                      **SIZES[name])
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            return transformers.Qwen3ForCausalLM(config)
    finally:
        torch.set_default_dtype(torch.float32)


def figure(name, tokens_per_second):
    print(f"figure {name} {tokens_per_second:.4g} tokens/s", flush=True)


def attempt(torch, names, deadline, work):
    """What work() gives, or None: it is too late, or there is no memory, which is not a failure."""
    reason = "the seconds of this program were spent"
    if time.monotonic() <= deadline:
        try:
            return work()
        except torch.cuda.OutOfMemoryError as error:
            reason = str(error).splitlines()[0]
        torch.cuda.empty_cache()  # when the error has let go of what the work held
    for name in names:
        print(f"not_run {name} {reason}", flush=True)
    return None


def seconds_per_token(torch, model, prompts):
    """Of generate(), which waits for the device after every token."""
    times = []

    def note_time(ids, _scores, **_):
        synchronize(torch, ids.device.type)
        times.append(time.perf_counter())
        return torch.zeros(len(ids), dtype=torch.bool, device=ids.device)

    tokens = 1 + WARM + TIMED
    model.generate(prompts, attention_mask=torch.ones_like(prompts), do_sample=True, top_k=0,
                   min_new_tokens=tokens, max_new_tokens=tokens, pad_token_id=0,
                   stopping_criteria=[note_time])
    if len(times) != tokens:
        raise RuntimeError(f"generate() made {len(times)} steps, not {tokens}")
    return (times[-1] - times[WARM]) / TIMED


def decode(torch, transformers, name, deadline, device):
    work = Work(name)
    names = {batch: f"torch_decode_{name}_{batch}_tokens" for batch in work.batches}
    model = attempt(torch, names.values(), deadline,
                    lambda: random_model(torch, transformers, name, device, torch.bfloat16).eval())
    if model is None:
        return

    def tokens_per_second(batch):
        prompts = torch.randint(0, work.vocab, (batch, work.prompt), device=device)
        with torch.inference_mode():
            return batch / seconds_per_token(torch, model, prompts)

    for batch, figure_name in names.items():
        speed = attempt(torch, [figure_name], deadline, lambda of=batch: tokens_per_second(of))
        if speed is not None:
            figure(figure_name, speed)


def train_step(torch, model, optimizer, ids, work, device):
    """Seconds of a step on all samples, some at once; fp32 weights, bf16 products."""
    labels = ids.clone()
    labels[:, :work.train_prompt] = -100
    synchronize(torch, device)
    begin = time.perf_counter()
    for first in range(0, len(ids), work.at_once):
        some = slice(first, first + work.at_once)
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = model(input_ids=ids[some], labels=labels[some], use_cache=False).loss
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    synchronize(torch, device)
    return time.perf_counter() - begin


def train(torch, transformers, name, deadline, device):
    work = Work(name)
    length = work.train_prompt + work.train_response

    def tokens_per_second():
        model = random_model(torch, transformers, name, device, torch.float32).train()
        if name == "4b":  # activations beside 64 GB of weights, gradients and moments
            model.gradient_checkpointing_enable()
            print("layers run forward again in backward")
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=True)
        ids = torch.randint(0, work.vocab, (work.samples, length), device=device)
        for _ in range(2):
            train_step(torch, model, optimizer, ids, work, device)
        times = [train_step(torch, model, optimizer, ids, work, device) for _ in range(3)]
        return work.samples * length * len(times) / sum(times)

    figure_name = f"torch_train_{name}_tokens"
    speed = attempt(torch, [figure_name], deadline, tokens_per_second)
    if speed is not None:
        figure(figure_name, speed)


def load(module):
    """The module, or None, having said why."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        print(f"this machine's Python has no {module}: {error}")
        return None


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("matmul", "sdpa", "decode", "train"))
    parser.add_argument("models", nargs="*", metavar="MODEL", help=" ".join(SIZES))
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    arguments = parser.parse_args()
    for model in arguments.models:
        if model not in SIZES:
            parser.error(f"there is no model {model}")
    return arguments


def main():
    arguments = parse()
    deadline = time.monotonic() + arguments.seconds
    torch = load("torch")
    if torch is None:
        return 77
    if arguments.device == "cuda" and not torch.cuda.is_available():
        print("torch sees no GPU")
        return 77
    if arguments.what in ("matmul", "sdpa"):
        {"matmul": matmul, "sdpa": sdpa}[arguments.what](torch)
        return 0
    transformers = load("transformers")
    if transformers is None:
        return 77
    if not hasattr(transformers, "Qwen3ForCausalLM"):
        print(f"transformers {transformers.__version__} has no Qwen3")
        return 77
    print(f"torch {torch.__version__}, transformers {transformers.__version__}")
    run, models = {"decode": (decode, ["0.6b", "8b"]), "train": (train, ["0.6b", "4b"])}[
        arguments.what]
    for model in arguments.models or models:
        run(torch, transformers, model, deadline, arguments.device)
    return 0


if __name__ == "__main__":
    sys.exit(main())
