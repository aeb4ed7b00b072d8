"""The table of ratios with their targets; it marks missed targets and rows whose peer did not
run."""
import re


class Table:
    def __init__(self):
        self.rows = []

    def add(self, what, ours, peer, ratio, target=None, at_least=True):
        """`ratio` with its target, if it has one; `at_least` false where less is better. Without a
        ratio, as the peer is missing, nothing was met or missed."""
        met = None if ratio is None or target is None else ratio >= target if at_least else ratio <= target
        text = "" if target is None else f"{'≥' if at_least else '≤'} {target}"
        self.rows.append({"what": what, "tandem": ours, "peer": peer, "target": text, "met": met,
                          "ratio": None if ratio is None else round(ratio, 3)})

    def versus(self, what, ours, peer, target, at_least=True, inverse=False):
        """Ours ÷ the peer's, or with `inverse` the peer's ÷ ours; None: the peer was not measured."""
        ratio = peer and (peer / ours if inverse else ours / peer)
        self.add(what, ours, peer or None, ratio or None, target, at_least)

    def show(self):
        width = max((len(row["what"]) for row in self.rows), default=0)
        print(f"\n{'':<{width}} {'Tandem':>10} {'peer':>10} {'ratio':>7}  target")
        for row in self.rows:
            peer = f"{row['peer']:>10.1f}" if row["peer"] is not None else f"{'':>10}"
            ratio = f"{row['ratio']:>7.2f}" if row["ratio"] is not None else f"{'-':>7}"
            end = "   not measured" if row["ratio"] is None else "   missed" if row["met"] is False else ""
            print(f"{row['what']:<{width}} {row['tandem']:>10.2f} {peer} {ratio}  {row['target']}{end}")


def generation(table, own, peers):
    decode_targets = {"1 sequences": 1.0, "8 sequences": 1.8, "32 sequences": 1.5, "64 sequences": 1.5}
    for name, target in decode_targets.items():
        ours, llama = own.get(name), peers["llama.cpp"].get(name, {})
        if ours:
            table.versus(f"decode tokens/s, {name}, llama.cpp does not sample", ours["decode_tokens_per_s"],
                         llama.get("decode_tokens_per_s"), target)
    for name in decode_targets:
        ours, llama = own.get(name), peers["llama.cpp"].get(name, {})
        if ours and ours["prefill_s"] > 0:
            table.versus(f"prefill tokens/s, {name}, llama.cpp", int(name.split()[0]) * 32 / ours["prefill_s"],
                         llama.get("prefill_tokens_per_s"), 1.3)
    ours, other = own.get("64 sequences"), peers["transformers"].get("64 sequences", {})
    if ours:
        table.versus("generated tokens/s, 64 sequences, transformers", ours["tokens_per_s"],
                     other.get("tokens_per_s"), 4.0)


def training(table, own, step, peers):
    torch, trl = peers["torch"], peers["trl"]
    for name, target in (("keep", 0.65), ("recompute", 0.85)):
        if name in own:
            table.versus(f"training step 64 x 64, s, torch bf16, {name}", own[name]["total_s"],
                         torch.get("total_s"), target, at_least=False)
            table.versus(f"  its peak memory, MiB, {name}", own[name]["peak_rss_mib"],
                         torch.get("peak_rss_mib"), 1.0, at_least=False)
    if step:
        table.versus("GRPO step 8 x 8 x 32, s, TRL (peer ÷ Tandem)", step["step"], trl.get("step_s"), 4.0,
                     inverse=True)
        table.versus("  its peak memory, MiB PSS, TRL's RSS", step["peak_pss_mib"], trl.get("peak_rss_mib"),
                     0.4, at_least=False)


def overhead(table, step):
    if step:
        table.add("  its share outside generate, train, optimize", step["step"] * step["overhead_share"], None,
                  step["overhead_share"], 0.05, at_least=False)


