"""Every test program is in a turn of each sanitizer, or is left out for a reason that is written down."""
import contextlib
import io
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "deploy/scripts"))

import sanitize_plan  # noqa: E402  pylint: disable=wrong-import-position

BUILD = pathlib.Path("/b")
EXECUTABLES = {"tests/base", "tests/text", "tests/e2e", "tests/ops"}
# As of rooms: two tests run one program with different filters; one runs it through another program, and one
# through a script that looks at its output.
TESTS = [
    {"name": "base", "labels": ["unit"], "command": ["/b/tests/base"]},
    {"name": "base again", "labels": ["unit"], "command": ["cmake", "-E", "env", "/b/tests/base", "[x]"]},
    {"name": "base output", "labels": ["unit"],
     "command": ["/usr/bin/python3", "/s/expect_output.py", "--code", "0", "figure .*", "/b/tests/base", "8"]},
    {"name": "text", "labels": ["golden"], "command": ["/b/tests/text", "[golden]"]},
    {"name": "ops", "labels": ["unit"], "command": ["/b/tests/ops"]},
    {"name": "run", "labels": ["e2e"], "command": ["/b/tests/e2e", "[run]"]},
    {"name": "layers", "labels": ["unit"], "command": ["/usr/bin/python3", "check_layers.py"]},
]
RULES = [["both", "label", "e2e", "too much"], ["thread", "program", "tests/o*", "its own reason"]]


def program(sanitizer, name, objects, tests=1):
    return sanitize_plan.Program(sanitizer, name, tuple(f"{name}{i}" for i in range(tests)),
                                 {obj: (obj[0], f"/src/{obj}.cc") for obj in objects})


COSTS = sanitize_plan.Costs({}, {})


class ChooseTest(unittest.TestCase):
    def test_every_program_is_chosen_or_left_out_for_a_reason(self):
        chosen, left = sanitize_plan.choose(TESTS, BUILD, EXECUTABLES, "address", RULES)
        self.assertEqual(chosen, {"tests/base": ["base", "base again", "base output"], "tests/text": ["text"],
                                  "tests/ops": ["ops"]})
        self.assertEqual(left["run"], "too much")
        self.assertIn("a script", left["layers"])
        chosen, left = sanitize_plan.choose(TESTS, BUILD, EXECUTABLES, "thread", RULES)
        self.assertEqual((sorted(chosen), left["ops"]), (["tests/base", "tests/text"], "its own reason"))
        self.assertEqual(len(sum(chosen.values(), [])) + len(left), len(TESTS))

    def test_the_real_rules_are_whole(self):
        rules = sanitize_plan.table_rows(sanitize_plan.RULES)
        self.assertGreater(len(rules), 3)
        for rule in rules:
            self.assertEqual(len(rule), 4, rule)
            self.assertIn(rule[0], ("address", "thread", "both"))
            self.assertIn(rule[1], ("label", "test", "program"))
            self.assertGreater(len(rule[3].split()), 3, "a reason")
        sanitize_plan.read_costs()


# What begins with one letter is one target; s0 to s9 are a library that many share.
SHARED = [f"s{i}" for i in range(10)]


