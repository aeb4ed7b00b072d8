"""The tables of TandemRegistry.cmake: a definition is in its table, or stops the configuration."""
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
GOOD = "extern const Loss kGoodLoss = {.terms = Good};\n"


def configure(sources, also=""):
    """(exit code, output, {table: text}) over a folder of these sources."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in sources.items():
            (root / "losses" / name).parent.mkdir(parents=True, exist_ok=True)
            (root / "losses" / name).write_text(text)
        lines = ["cmake_minimum_required(VERSION 3.25)", "project(made NONE)",
                 f"include({ROOT}/deploy/cmake/TandemRegistry.cmake)",
                 f"tandem_registry(NAME losses TYPE Loss SUFFIX Loss {also} DIR losses)"]
        if also:
            lines.append("tandem_registry(NAME terms TYPE Loss SUFFIX Term ALSO Loss DIR losses)")
        (root / "CMakeLists.txt").write_text("\n".join(lines) + "\n")
        done = subprocess.run(["cmake", "-S", folder, "-B", f"{folder}/build", "-G", "Ninja"], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        tables = {path.stem: path.read_text() for path in (root / "build/generated/registry").glob("*.inc")}
        return done.returncode, " ".join(done.stdout.split()), tables


def row(symbol, name):
    return f"TANDEM_REGISTERED({symbol}, \"{name}\")\n"


class RegistryTest(unittest.TestCase):
    def test_every_definition_of_every_source_is_in_the_table(self):
        code, text, tables = configure({
            "a.cc": "// extern const Loss kOldLoss = {};\n/* extern\nconst Loss kOlderLoss = {}; */\n"
                    "extern const Loss kALoss;\n"  # a declaration
                    "extern const Loss kALoss = {.text = \"extern const Loss kTextLoss = \"};\n\n"
                    "extern const Loss kGeoMeanLoss\n    = {};\nextern const Loss kB2Loss{};\n",
            # CMake takes a "[" that is not closed, and a backslash, for parts of a list.
            "b.cc": "extern const Loss kOpenLoss = {.at = [\n](int) {}};\nextern const Loss kNextLoss = {\\\n};\n"
                    "extern const Loss kLastLoss = {};\n"
                    "bool Same(const Loss& loss) { return &loss == &kLastLoss || Is(1, kLastLoss == loss); }\n"
                    "const Loss* Find(int kind);\nvoid Use() { const Loss loss = Make(kLastLoss); }\n",
            "c.h": "extern const Loss kALoss;\nLoss MakeLoss(int k);\n"})
        self.assertEqual(code, 0, text)
        self.assertEqual(tables["losses"], row("kALoss", "a") + row("kGeoMeanLoss", "geo_mean") + row("kB2Loss", "b2")
                         + row("kOpenLoss", "open") + row("kNextLoss", "next") + row("kLastLoss", "last"))

    def test_what_looks_like_a_definition_and_would_be_missed_stops_the_configuration(self):
        for missed in ("extern const Loss\n    kFooLoss = {};", "extern  const Loss kFooLoss = {};",
                       "namespace a {\n  extern const Loss kFooLoss = {};\n}", "const Loss kFooLoss = {};",
                       "extern Loss const kFooLoss = {};", "extern const tandem::Loss kFooLoss = {};",
                       "constexpr Loss kFooLoss{};", "const auto kFooLoss = Loss{};",
                       "inline const Loss kFooLoss = {};", "using L = Loss;\nextern const L kFooLoss = {};",
                       "extern const Loss kBarLoss = {}, kFooLoss = {};",
                       "extern const Loss kBarLoss = {}; extern const Loss kFooLoss = {};",
                       "/* old */ extern const Loss kFooLoss = {};",
                       "extern const Loss FooLoss = {};", "extern const Loss kFoo = {};",
                       "extern const Loss kfooLoss = {};", "extern const Loss k3Loss = {};",
                       "extern const Loss kFoo_BarLoss = {};", "extern const Loss kLoss = {};",
                       "#define LOSS(name) \\\n  extern const Loss k##name##Loss = {}\nLOSS(Foo);",
                       "#define LOSS(name, terms) extern const \\\n  Loss name = {terms}\nLOSS(kFooLoss, Foo);"):
            code, text, _ = configure({"a.cc": GOOD, "b.cc": GOOD.replace("Good", "Other") + missed + "\n"})
            self.assertNotEqual(code, 0, missed)
            self.assertIn("losses/b.cc has \"", text, missed)
            self.assertIn("which looks like a definition and would be missed. The table losses has", text, missed)
            self.assertIn('begins with "extern const Loss kNameLoss ="', text)

    def test_a_source_without_a_definition_is_refused(self):
        code, text, _ = configure({"a.cc": GOOD, "b.cc": '#include "made.h"\nDEFINE_LOSS(Foo);\n'})
        self.assertNotEqual(code, 0)
        self.assertIn("losses/b.cc defines nothing. The table losses has", text)

    def test_a_definition_in_another_kind_of_file_is_refused(self):
        for name in ("b.h", "b.cpp", "deeper/b.cc"):
            code, text, _ = configure({"a.cc": GOOD, name: GOOD.replace("Good", "Foo")})
            self.assertNotEqual(code, 0, name)
            self.assertIn(f"losses/{name} has \"extern const Loss kFooLoss\", which looks like a definition", text)

    def test_two_tables_of_one_folder_share_its_definitions_by_suffix(self):
        sources = {"a.cc": GOOD, "b.cc": "extern const Loss kGoodTerm = {};\n"}
        code, text, tables = configure(sources, "ALSO Term")
        self.assertEqual(code, 0, text)
        self.assertEqual((tables["losses"], tables["terms"]), (row("kGoodLoss", "good"), row("kGoodTerm", "good")))
        code, text, _ = configure(sources | {"c.cc": GOOD.replace("Good", "C") + "extern const Loss kCReward = {};\n"},
                                  "ALSO Term")
        self.assertNotEqual(code, 0)
        self.assertIn('has "extern const Loss kCReward", which looks like a definition', text)
        self.assertIn('"extern const Loss kNameLoss or kNameTerm ="', text)


if __name__ == "__main__":
    unittest.main()