def scaling(table, own):
    """Tokens per second by threads and sequences, and what a sequence costs in memory. `own`:
    {"2 threads": {"64 sequences": figures}}."""
    rate = {(threads, name): row["tokens_per_s"] for threads, rows in own.items() for name, row in rows.items()}
    one, two, few, many = "1 threads", "2 threads", "64 sequences", "256 sequences"
    for what, ours, base in ((f"{few}, 2 threads ÷ 1", (two, few), (one, few)),
                             (f"{many}, 2 threads ÷ 1", (two, many), (one, many)),
                             ("2 threads, 256 sequences ÷ 64", (two, many), (two, few))):
        if ours in rate and base in rate:
            table.add(f"scaling: tokens/s, {what}", rate[ours], rate[base], rate[ours] / rate[base])
    rows = own.get(two, {})
    if few in rows and many in rows:
        grown, kv = ((rows[many][key] - rows[few][key]) / (256 - 64) for key in ("resident_mib", "kv_mib"))
        table.add("  memory per sequence from 64 to 256, MiB resident ÷ KV blocks", grown, kv, grown / kv)


# Of the bound of instruction peak and read bandwidth; every other kernel set is of class seq.
SHARES = {"amx": 0.5}
SEQ_SHARE = 0.85


def linear(table, own):
    """By kernel set the worst row of all shapes against oneDNN, and against the machine's bound."""
    sets = {}
    for name, row in own.items():
        found = re.match(r"linear (\S+) (\S+ M=(\d+)) ", name)
        if found:
            sets.setdefault(found[1], []).append((found[2], int(found[3]), row))
    for isa, rows in sets.items():
        for label, part, key, target in (("÷ oneDNN, M ≤ 32", [row for row in rows if row[1] <= 32], "ratio", 1.3),
                                         ("÷ oneDNN, all M", rows, "ratio", 1.05),
                                         ("÷ the machine's bound", rows, "share", SHARES.get(isa, SEQ_SHARE))):
            lacking = [row for row in part if key not in row[2]]
            part = [row for row in part if key in row[2]]
            if lacking:
                table.add(f"linear {isa} {label}, GFLOP/s, {len(lacking)} shapes, first: {lacking[0][0]}",
                          lacking[0][2]["tandem"], None, None, target)
            if part:
                shape, _, row = min(part, key=lambda row: row[2][key])
                below = [other for _, _, other in part if other[key] < target]
                table.add(f"linear {isa} {label}, GFLOP/s, {counts(below, len(part), key, target)}worst: {shape}",
                          row["tandem"], row["tandem"] / row[key], row[key], target)


def counts(below, rows, key, target):
    """How many miss a target, and how many of them have to: for them it lies above the bound."""
    beyond = sum(key == "ratio" and row["tandem"] / row["ratio"] * target > row["bound"] for row in below)
    return f"{len(below)} of {rows} below" + (f" ({beyond} beyond the bound), " if beyond else ", ")


def versus(table, what, row, target):
    """An op against its fastest counterpart."""
    if "ratio" not in row:
        table.add(f"{what}, {row['unit']}", row["tandem"], None, None, target)
        return
    peer = row["tandem"] * (row["ratio"] if row["unit"] == "us" else 1 / row["ratio"])
    table.add(f"{what}, {row['unit']}, {row['fastest']}", row["tandem"], peer, row["ratio"], target)


def ops(table, own):
    """Linear and attention against what their users call; every op against its fastest counterpart,
    which may be 1.05 times as fast."""
    linear(table, own)
    for name, row in own.items():
        if "tandem" in row and not name.startswith(("linear ", "op ")):
            versus(table, f"attention: {name}", row, 4.0 if name.startswith("decode") else 2.5)
    for name, row in own.items():
        if "tandem" in row and name.startswith("op "):
            versus(table, f"exactness: {name[3:]}", row, round(1 / 1.05, 3))
