"""Reads figures from the lines that benchmarks and peers print, and keeps the best of several runs."""
import re

# "linear amx 576x576 M=8 threads 2: tandem 80.10 packed 40.05 ratio 2.00 (packed) share 0.50 GFLOP/s"
LABELLED = re.compile(r"([A-Za-z][\w=-]*) ([\d.]+)(?![\w.])")
# "all-gather          12.34 GB/s", "memcpy     1.0 ms    2.00 GB/s"
PLAIN = re.compile(r"^(\S.*?)\s{2,}([\d.]+) (GB/s|us|ms)(?:\s+([\d.]+) (GB/s))?$")
FASTEST = re.compile(r" ratio [\d.]+ \(([\w-]+)\)")
UNIT = re.compile(r" (GFLOP/s|us)$")
GENERATION = ("prefill_s", "decode_s", "decode_tokens_per_s", "tokens_per_s", "cpu_s", "kv_mib", "resident_mib")


def rows_of(line):
    """{name: figures} of one printed line, {} where it holds none."""
    plain = PLAIN.match(line)
    if plain:
        name, value, unit, more, rate = plain.groups()
        return {name: {unit: float(value), **({rate: float(more)} if more else {})}}
    name, colon, rest = line.partition(":")
    values = {key: float(value) for key, value in LABELLED.findall(rest)}
    if "tandem" in values:  # an op beside its counterparts
        values |= {key: found[1] for key, found in (("fastest", FASTEST.search(rest)), ("unit", UNIT.search(rest)))
                   if found}
    if colon and values:
        return {name.strip(): values}
    cells = line.split()
    if len(cells) == 1 + len(GENERATION) and re.fullmatch(r"[\d.\s]+", line):
        return {f"{cells[0]} sequences": dict(zip(GENERATION, map(float, cells[1:])))}
    return {}


def whole(row):
    """What decides between two runs of a row whose figures belong together, larger is better; None
    where each figure stands for itself."""
    if "tandem" in row:
        return -row["tandem"] if row.get("unit") == "us" else row["tandem"]
    if "tokens_per_s" in row:
        return row["tokens_per_s"]
    return -row["total_s"] if "total_s" in row else None


def keep_best(best, lines):
    """Of two runs the better row, whole, where its figures belong together (an op beside its
    counterparts, generation, training); else the smaller times, the larger rates."""
    for line in lines:
        times = re.search(r"\b(us|ms)\b", line) is not None
        for name, row in rows_of(line).items():
            old = best.get(name)
            if old is None:
                best[name] = row
            elif whole(row) is not None:
                best[name] = max(old, row, key=whole)
            else:
                best[name] = {key: (min if times and key != "GB/s" else max)(old[key], value)
                              for key, value in row.items() if key in old}


def pairs_of(line):
    """{"step_s": 34.7, ...} of a peer's line of names and numbers in turns."""
    return {key: float(value) for key, value in LABELLED.findall(line)}