class DealTest(unittest.TestCase):
    PROGRAMS = [program(sanitizer, f"p{i}", SHARED * (i % 2) + [f"{letter}{j}" for j in range(i + 1)])
                for sanitizer in ("address", "thread") for i, letter in enumerate("abcdefgh")]

    def test_over_all_turns_every_program_is_built_and_run_once_by_each_sanitizer(self):
        estimate = sanitize_plan.Estimate(self.PROGRAMS, COSTS)
        for seconds in (max(estimate.seconds([one]) for one in self.PROGRAMS), 200, 10000):
            turns = sanitize_plan.deal(self.PROGRAMS, estimate, seconds)
            dealt = sorted((one.sanitizer, one.name) for turn in turns for one in turn)
            self.assertEqual(dealt, sorted((one.sanitizer, one.name) for one in self.PROGRAMS))
            for turn in turns:
                self.assertEqual(len({one.sanitizer for one in turn}), 1)
                self.assertLessEqual(estimate.seconds(turn), seconds)

    def test_a_program_that_no_turn_holds_is_named(self):
        estimate = sanitize_plan.Estimate(self.PROGRAMS, sanitize_plan.Costs({}, {"p30": 1000.0}))
        wrong = sanitize_plan.too_long(self.PROGRAMS, estimate, 1200)
        self.assertEqual([line.split(" takes")[0] for line in wrong], ["address p3", "thread p3"])
        self.assertIn("a turn has 1200 s", wrong[0])

    def test_as_many_programs_as_ours_fit_into_few_turns_and_few_move(self):
        programs = [program(sanitizer, f"tests/p{i}", [f"l{j}" for j in range(i % 40)] + [f"o{i}x{j}" for j in range(i)])
                    for sanitizer in ("address", "thread") for i in range(42)]
        programs = [one._replace(objects={name: (name, source) for name, (_, source) in one.objects.items()})
                    for one in programs]

        def places(programs, factor=1.0):
            costs = sanitize_plan.Costs({f"o41x{i}": 4 * factor for i in range(41)}, {})
            estimate = sanitize_plan.Estimate(programs, costs)
            turns = sanitize_plan.deal(programs, estimate, 1200)
            self.assertLessEqual(max(map(estimate.seconds, turns)), 1200)
            return {(one.sanitizer, one.name): place for place, turn in enumerate(turns) for one in turn}

        before = places(programs)
        self.assertEqual(len(before), 84)
        self.assertLessEqual(max(before.values()), 9)
        fewer = places([one for one in programs if one.name != "tests/p7"])
        for after in (fewer, places(programs, 1.2)):
            self.assertLessEqual(sum(before[name] != place for name, place in after.items()), 4)

    def test_a_program_with_many_long_tests_is_dealt_in_shares_of_them(self):
        whole = program("thread", "tests/test_golden", SHARED, tests=40)
        self.assertEqual(sanitize_plan.shares_of(self.PROGRAMS[3]), [self.PROGRAMS[3]])
        shares = sanitize_plan.shares_of(whole)
        self.assertEqual(len(shares), sanitize_plan.SHARES[whole.name])
        self.assertEqual(sorted(sum((one.tests for one in shares), ())), sorted(whole.tests))
        fewer = {one.share: one.tests for one in sanitize_plan.shares_of(whole._replace(tests=whole.tests[:-1]))}
        for one in shares:  # a test stays in its share while others come and go
            self.assertLessEqual(set(fewer[one.share]), set(one.tests))
        estimate = sanitize_plan.Estimate(shares, COSTS)
        longest = max(estimate.seconds([one]) for one in shares)
        turns = sanitize_plan.deal(shares, estimate, longest)
        self.assertGreater(len(turns), 1)
        self.assertEqual(sorted(test for turn in turns for one in turn for test in one.tests), sorted(whole.tests))
        with tempfile.TemporaryDirectory() as folder:
            sanitize_plan.write(pathlib.Path(folder), ["address", "thread"], shares[:2])
            self.assertEqual((pathlib.Path(folder) / "thread.targets").read_text(), "tests/test_golden\n")
            self.assertEqual((pathlib.Path(folder) / "address.tests").read_text(), "")

    def test_what_ctest_runs_of_a_program_is_on_its_line(self):
        programs = [program("address", "tests/b", [], tests=2), program("address", "tests/a.b", [], tests=1)]
        with tempfile.TemporaryDirectory() as folder:
            sanitize_plan.write(pathlib.Path(folder), ["address"], programs)
            self.assertEqual((pathlib.Path(folder) / "address.targets").read_text(), "tests/b\ntests/a.b\n")
            self.assertEqual((pathlib.Path(folder) / "address.tests").read_text(),
                             "tests/b0|tests/b1\ntests/a\\.b0\n")

    def test_costs_without_a_row_are_counted(self):
        estimate = sanitize_plan.Estimate(self.PROGRAMS, sanitize_plan.Costs({"s": 1.0}, {"p00": 1.0}))
        self.assertEqual((estimate.sizes, estimate.without_row), ((9, 8), (8, 7)))
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            sanitize_plan.show([self.PROGRAMS[:1]], {}, estimate)
        self.assertIn("default costs: 8 of 9 CMake targets have no row in sanitizer_costs.txt", out.getvalue())
        self.assertIn("default costs: 7 of 8 tests have no row", out.getvalue())

    def test_what_is_shared_costs_once(self):
        estimate = sanitize_plan.Estimate(self.PROGRAMS, sanitize_plan.Costs({"s": 1000.0}, {}))
        p1, p3 = (next(one for one in self.PROGRAMS if one.name == name) for name in ("p1", "p3"))
        shared = 1000 * sanitize_plan.COMPILING["address"] / sanitize_plan.CORES
        self.assertAlmostEqual(estimate.seconds([p1, p3]),
                               estimate.seconds([p1]) + estimate.seconds([p3]) - shared)

    def test_two_sanitizers_share_nothing(self):
        one, other = (next(p for p in self.PROGRAMS if p.name == "p1" and p.sanitizer == sanitizer)
                      for sanitizer in ("address", "thread"))
        estimate = sanitize_plan.Estimate(self.PROGRAMS, COSTS)
        self.assertAlmostEqual(estimate.seconds([one, other]),
                               estimate.seconds([one]) + estimate.seconds([other]))

    def test_the_table_counts(self):
        costs = sanitize_plan.Costs({"s": 2000.0}, {"p00": 500.0})
        cheap = sanitize_plan.Estimate(self.PROGRAMS, COSTS)
        dear = sanitize_plan.Estimate(self.PROGRAMS, costs)
        p0, p1 = self.PROGRAMS[:2]
        self.assertGreater(dear.seconds([p0]), cheap.seconds([p0]) + 500)
        self.assertGreater(dear.seconds([p1]), cheap.seconds([p1]) + 1500)

    def test_programs_that_use_what_changed_are_added_as_long_as_they_fit(self):
        estimate = sanitize_plan.Estimate(self.PROGRAMS, COSTS)
        today = self.PROGRAMS[:1]
        changed = {("thread", "p2"), ("thread", "p6"), ("address", "p7"), ("address", "p0")}
        room = estimate.seconds(today + [one for one in self.PROGRAMS
                                         if (one.sanitizer, one.name) in changed and one.name < "p7"])
        chosen, left = sanitize_plan.add_changed(today, self.PROGRAMS, changed, estimate, room)
        self.assertEqual([(one.sanitizer, one.name) for one in chosen],
                         [("address", "p0"), ("thread", "p2"), ("thread", "p6")])
        self.assertEqual([one.name for one in left], ["p7"])


