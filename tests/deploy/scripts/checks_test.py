"""The check_*.py scripts on small trees made for the purpose; shell scripts parse."""
import importlib
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
SCRIPTS = ROOT / "deploy" / "scripts"


def run(script, files, *options):
    """(exit code, output) of `script` on a tree with `files`: {path: text}."""
    with tempfile.TemporaryDirectory() as root:
        for path, text in files.items():
            file = pathlib.Path(root, path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        done = subprocess.run([sys.executable, str(SCRIPTS / script), *options, root],
                              capture_output=True, text=True, check=False)
        return done.returncode, done.stdout


def script(name):
    """The script NAME.py as a module."""
    if str(SCRIPTS) not in sys.path:
        sys.path.insert(0, str(SCRIPTS))
    return importlib.import_module(name)


class NothingTest(unittest.TestCase):
    def test_a_check_that_finds_nothing_to_look_at_fails(self):
        for name in ("check_layers.py", "check_shape.py", "check_sizes.py", "check_docs.py"):
            code, text = run(name, {"elsewhere/a.cc": "\n"})
            self.assertEqual(code, 1, name + text)
            self.assertIn("nothing was checked", text)


class LayersTest(unittest.TestCase):
    def refused(self, path, include):
        code, text = run("check_layers.py", {path: f"// first line\n#include {include}\n"})
        self.assertEqual(code, 1, text)
        self.assertIn(f"{path}:2: #include", text)
        return text

    def allowed(self, path, include):
        code, text = run("check_layers.py", {path: f"#include {include}\n"})
        self.assertEqual(code, 0, text)

    def test_processes_never_include_each_other(self):
        for one in ("controller", "trainer_worker", "rollout_worker"):
            for other in ("controller", "trainer_worker", "rollout_worker"):
                if one != other:
                    self.refused(f"{one}/a.cc", f'"{other}/b.h"')

    def test_arrows_point_down(self):
        self.refused("common/base/a.h", '"common/types/sample.h"')
        self.refused("common/ops/cpu/a.cc", '"common/model/model.h"')
        self.refused("common/text/a.cc", '"controller/data/chat_codec.h"')
        self.allowed("common/types/a.h", '"common/base/check.h"')

    def test_rooms_of_the_workers_stand_above_each_other(self):
        self.refused("trainer_worker/shard/a.h", '"trainer_worker/layers/layer_source.h"')
        self.refused("common/config/a.cc", '"common/net/channel.h"')
        self.allowed("trainer_worker/layers/a.h", '"trainer_worker/shard/weight_rows.h"')
        self.allowed("rollout_worker/weights/a.h", '"rollout_worker/generation/scheduler.h"')

    def test_rooms_of_the_controller_stand_above_each_other(self):
        self.refused("controller/store/a.h", '"controller/run/train_loop.h"')
        self.refused("controller/step/a.cc", '"controller/generation/overlapped_rounds.h"')
        self.refused("controller/cli/a.cc", '"controller/run/train_loop.h"')
        self.allowed("controller/run/a.cc", '"controller/step/scoring.h"')
        self.allowed("controller/partial_rollout/a.cc", '"controller/partial_rollout/buffer/rollout_buffer.h"')
        self.refused("controller/partial_rollout/buffer/a.cc", '"controller/partial_rollout/partial_options.h"')

    def test_folders_of_a_room_stand_above_each_other(self):
        self.refused("common/text/unicode/a.cc", '"common/text/tokenizer.h"')
        self.refused("common/text/jinja/value/a.h", '"common/text/jinja/lexer.h"')
        self.refused("common/ops/cpu/kernels/a.cc", '"common/ops/cpu/forward_ops.h"')
        self.refused("common/formats/gguf/a.cc", '"common/formats/peft/peft_config.h"')
        self.allowed("common/text/jinja/a.cc", '"common/text/jinja/value/value.h"')
        self.allowed("common/ops/cpu/a.cc", '"common/ops/cpu/kernels/kernel_set.h"')
        self.allowed("common/ops/cpu/kernels/a.cc", '"common/ops/cpu/kernels/b.h"')

    def test_a_new_folder_of_a_room_must_be_placed(self):
        code, text = run("check_layers.py", {"common/text/novel/a.h": "\n"})
        self.assertEqual(code, 1)
        self.assertIn("common/text/novel/a.h: this folder is in no layer", text)

    def test_no_chain_of_folders_leads_back_to_where_it_began(self):
        layers = script("check_layers")
        for table in (layers.ALLOWED, layers.INSIDE):
            left = {name: set(below) for name, below in table.items()}
            while ready := [name for name, below in left.items() if not below & left.keys()]:
                for name in ready:
                    del left[name]
            self.assertEqual(left, {})

    def test_protobuf_stays_at_the_edges(self):
        for include in ('"tandem/v1/types.pb.h"', "<grpcpp/grpcpp.h>"):
            self.refused("controller/run/train_loop.cc", include)
            self.refused("common/model/a.h", include)
            self.allowed("controller/api/tandem_service.cc", include)
            self.allowed("rollout_worker/grpc_rollout_client.h", include)
            self.allowed("common/net/worker_codec.cc", include)

    def test_sources_that_read_the_configuration_include_its_messages(self):
        self.allowed("controller/assembly/run_plan.cc", '"tandem/v1/config.pb.h"')

    def test_a_header_with_a_costly_include_is_for_sources_alone(self):
        for include in ("<nlohmann/json.hpp>", "<yaml-cpp/yaml.h>", '"tandem/v1/config.pb.h"'):
            files = {"common/config/a.h": f"#include {include}\n", "common/config/a.cc": '#include "common/config/a.h"\n'}
            self.assertEqual(run("check_layers.py", files)[0], 0, include)
            code, text = run("check_layers.py",
                             {**files, "common/config/b.h": '#include "common/config/a.h"\n'})
            self.assertEqual(code, 1, text)
            self.assertIn('common/config/b.h: #include "common/config/a.h", which includes', text)
        self.allowed("common/config/a.h", "<nlohmann/json_fwd.hpp>")

    def test_libtorch_stays_in_the_losses(self):
        self.refused("controller/run/a.cc", "<torch/torch.h>")
        self.refused("common/ops/a.h", "<ATen/core/Tensor.h>")
        self.refused("trainer_worker/a.h", "<ATen/core/Tensor.h>")
        self.allowed("trainer_worker/losses/a.h", "<ATen/core/Tensor.h>")

    def test_device_folders_are_seen_only_by_their_factory(self):
        self.refused("common/ops/cpu/a.cc", '"common/ops/cuda/linear/linear.h"')
        self.refused("trainer_worker/a.cc", '"common/comm/cuda/device_group.h"')
        self.refused("common/ops/ops.cc", '"common/ops/cuda/linear/linear.h"')
        self.allowed("common/backend/cuda_backend.cc", '"common/ops/cuda/linear/linear.h"')
        self.allowed("common/ops/cuda/a.cc", '"common/ops/cuda/linear/linear.h"')

    def test_nothing_includes_tests_and_new_folders_must_be_placed(self):
        self.refused("common/base/a.cc", '"tests/support/golden.h"')
        code, text = run("check_layers.py", {"common/novel/a.h": "\n"})
        self.assertEqual(code, 1)
        self.assertIn("in no layer", text)

    def test_the_picture_of_rooms_in_the_documentation_is_that_of_the_table(self):
        page = ROOT / "docs" / "explanation" / "architecture.md"
        shown = page.read_text()
        name = str(page.relative_to(ROOT))
        source = {"common/base/a.h": "\n"}
        self.assertEqual(run("check_layers.py", {**source, name: shown})[0], 0)
        code, text = run("check_layers.py", {**source, name: shown.replace("| `common/types` | 1 |", "| `common/types` | 9 |")})
        self.assertEqual(code, 1)
        self.assertIn(f"{name}: the picture of rooms is not that of check_layers.py", text)

    def test_arrows_are_drawn_of_any_tree_and_name_folders_that_include_each_other(self):
        code, text = run("check_layers.py", {"trainer_worker/a.h": '#include "trainer_worker/old/b.h"\n',
                                             "trainer_worker/old/b.h": '#include "trainer_worker/a.h"\n',
                                             "common/x/c.cc": '#include "trainer_worker/a.h"\n#include <string>\n'}, "--arrows")
        self.assertEqual(code, 0)
        self.assertEqual(text.splitlines()[2:], ["| common | x | 1 | trainer_worker: its own 1 |",
                                                 "| trainer_worker | | 1 | trainer_worker: old ⇄ 1 |",
                                                 "| trainer_worker | old | 1 | trainer_worker: its own ⇄ 1 |"])

    def test_targets_outside_tests_do_not_link_the_emulated_gpu(self):
        for line in ("target_link_libraries(x tandem::emulated_backend)", "add_library(x ../tests/emulator/fibers.cc)",
                     'target_compile_definitions(x PRIVATE TANDEM_KERNEL_LANGUAGE="a.h")'):
            code, text = run("check_layers.py", {"common/backend/CMakeLists.txt": line + "\n"})
            self.assertEqual(code, 1, line)
            self.assertIn("only tests link the emulated GPU", text)


class SizesTest(unittest.TestCase):
    def test_600_lines_pass_and_601_do_not(self):
        self.assertEqual(run("check_sizes.py", {"common/a.cc": "x\n" * 600})[0], 0)
        code, text = run("check_sizes.py", {"tests/a.cc": "x\n" * 601})
        self.assertEqual(code, 1)
        self.assertIn("tests/a.cc: 601 lines", text)

    def test_a_long_file_may_say_in_its_first_comment_why_it_is_one(self):
        reason = "// The table of all opcodes, one file\n// because each row refers to its neighbours.\n"
        self.assertEqual(run("check_sizes.py", {"common/a.cc": reason + "x\n" * 700})[0], 0)
        self.assertEqual(run("check_sizes.py", {"common/a.cc": "x\n" * 700 + reason})[0], 1)


class ShapeTest(unittest.TestCase):
    def refused(self, files, what):
        code, text = run("check_shape.py", files)
        self.assertEqual(code, 1, text)
        self.assertIn(what, text)

    def allowed(self, files):
        code, text = run("check_shape.py", files)
        self.assertEqual(code, 0, text)
        return text

    @staticmethod
    def folder(name, files):
        return {f"{name}/f{number}.cc": "\n" for number in range(files)}

    @staticmethod
    def wide(name, functions):
        lines = "".join(f"  void F{number}(int a);\n" for number in range(functions))
        return f"class {name} {{\n public:\n{lines} private:\n  void Hidden();\n}};\n"

    def test_a_folder_has_24_files_at_most_or_its_number_of_then(self):
        self.allowed(self.folder("common/base", 24))
        self.refused(self.folder("common/base", 25), "common/base: 25 files, at most 24")
        most = script("check_shape").FILES["controller/step"]
        self.allowed(self.folder("controller/step", most))
        self.refused(self.folder("controller/step", most + 1), f"controller/step: {most + 1} files, at most {most}")

    def test_a_type_has_one_definition(self):
        text = "namespace tandem {\nstruct Row {\n  int a;\n};\n}  // namespace tandem\n"
        hidden = "namespace tandem {\nnamespace {\nstruct Row {\n};\n}  // namespace\n}  // namespace tandem\n"
        other = text.replace("tandem", "tandem::other")
        self.allowed({"common/a.h": text, "common/b.cc": hidden, "common/c.cc": hidden, "common/d.h": other,
                      "common/e.h": "namespace tandem {\nstruct Row;\n}  // namespace tandem\n"})
        self.refused({"common/a.h": text, "controller/b.h": text},
                     "tandem::Row is defined in common/a.h and in controller/b.h")

    def test_a_class_has_15_public_functions_at_most_or_its_number_of_then(self):
        self.allowed({"common/a.h": self.wide("Some", 15)})
        self.refused({"common/a.h": self.wide("Some", 16)}, "common/a.h: Some: 16 public functions, at most 15")
        name, most = next((name, most) for name, most in script("check_shape").FUNCTIONS.items() if most > 16)
        path, wide = name.split(": ")
        self.assertNotIn("lowered", self.allowed({path: self.wide(wide, most)}))
        self.refused({path: self.wide(wide, most + 1)}, f"{name}: {most + 1} public functions, at most {most}")
        self.assertIn(f"{name}: {most} may be lowered to {most - 1}", self.allowed({path: self.wide(wide, most - 1)}))

    def test_folders_do_not_include_each_other(self):
        files = {"common/a/a.h": "\n", "common/b/b.h": "\n", "common/a/a.cc": '#include "common/b/b.h"\n'}
        self.allowed(files)
        self.refused({**files, "common/b/b.cc": '#include "common/a/a.h"\n'}, "common/a and common/b include each other")

    def test_what_stands_for_an_exception_exists(self):
        shape = script("check_shape")
        for folder in shape.FILES:
            self.assertTrue((ROOT / folder).is_dir(), folder)
        for name in shape.FUNCTIONS:
            path, wide = name.split(": ")
            self.assertRegex((ROOT / path).read_text(), rf"\b(class|struct) {wide}\b")


class LocksTest(unittest.TestCase):
    """The part of check_shape.py that is about locks (lock_rules.py)."""

    def found(self, text, path="tests/fakes/a.h"):
        code, output = run("check_shape.py", {"common/b.h": "\n", path: text})
        lines = [line for line in output.splitlines() if line.startswith(path)]
        self.assertEqual(code, 1 if lines else 0, output)
        return lines

    def test_a_mutex_that_nothing_is_guarded_by_is_refused(self):
        line, = self.found("class A {\n  mutable Mutex rows_mutex_;\n  int rows_ = 0;  // guarded by rows_mutex_\n};\n")
        self.assertIn("nothing is ABSL_GUARDED_BY(rows_mutex_)", line)
        line, = self.found("void F() {\n  static Mutex mutex;\n}\n", "controller/a.cc")
        self.assertIn("of local variables, make the members of a struct", line)
        self.assertEqual(self.found("Mutex a_;\nint b_ ABSL_GUARDED_BY(b_);\n")[0].count("a_"), 1)

    def test_annotated_locks_pass(self):
        for text in ("Mutex m_;\nint n_ ABSL_GUARDED_BY(m_) = 0;\n", "Mutex m_;\nint* n_ ABSL_PT_GUARDED_BY(m_);\n",
                     "mutable Mutex m_ ABSL_ACQUIRED_BEFORE(o_);\nint n_ ABSL_GUARDED_BY(m_);\n",
                     "Mutex m;\nint& N() ABSL_EXCLUSIVE_LOCKS_REQUIRED(m);\n", "void F(Mutex& m);\n  const MutexLock lock(m);\n"):
            self.assertEqual(self.found(text), [], text)

    def test_mutexes_that_clang_does_not_check_are_refused(self):
        for name in ("std::mutex", "std::shared_mutex", "std::recursive_mutex", "std::condition_variable", "absl::Mutex"):
            line, = self.found(f"{name} a_;\n")
            self.assertIn(f"{name} has no annotations", line)
        self.assertEqual(self.found("// Not a std::mutex, by which\nint a;\n"), [])

    def test_what_stands_for_an_exception_exists(self):
        rules = script("lock_rules")
        for path in rules.FOREIGN:
            self.assertRegex((ROOT / path).read_text(), rules.FOREIGN_TYPE)
        for name in rules.WITHOUT_VARIABLE:
            path, mutex = name.split(": ")
            self.assertIn(mutex, rules.MUTEX.findall((ROOT / path).read_text()))


class FiguresTest(unittest.TestCase):
    CLASS = """class Big : public Base {
 public:
  explicit Big(int size) : size_(size) { if (size < 0) Fail(); }
  int size() const { return size_; }
  virtual void Run(std::function<void(int)> done) = 0;
  using Name = std::string;
 private:
  void Hidden();
  int size_ = 0;
};
"""

    def test_files_folders_classes_and_arrows_are_counted(self):
        code, text = run("code_figures.py", {
            "common/base/big.h": self.CLASS, "common/base/big.cc": '#include "common/base/big.h"\n',
            "common/types/a.h": '#include "common/base/big.h"\n',
            "common/base/b.cc": '// Why.\n#include "common/types/a.h"\n', "tests/t.cc": "\n"})
        self.assertEqual(code, 0)
        self.assertIn("code: 4 files, 14 lines", text)
        self.assertIn("  3 Big (common/base/big.h)", text)
        self.assertIn("headers: 2, 2 with one user", text)
        self.assertIn("common/base -> common/types 1, back 1", text)
        self.assertIn("arrows between rooms: 2, includes on them: 2", text)


class DocsTest(unittest.TestCase):
    FILES = {"controller/a.cc": "", "docs/b.md": "## Two words\n", "tests/CMakeLists.txt": "NAME a_test SRCS"}

    def test_what_exists_passes(self):
        text = "[b](docs/b.md) [c](docs/b.md#two-words) `controller/a.cc` `a.cc` `a_test` ./controller/a.cc controller/*.cc."
        code, output = run("check_docs.py", {**self.FILES, "README.md": text})
        self.assertEqual(code, 0, output)

    def test_what_does_not_exist_is_named_with_its_line(self):
        for text, what in (("[b](docs/c.md)", "link to docs/c.md"),
                           ("[b](docs/b.md#three)", "link to docs/b.md#three"), ("[b](#three)", "link to #three"), ("`c.cc`", "file c.cc"),
                           ("see controller/b.cc.", "path controller/b.cc"),
                           ("`b_test`", "test b_test")):
            code, output = run("check_docs.py", {**self.FILES, "README.md": f"\n{text}\n"})
            self.assertEqual(code, 1, text)
            self.assertIn(f"README.md:2: {what} does not exist", output)

    def test_what_code_names_and_does_not_exist_is_named_with_its_line(self):
        readme = "## Two words\n[b](docs/b.md)"
        for text, what in (('say "(README, \\"GPUs\\")"', 'heading "GPUs" of README.md'),
                           ("# docs/guides/gone.md says more", "docs/guides/gone.md")):
            code, output = run("check_docs.py", {**self.FILES, "README.md": readme, "deploy/a.sh": f"\n{text}\n"})
            self.assertEqual(code, 1, text)
            self.assertIn(f"deploy/a.sh:2: {what} does not exist", output)
        text = 'README, "Two words"; verl\'s docs/algo/other.md\n'
        code, output = run("check_docs.py", {**self.FILES, "README.md": readme, "deploy/a.sh": text})
        self.assertEqual(code, 0, output)

    def comments(self, text):
        return run("check_docs.py", {**self.FILES, "README.md": "[b](docs/b.md)", "common/ops/cpu/rows.h": "\n" + text})

    def test_files_that_comments_name_may_be_called_by_the_end_of_their_path(self):
        for text in ("// See rows.h.", "int a;  // cpu/rows.h: why", "/* as\n common/ops/cpu/rows.h says */", "// README.md",
                     "// controller/a.cc, b.md", "// tandem/v1/config.pb.h", "// verl's core_algos.py", "// <missing.h>",
                     'const char* a = "missing.h // missing.h";', "int b = 1'000; char c = '\"'; // rows.h",
                     'const char* a = R"(// missing.h)";', "int missing.h;"):
            code, output = self.comments(text)
            self.assertEqual(code, 0, text + output)

    def test_a_file_that_a_comment_names_and_that_is_none_is_named_with_its_line(self):
        for text, what in (("// missing.h", "2: file missing.h"), ("int a;  // See ops/rows.h.", "2: file ops/rows.h"),
                           ("/* a\n b.cu */", "3: file b.cu"), ("// ows.h", "2: file ows.h"),
                           ('const char* a = "x";  // of core_algo.py', "2: file core_algo.py")):
            code, output = self.comments(text)
            self.assertEqual(code, 1, text)
            self.assertIn(f"common/ops/cpu/rows.h:{what} does not exist", output)

    def test_a_page_that_nothing_links_to_is_named(self):
        code, output = run("check_docs.py", {**self.FILES, "README.md": "[b](docs/b.md)", "docs/d/c.md": "c"})
        self.assertEqual(code, 1)
        self.assertIn("docs/d/c.md: no chain of links leads here from README.md", output)
        self.assertEqual(run("check_docs.py", {**self.FILES, "README.md": "[b](docs/b.md)", "docs/adr/1.md": "c"})[0], 0)

    def test_the_table_of_threads_has_those_that_the_sources_name_and_no_others(self):
        page = "docs/explanation/architecture.md"
        files = {**self.FILES, "README.md": f"[b](docs/b.md) [c]({page})", "controller/run.cc":
                 'a = NamedThread("one", F);\nstd::make_unique<NamedThread>("two-b", F);\nB() : canceller_(\n    "three c", [this] { F(); }) {}\n'
                 'NamedThread watch("four", F);\nstd::make_unique<EngineThread>("five");\n'}
        names = ["one", "two-b", "three c", "four", "five"]

        def checked(names, after=""):
            rows = "".join(f"| `{name}` | all | nothing |\n" for name in names)
            return run("check_docs.py", {**files, page: f"### Threads\n\n| main | all | it |\n{rows}{after}"})
        code, output = checked(names, "\n### Files\n\n| `other` | all | it |\n")
        self.assertEqual(code, 0, output)
        for name in names:
            code, output = checked([other for other in names if other != name])
            self.assertEqual(code, 1, name)
            self.assertIn(f"controller/run.cc: thread {name} is not in the table of {page}", output)
        code, output = checked(names + ["six"])
        self.assertEqual(code, 1)
        self.assertIn(f"{page}: no source makes a thread six", output)


class ConfigKeysTest(unittest.TestCase):
    # Settled by the loader: one choice only, folded into other keys, or asked of config.h.
    SETTLED = {"actor.checkpoint.save_contents", "actor.clip_ratio",
               "actor.calculate_sum_pi_squared", "weight_sync.bucket_mb"}
    # Read by RolloutCorrectionOf and its rules in common/config.
    SETTLED |= {"algorithm.rollout_correction." + key for key in (
        "rollout_is", "rollout_is_batch_normalize",
        "rollout_is_threshold", "rollout_rs", "rollout_rs_threshold")}

    # Read by LoraOptionsOf and the rules of adapters there.
    SETTLED |= {"model.lora." + key for key in (
        "dropout", "exclude_modules", "target_modules", "target_parameters")}
    # Read by PartialCap there.
    SETTLED |= {"rollout.partial.max_tokens_per_round", "algorithm.partial_rollout_max_split"}
    # Folded into cluster.trainers and cluster.rollouts there.
    SETTLED |= {"trainer.nnodes", "rollout.nnodes"}

    def test_every_key_is_read_by_some_program(self):
        sources = []
        for top in ("common", "controller", "trainer_worker", "rollout_worker", "deploy"):
            for file in (ROOT / top).rglob("*"):
                if file.suffix in (".h", ".cc") and file.parent.name != "config":
                    sources.append(file.read_text(errors="replace"))
        called = set(re.findall(r"\b([a-z_0-9]+)\(", "\n".join(sources)))
        rows = (ROOT / "docs" / "reference" / "config.md").read_text().splitlines()
        keys = [row.split("`")[1] for row in rows if row.startswith("| `")]
        self.assertGreater(len(keys), 80)
        unread = {key for key in keys if key.rsplit(".", 1)[-1] not in called}
        self.assertEqual(unread, self.SETTLED)


class ConfigCommentsTest(unittest.TestCase):
    def test_every_value_says_its_unit_or_reason(self):
        for file in sorted((ROOT / "configs").rglob("*.yaml")):
            for number, line in enumerate(file.read_text().splitlines(), 1):
                if re.match(r" *[\w.]+: *[^ #]", line):
                    self.assertRegex(line, r" # \w", f"{file.name}:{number}")


class MutationsTest(unittest.TestCase):
    def test_every_mutation_finds_its_place_once(self):
        mutations = script("mutations")
        self.assertGreaterEqual(len(mutations.MUTATIONS), 10)
        for name, file, text, other, _ in mutations.MUTATIONS:
            with self.subTest(name):
                self.assertEqual((ROOT / file).read_text().count(text), 1)
                self.assertNotEqual(text, other)


class ClangTidyTest(unittest.TestCase):
    def test_headers_of_every_folder_of_the_programs_are_looked_at(self):
        looked_at = re.search(r"^HeaderFilterRegex: '(.*)'$", (ROOT / ".clang-tidy").read_text(), re.M)[1]
        for top in script("code_shape").TOPS:
            self.assertRegex(f"/clone/{top}/a.h", looked_at)
        self.assertNotRegex("/clone/tests/a.h", looked_at)


class ShellTest(unittest.TestCase):
    def test_every_script_parses(self):
        scripts = [*ROOT.glob("deploy/*.sh"), *ROOT.glob("deploy/*/*.sh"), *ROOT.glob("docs/examples/*.sh"),
                   ROOT / ".ci" / "run"]
        self.assertGreaterEqual(len(scripts), 8)
        for script in scripts:
            subprocess.run(["bash", "-n", str(script)], check=True)

    def test_a_missing_build_is_told_with_its_remedy(self):
        done = subprocess.run(
            ["env", "TANDEM_BUILD_DIR=/nonexistent", str(ROOT / "deploy/launch.sh"),
             str(ROOT / "configs/tiny.yaml")],
            capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("run deploy/setup.sh and deploy/build.sh first", done.stderr)


if __name__ == "__main__":
    unittest.main()
