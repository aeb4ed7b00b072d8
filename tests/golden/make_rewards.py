#!/usr/bin/env python3
"""Writes the verl/ cases of rewards.json: texts of our own, judged by verl's scorers.

Run in this folder, with verl's wheel (these scorers need no other package):
    pip download verl==0.9.1 --no-deps -d /tmp/verl && python3 make_rewards.py /tmp/verl/*.whl
The own/ cases are worked out by hand and stay. With a number behind the wheel that many random
texts are judged instead, and printed as a family of their own: a set to test with, not committed.
"""
import contextlib
import importlib.util
import io
import json
import pathlib
import random
import sys
import tempfile
import zipfile

FILE = pathlib.Path("rewards.json")
SCORERS = "verl/utils/reward_score/"

ANSWERS = [
    "", " ", "7", " 7 ", "-3", "007", "1,234", "1,23,4", "1,234,567.5", "3.0", ".5", "-.5", "0.5",
    "x .5", "5\\%", "5%", "50\\\\%", "\\$12", "$12$", "3/4", "-3/4", "3/-4", "03/4", "3 / 4",
    "a/b", "1/2/3", "+1/2", "x=3", "xy=3", "xyz=3", "x=y=3", "é=3", "=", "k = 2", "\\frac12",
    "\\frac1{72}", "\\frac{1}{2}", "\\frac{72}1", "\\dfrac34", "\\tfrac ab", "\\frac", "\\frac1",
    "\\frac1\\frac23", "\\frac½3", "2\\frac12", "\\sqrt2", "\\sqrt{2}", "\\sqrt 2", "\\sqrt",
    "\\sqrt\\sqrt2", "\\sqrt½", "3\\sqrt[3]{2}", "\\left(1,2\\right)", "90^\\circ", "90^{\\circ}",
    "5\\text{ cm}", "5\\text{cm}", "\\text{Monday}", "\\text{ a }\\text{ b }", "\\text{a}{b}",
    "\\text{}", "\\text{x", "\\text{\\textbf{a}}", "\\textbf{b}", "\\overline{AB}",
    "\\mbox{10 m}", "1\\!000", "12\\,000", "1,\\!000", "1{,}000", "a\nb", "$1$ or $2$", "a $x$ b",
    "$x", "\\boxed{9}", "\\boxed{\\frac{1}{2}}", "{3}", "3\\\\4", "\\{1,2\\}", "an apple",
    "a cat", "the issue", "5 square inches", "10 dollars", "1 and 2", "1\\text{and}2", "4\\ldots",
    "\\mathrm{th}", "10^\\circ\\text{C}", "１２", "1²,3", "١٢٣", "２,０００", "naïve", "straße", "ΑΣ",
    "\u00a07\u2003", "\x1c7", "7\\;",
]
RESPONSES = [
    "", "no box", "\\boxed", "\\boxed{", "\\boxed{{}", "\\boxed}{}", "\\boxed}{{}", "\\boxed 7",
    "\\boxed 7$ or $8", "\\boxed{1} then \\boxed{2}", "\\boxed{1} then \\boxed{2", "\\fbox{3}",
    "\\boxed{1} \\fbox{2}", "\\fboxed{4}", "so $\\boxed{\\frac{1}{\\sqrt{2}}}$.",
    "\\boxed{\\text{ a }}", "\\boxed{a{b}c}d}", "\\boxed  8", "\\boxed{1} \\boxed 2", "Answer:",
    "Answer: ", "Answer:\n7", "Answer:\n\n  7\n8", "answer\n:\n7", "ANSWER:7",
    "Answer: 1 Answer: 2", "Answer: 1\nAnswer: 2\n", "Anſwer: 4", "Answer: [INVALID]",
    "Answer: [INVALID] \\boxed{3}", "Answer:\u00a05", "Answer:\x1c5", "Answer : $\\frac12$ units",
    "Answer: x = 3 = 5", "The answer is 4. So", "It is the answer: 4", "x are answers",
    "we get 7. Then x = 9 is it", "Step 1: be\n7", "\\boxed{} Answer", "İs the answer is 5",
    "<answer>x</answer>", "<answer>", "</answer><answer>y",
    "<answer>a<answer>b</answer>c</answer>", "<answer> Z \n</answer>",
    "<answer>1</answer><answer>2</answer>", "<answer>the an a</answer>",
    "<answer>A-b c_d</answer>", "<ANSWER>q</ANSWER>", "<answer>The ÉCOLE a-the éa a</answer>",
    "<answer>Paris</answer>" * 10, "<answer>Paris</answer>" * 11,
]
TARGETS = ["x", "paris", "b", "2", "", "Z", "école athe éa", "ab cd", "an", "a", "Ab Cd"]
PIECES = [
    "\\boxed", "\\fbox", "{", "}", "{", "}", "\\frac", "\\sqrt", "\\dfrac", "\\text{", "\\text{ ",
    "}", "\\textbf{", "$", "\\$", "=", "/", " ", "\n", ",", ".", "\\", "%", "\\%", "a ", "an ",
    "the ", "1", "2", "12", "0.5", "x", "é", "½", "²", "Answer:", "answer is ", "<answer>",
    "</answer>", "\\left", "^\\circ", "^{\\circ}", "units", "sue", "square", "frac", "sqrt",
    "\\boxed ", "\\boxed{", "mbox", "\\overline{", "\u2003", "\x1c", "_", "-", "Σ", "İ", ". ",
    ": ", "is ", "\\!", "\\ldots", "\\;", "{,}", ",\\!", "\"", "\\\\", "and", "m}", "[INVALID]",
]


