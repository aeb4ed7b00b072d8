"""The table of ratios, each beside the target it is held to; a target that is missed says so."""
import re


class Table:
    def __init__(self):
        self.rows = []

    def add(self, what, ours, peer, ratio, target, at_least=True):
        """`ratio` with its target; `at_least` false where less is better."""
        met = ratio >= target if at_least else ratio <= target
        self.rows.append({"what": what, "tandem": ours, "peer": peer, "ratio": round(ratio, 3),
                          "target": f"{'≥' if at_least else '≤'} {target}", "met": met})

    def show(self):
        print(f"\n{'':<58} {'Tandem':>10} {'peer':>10} {'ratio':>7}  target")
        for row in self.rows:
            peer = f"{row['peer']:>10.1f}" if row["peer"] is not None else f"{'':>10}"
            print(f"{row['what']:<58} {row['tandem']:>10.2f} {peer} {row['ratio']:>7.2f}  {row['target']}"
                  f"{'' if row['met'] else '   missed'}")


def generation(table, own, peers):
    decode_targets = {"1 sequences": 1.0, "8 sequences": 1.8, "32 sequences": 1.5, "64 sequences": 1.5}
    for name, target in decode_targets.items():
        ours, llama = own.get(name), peers["llama.cpp"].get(name)
        if ours and llama:
            mine = ours["decode_tokens_per_s"]
            table.add(f"decode tokens/s, {name}, llama.cpp does not sample", mine, llama["decode_tokens_per_s"],
                      mine / llama["decode_tokens_per_s"], target)
    for name in decode_targets:
        ours, llama = own.get(name), peers["llama.cpp"].get(name)
        if ours and llama and ours["prefill_s"] > 0:
            mine = int(name.split()[0]) * 32 / ours["prefill_s"]
            table.add(f"prefill tokens/s, {name}, llama.cpp", mine, llama["prefill_tokens_per_s"],
                      mine / llama["prefill_tokens_per_s"], 1.3)
    ours, other = own.get("64 sequences"), peers["transformers"].get("64 sequences")
    if ours and other:
        table.add("generated tokens/s, 64 sequences, transformers", ours["tokens_per_s"], other["tokens_per_s"],
                  ours["tokens_per_s"] / other["tokens_per_s"], 4.0)


def training(table, own, step, peers):
    torch, trl = peers["torch"], peers["trl"]
    for name, target in (("keep", 0.65), ("recompute", 0.85)):
        if name in own and torch:
            table.add(f"training step 64 x 64, s, torch bf16, {name}", own[name]["total_s"], torch["total_s"],
                      own[name]["total_s"] / torch["total_s"], target, at_least=False)
            table.add(f"  its peak memory, MiB, {name}", own[name]["peak_rss_mib"], torch["peak_rss_mib"],
                      own[name]["peak_rss_mib"] / torch["peak_rss_mib"], 1.0, at_least=False)
    if step and trl:
        table.add("GRPO step 8 x 8 x 32, s, TRL (peer ÷ Tandem)", step["step"], trl["step_s"],
                  trl["step_s"] / step["step"], 4.0)
        table.add("  its peak memory, MiB PSS, TRL's RSS", step["peak_pss_mib"], trl["peak_rss_mib"],
                  step["peak_pss_mib"] / trl["peak_rss_mib"], 0.4, at_least=False)


def overhead(table, step):
    if step:
        table.add("  its share outside generate, train, optimize", step["step"] * step["overhead_share"], None,
                  step["overhead_share"], 0.05, at_least=False)


def worst(rows, key):
    return min(rows, key=lambda row: row[1][key])


def ops(table, own, amx):
    """Against the fastest counterpart that the ops benchmark ran beside ours, the worst row of each
    group; and against the bound of instruction peak and read bandwidth."""
    linear = {}
    for name, figures in own.items():
        found = re.match(r"linear (\S+) M=(\d+) ", name)
        if found and "ratio" in figures:
            linear.setdefault(found[1], []).append((int(found[2]), figures))
        elif "ratio" in figures:
            table.add(f"{name}, us", figures["tandem"], figures["tandem"] * figures["ratio"], figures["ratio"],
                      4.0 if name.startswith("decode") else 2.5)
    for shape, rows in linear.items():
        for label, part, target in (("≤ 32", [row for row in rows if row[0] <= 32], 1.3),
                                    ("> 32", [row for row in rows if row[0] > 32], 1.05)):
            if part:
                m, figures = worst(part, "ratio")
                table.add(f"linear {shape}, GFLOP/s, worst of M {label}: M={m}", figures["tandem"],
                          figures["tandem"] / figures["ratio"], figures["ratio"], target)
        m, figures = worst(rows, "share")
        table.add(f"  its share of the machine's bound, worst: M={m}", figures["tandem"], figures["bound"],
                  figures["share"], 0.5 if amx else 0.85)
