#!/usr/bin/env python3
"""Writes padding_balancing.json: partitions by a differencing method that keeps whole tuples and no
heap.

Run in this folder: python3 make_padding_balancing.py
"""
import json
import random


def tensor(dtype, shape, data):
    return {"dtype": dtype, "shape": shape, "data": data}


def workload(tokens):
    return 24576 * tokens + tokens * tokens


def differencing(values, parts, equal):
    """Lists of (sum, count, indices), joined two partitions at a time, the widest first."""
    order = sorted(range(len(values)), key=lambda i: (values[i], i))
    step = parts if equal else 1
    states = []
    for begin in range(0, len(order), step):
        subsets = [(values[i], 1, [i]) for i in order[begin:begin + step]]
        states.append(sorted(subsets + [(0, 0, [])] * (parts - step), reverse=True))
    while len(states) > 1:
        states.sort(key=lambda s: (s[0][0] - s[-1][0], s[0]))
        first, second = states.pop(), states.pop()
        states.append(sorted(((a[0] + b[0], a[1] + b[1], a[2] + b[2])
                              for a, b in zip(first, reversed(second))), reverse=True))
    return [sorted(subset[2]) for subset in states[0]]


def imbalance(values, lists):
    run = len(values) // len(lists)
    runs = [sum(values[i:i + run]) for i in range(0, len(values), run)]
    sums = [sum(values[i] for i in items) for items in lists]
    return {"global_seqlen/min": min(runs), "global_seqlen/max": max(runs),
            "global_seqlen/minmax_diff": max(runs) - min(runs),
            "global_seqlen/balanced_min": min(sums), "global_seqlen/balanced_max": max(sums),
            "global_seqlen/mean": sum(values) / len(lists)}


def balancing_cases(rng):
    sets = [[rng.randint(1, 40) for _ in range(12)], [3] * 6, [2, 2, 9, 9, 9, 1, 30],
            [rng.randint(1, 9000) for _ in range(24)], [7]]
    cases = []
    for s, values in enumerate(sets):
        inputs = {"seqlen": values}
        add = lambda name, fn, options, outputs: cases.append(
            {"id": f"own/{name}", "fn": fn, "options": options, "inputs": inputs,
             **({"raises": "AssertionError"} if outputs is None else {"outputs": outputs})})
        add(f"workload/{s}", "calculate_workload", {},
            {"workload": tensor("int64", [len(values)], [workload(v) for v in values])})
        for parts in (1, 2, 3, 5, 6):
            for equal in (True, False):
                options = {"k_partitions": parts, "equal_size": equal}
                uneven = equal and len(values) % parts
                lists = None if uneven or parts > len(values) else differencing(values, parts, equal)
                add(f"partition/{s}/{parts}/{int(equal)}", "get_seqlen_balanced_partitions", options,
                    lists and {"partitions": lists, "unbalance": imbalance(values, lists)})
    return cases


def main():
    rng = random.Random(11)
    with open("padding_balancing.json", "w", encoding="utf-8") as file:
        json.dump({"family": "padding_balancing", "set": "committed",
                   "cases": balancing_cases(rng)}, file)
        file.write("\n")


if __name__ == "__main__":
    main()