def load(wheel):
    """verl's scorers by name, without the package around them."""
    folder = pathlib.Path(tempfile.mkdtemp())
    zipfile.ZipFile(wheel).extractall(folder)

    def module(path):
        file = folder / SCORERS / path
        spec = importlib.util.spec_from_file_location(file.stem, file)
        loaded = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(loaded)
        return loaded

    return {name: module(name + ".py") for name in (
        "gsm8k", "math_reward", "math_dapo", "prime_math/math_normalize", "search_r1_like_qa_em")}


class Cases:
    def __init__(self, scorers):
        self.scorers = scorers
        self.cases = []

    def add(self, fn, options, inputs, compute):
        name = f"verl/{fn}/{len(self.cases)}"
        case = {"id": name, "fn": fn, "options": options, "inputs": inputs}
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                case["outputs"] = compute()
        except Exception as error:  # pylint: disable=broad-except
            case["raises"] = type(error).__name__
        self.cases.append(case)

    def answer(self, text):
        dapo, reward = self.scorers["math_dapo"], self.scorers["math_reward"]
        prime = self.scorers["prime_math/math_normalize"]
        self.add("math_dapo.normalize_final_answer", {}, {"text": text},
                 lambda: {"value": dapo.normalize_final_answer(text)})
        self.add("math_reward.strip_string", {}, {"text": text},
                 lambda: {"value": reward.strip_string(text)})
        self.add("prime_math.normalize_answer", {}, {"text": text},
                 lambda: {"value": prime.normalize_answer(text)})

    def math(self, text, truth):
        dapo, reward = self.scorers["math_dapo"], self.scorers["math_reward"]
        inputs = {"solution_str": text, "ground_truth": truth}
        self.add("math_reward", {}, inputs,
                 lambda: {"last_boxed": reward.last_boxed_only_string(text),
                          "score": reward.compute_score(text, truth)})
        for strict in (False, True):
            self.add("math_dapo", {"strict_box_verify": strict}, inputs,
                     lambda: dapo.compute_score(text, truth, strict_box_verify=strict))

    def gsm8k(self, text, truth):
        module = self.scorers["gsm8k"]
        for method in ("strict", "flexible"):
            options = {"method": method, "format_score": 0.1, "score": 1.0}
            self.add("gsm8k", options, {"solution_str": text, "ground_truth": truth},
                     lambda: {"extracted": module.extract_solution(text, method),
                              "score": float(module.compute_score(text, truth, **options))})

    def search(self, text, targets):
        module = self.scorers["search_r1_like_qa_em"]
        options = {"format_score": 0.1, "score": 1.0}

        def compute():
            truth = {"target": targets}
            return {"extracted": module.extract_solution(text),
                    "em": [module.em_check(text, target) for target in targets],
                    "subem": [module.subem_check(text, target) for target in targets],
                    "normalized": module.normalize_answer(text),
                    "score": float(module.compute_score(text, truth, **options)),
                    "score_subem": float(module.compute_score_subem(text, truth, **options))}

        inputs = {"solution_str": text, "targets": targets}
        self.add("search_r1_like_qa_em", options, inputs, compute)


def chosen(cases):
    for answer in ANSWERS:
        cases.answer(answer)
    for i, answer in enumerate(ANSWERS):
        cases.math("so \\boxed{" + answer + "}", ANSWERS[(i + 1) % len(ANSWERS)])
        cases.math("Answer: " + answer, answer)
    for i, response in enumerate(RESPONSES):
        cases.math(response, str(i % 10))
        cases.search(response, [TARGETS[i % len(TARGETS)], TARGETS[(i + 3) % len(TARGETS)]])
    for fill, counts in (("x", (91, 92, 291, 292)), ("é", (91, 92, 291, 292)), ("😀", (92, 292))):
        for count in counts:
            cases.math("Answer: 7" + fill * count, "7" + fill * count)
            cases.math("\\boxed{7}" + fill * count, "7")
            cases.gsm8k("#### 7" + fill * count, "7")


def drawn(cases, count):
    rng = random.Random(7)

    def text(longest):
        return "".join(rng.choice(PIECES) for _ in range(rng.randint(0, longest)))

    for _ in range(count):
        cases.answer(text(12))
        cases.math(text(14), text(3))
        cases.math("\\boxed{" + text(6) + "}" + text(3), text(3))
        cases.math(text(2) + "Answer: " + text(6), text(3))
        cases.search(text(4) + "<answer>" + text(5) + "</answer>" + text(2), [text(2), text(2)])
        cases.gsm8k(text(8) + "#### " + text(4), text(1))


def family(cases, source):
    head = json.dumps({"family": "rewards", "set": "committed", "source": source})
    lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases)
    return head[:-1] + ', "cases": [\n' + lines + "\n]}\n"


def main():
    cases = Cases(load(sys.argv[1]))
    if len(sys.argv) > 2:
        drawn(cases, int(sys.argv[2]))
        print(family(cases.cases, {"verl": "0.9.1"}), end="")
        return
    chosen(cases)
    cases_now = json.loads(FILE.read_text())["cases"]
    by_hand = [case for case in cases_now if case["id"].startswith("own/")]
    FILE.write_text(family(by_hand + cases.cases, {"own": "worked out by hand", "verl": "0.9.1"}))


if __name__ == "__main__":
    main()
