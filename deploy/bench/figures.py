"""Reads figures from the lines that benchmarks and peers print, and keeps the best of several runs."""
import re

# "linear 576x576 threads 1:  M=1 12  M=8 80 GFLOP/s"
LABELLED = re.compile(r"([A-Za-z][\w=-]*) ([\d.]+)(?![\w.])")
# "all-gather          12.34 GB/s", "memcpy     1.0 ms    2.00 GB/s"
PLAIN = re.compile(r"^(\S.*?)\s{2,}([\d.]+) (GB/s|us|ms)(?:\s+([\d.]+) (GB/s))?$")
GENERATION = ("prefill_s", "decode_s", "decode_tokens_per_s", "tokens_per_s", "cpu_s")


def rows_of(line):
    """{name: figures} of one printed line, {} where it holds none."""
    plain = PLAIN.match(line)
    if plain:
        name, value, unit, more, rate = plain.groups()
        return {name: {unit: float(value), **({rate: float(more)} if more else {})}}
    name, colon, rest = line.partition(":")
    values = {key: float(value) for key, value in LABELLED.findall(rest)}
    if colon and values:
        return {name.strip(): values}
    cells = line.split()
    if len(cells) == 1 + len(GENERATION) and re.fullmatch(r"[\d.\s]+", line):
        return {f"{cells[0]} sequences": dict(zip(GENERATION, map(float, cells[1:])))}
    return {}


def keep_best(best, lines):
    """Of two runs the better figures: the smaller times, the larger rates; where figures of a row
    belong together (generation, training), the faster row."""
    for line in lines:
        times = re.search(r"\b(us|ms)\b", line) is not None
        for name, figures in rows_of(line).items():
            old = best.get(name)
            if old is None:
                best[name] = figures
            elif "tokens_per_s" in figures:
                best[name] = max(old, figures, key=lambda row: row["tokens_per_s"])
            elif "total_s" in figures:
                best[name] = min(old, figures, key=lambda row: row["total_s"])
            else:
                best[name] = {key: (min if times and key != "GB/s" else max)(old[key], value)
                              for key, value in figures.items() if key in old}


def pairs_of(line):
    """{"step_s": 34.7, ...} of a peer's line of names and numbers in turns."""
    return {key: float(value) for key, value in LABELLED.findall(line)}
