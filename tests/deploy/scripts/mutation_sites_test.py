"""mutation_sites.py changes code alone, one step at a time."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "deploy" / "scripts"))
from mutation_sites import sites_of  # noqa: E402


def mutants(source):
    return [site.mutate(source) for site in sites_of(source)]


class MutationSitesTest(unittest.TestCase):
    def test_each_operator_is_changed_by_itself(self):
        self.assertEqual(mutants("bool b = x < y && !z;\n"),
                         ["bool b = x <= y && !z;\n", "bool b = x < y || !z;\n", "bool b = x < y && z;\n"])
        self.assertEqual(mutants("return std::min(a - b, 0);\n"),
                         ["return std::max(a - b, 0);\n", "return std::min(a + b, 0);\n",
                          "return std::min(a - b, 1);\n"])

    def test_comments_texts_directives_and_templates_are_left_alone(self):
        for line in ("// x < y, or 0", '/* a + b */ Say("a + b < 0, and \\" 1 ");', "std::vector<int> rows;",
                     "const Row& row = rows[i];", "Tensor* tensor = Of(rows);"):
            self.assertEqual(mutants(f"{line}\n"), [], line)
        self.assertEqual(mutants("\n#if A == 1\n"), [])

    def test_a_statement_is_taken_out_and_the_line_is_that_of_the_source(self):
        source = "void F() {\n  Reserve();\n  blocks.clear();\n  sum += Of(a,\n             b);\n}\n"
        sites = sites_of(source)
        self.assertEqual([(site.line, site.before, site.after) for site in sites],
                         [(3, "blocks.clear()", ""), (4, "+=", "-=")])
        self.assertIn("{\n  Reserve();\n  ;\n", sites[0].mutate(source))

    def test_what_keeps_memory_logs_or_checks_the_program_is_left_alone(self):
        for line in ("rows.reserve(n + 1);", 'LogInfo("{}", a + b);', 'TANDEM_CHECK(a > 0, "a");'):
            self.assertEqual(mutants(f"{{\n  {line}\n}}\n"), [], line)


if __name__ == "__main__":
    unittest.main()