class ChangedTest(unittest.TestCase):
    def test_a_header_changes_the_programs_that_include_it_through_units_too(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            unit = root / "build/unity/x/0.cc"
            unit.parent.mkdir(parents=True)
            (root / "c").mkdir()
            (root / "c/a.h").write_text("")
            (root / "c/a.cc").write_text('#include "c/a.h"\n')
            (root / "c/b.cc").write_text("")
            unit.write_text('#include "c/b.cc"\n#include "c/a.cc"\n')
            one = sanitize_plan.Program("thread", "one", (), {"u.o": ("x", str(unit))})
            other = sanitize_plan.Program("thread", "other", (), {"b.o": ("x", f"{root}/c/b.cc")})
            self.assertEqual(sanitize_plan.changed_programs([one, other], ["c/a.h"], root),
                             {("thread", "one")})
            self.assertEqual(sanitize_plan.changed_programs([one, other], ["c/b.cc"], root),
                             {("thread", "one"), ("thread", "other")})
            self.assertEqual(sanitize_plan.changed_programs([one, other], [], root), set())
            for name in ("c/CMakeLists.txt", "deploy/cmake/Any.cmake"):
                self.assertEqual(sanitize_plan.changed_programs([one, other], [name], root),
                                 {("thread", "one"), ("thread", "other")})
            self.assertEqual(sanitize_plan.changed_programs([one, other], ["d/CMakeLists.txt"], root), set())


class WriteTest(unittest.TestCase):
    def test_targets_and_tests_of_each_sanitizer(self):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder)
            sanitize_plan.write(out, ["address", "thread"], [program("address", "p(1)", ["a"], 2)])
            self.assertEqual((out / "address.targets").read_text(), "p(1)\n")
            self.assertEqual((out / "address.tests").read_text(), "p\\(1\\)0|p\\(1\\)1\n")
            self.assertEqual((out / "thread.targets").read_text(), "")


if __name__ == "__main__":
    unittest.main()
