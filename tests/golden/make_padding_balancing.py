#!/usr/bin/env python3
"""Writes padding_balancing.json: partitions by a differencing method that keeps whole tuples and no
heap, micro-batches, and conversions of padded batches worked out one token at a time.

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


def greedy(values, parts, equal):
    lists = [[] for _ in range(parts)]
    for i in range(len(values)):
        room = [p for p in range(parts) if not equal or len(lists[p]) == min(map(len, lists))]
        best = min(room, key=lambda p: (sum(values[j] for j in lists[p]), p))
        lists[best].append(i)
    return lists


def micro_batches(lengths, limit, least=1, multiple=1, group=1, ends=True):
    """None where it cannot be done."""
    if len(lengths) % group or max(lengths) > limit:
        return None
    groups = [list(range(i, i + group)) for i in range(0, len(lengths), group)]
    tokens = [sum(lengths[i] for i in g) for g in groups]
    work = [sum(workload(lengths[i]) for i in g) for g in groups]
    count = max(least, -(-sum(tokens) // limit))
    count = -(-count // multiple) * multiple
    while True:
        if count > len(groups):
            return None
        lists = differencing(work, count, False)
        if all(sum(tokens[g] for g in part) <= limit for part in lists):
            break
        count += multiple
    if ends:
        lists.sort(key=lambda part: (-sum(work[g] for g in part), -part[0]))
        lists = lists[::2][::-1] + lists[1::2]
    return [[i for g in part for i in groups[g]] for part in lists]


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
                lists = None if uneven else greedy(values, parts, equal)
                add(f"greedy/{s}/{parts}/{int(equal)}", "greedy_partition", options,
                    lists and {"partitions": lists})
        for limit in (max(values) - 1, max(values), 2 * max(values) + 1, sum(values)):
            for name, options in (("default", {}), ("use_dynamic_bsz_balance", {"ends": False}),
                                  ("min_num_micro_batch", {"least": 4}),
                                  ("num_batches_divided_by", {"multiple": 3}),
                                  ("force_group_size", {"group": 3})):
                lists = micro_batches(values, limit, **options)
                order = [i for part in lists or [] for i in part]
                add(f"rearrange/{s}/{limit}/{name}", "rearrange_micro_batches",
                    {"max_token_len": limit, **({name: next(iter(options.values()))} if options
                                                else {})},
                    lists and {"micro_batch_indices": lists,
                               "reverse_index": [order.index(i) for i in range(len(order))]})
    return cases


def padding_cases(rng):
    cases = []
    for s, (prompts, responses) in enumerate([([2, 1, 5], [4, 6, 1]), ([1], [1]),
                                              ([3, 3, 3, 3], [2, 0, 5, 2])]):
        rows, left, right = len(prompts), max(prompts) + 1, max(responses) + 2
        width, lengths = left + right, [p + r for p, r in zip(prompts, responses)]
        mask, places = [], []
        for row in range(rows):
            for column in range(width):
                kept = left - prompts[row] <= column < left + responses[row]
                mask.append(int(kept))
                if kept:
                    places.append(row * width + column)
        ids = [rng.randint(1, 400) if m else 0 for m in mask]
        positions = []
        for row in range(rows):
            for column in range(width):
                before = sum(mask[row * width:row * width + column + 1])
                positions.append(max(before - 1, 0))
        offsets = [sum(lengths[:i]) for i in range(rows + 1)]
        grid = lambda data, columns=width, dtype="int64": tensor(dtype, [rows, columns], data)
        add = lambda name, fn, options, inputs, outputs: cases.append(
            {"id": f"own/{name}/{s}", "fn": fn, "options": options, "inputs": inputs,
             "outputs": outputs})
        add("position_ids", "compute_position_id_with_mask", {}, {"attention_mask": grid(mask)},
            {"position_ids": grid(positions)})
        trained = grid([rng.randint(0, 1) for _ in range(rows * right)], right)
        flat = lambda data: tensor("int64", [len(data)], data)
        add("left_right", "left_right_2_no_padding", {},
            {"input_ids": grid(ids), "attention_mask": grid(mask), "response_mask": trained,
             "position_ids": grid(positions), "prompt_width": left, "response_width": right},
            {"input_ids_values": flat([ids[p] for p in places]), "offsets": flat(offsets),
             "position_ids_values": flat([positions[p] for p in places]), "loss_mask": trained,
             "indices": flat(places), "max_seq_len": width, "max_response_len": right})
        for depth in (1, 3):
            shape = [] if depth == 1 else [depth]
            values = [[rng.randint(-64, 64) / 8 for _ in range(depth)] for _ in range(offsets[-1])]
            whole = tensor("float32", [len(values)] + shape, [v for token in values for v in token])
            def window(columns):
                out = []
                for row in range(rows):
                    for t in range(columns):
                        scored = offsets[row] + prompts[row] + t - 1
                        out += values[scored] if t < responses[row] else [0.0] * depth
                return {"value": tensor("float32", [rows, columns] + shape, out)}
            add(f"padded/{depth}", "no_padding_2_padding", {"prompts": "padded"},
                {"values": whole, "attention_mask": grid(mask), "prompt_width": left,
                 "response_width": right}, window(right))
            for columns in (None, max(responses) + 3):
                add(f"nested/{depth}/{columns}", "no_padding_2_padding",
                    {"prompts": "nested", "max_response_len": columns},
                    {"values": whole, "prompt_lens": prompts, "response_lens": responses},
                    window(columns or max(responses)))
        scores = [rng.randint(-64, 64) / 8 for _ in range(offsets[-1])]
        kept = [scores[offsets[row] + prompts[row] + t - 1]
                for row in range(rows) for t in range(responses[row])]
        after = [sum(responses[:i]) for i in range(rows + 1)]
        add("from_nested", "response_from_nested", {},
            {"values": tensor("float32", [len(scores)], scores), "offsets": flat(offsets),
             "response_lens": responses},
            {"values": tensor("float32", [len(kept)], kept), "offsets": flat(after)})
        padded = [rng.randint(-64, 64) / 8 for _ in range(rows * right)]
        kept = [padded[row * right + t] for row in range(rows) for t in range(responses[row])]
        add("to_nested", "response_to_nested", {},
            {"values": grid(padded, right, "float32"), "response_lens": responses},
            {"values": tensor("float32", [len(kept)], kept), "offsets": flat(after)})
        for columns in (None, max(lengths) + 2):
            out = [int(c < n) for n in lengths for c in range(columns or max(lengths))]
            add(f"mask/{columns}", "build_attention_mask_from_nested", {"max_seq_len": columns},
                {"offsets": flat(offsets)}, {"mask": grid(out, columns or max(lengths), "int32")})
        packed, at = [ids[p] for p in places], [positions[p] for p in places]
        for pad, value in ((0, 0), (4, 9)):
            line = lambda data: tensor("int64", [1, len(data)], data)
            add(f"pad_packed/{pad}", "pad_packed_inputs", {"pad_size": pad, "pad_value": value},
                {"input_ids": line(packed), "position_ids": line(at)},
                {"input_ids": line(packed + [value] * pad), "position_ids": line(at + list(range(pad)))})
    return cases


def main():
    rng = random.Random(11)
    with open("padding_balancing.json", "w", encoding="utf-8") as file:
        json.dump({"family": "padding_balancing", "set": "committed",
                   "cases": balancing_cases(rng) + padding_cases(rng)}, file)
        file.write("\n")


if __name__ == "__main__":
    main()
