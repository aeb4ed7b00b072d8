"""gpu_check.sh over checks that pass, fail, hang, crash and skip."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]

PROGRAMS = {
    "pass": "echo fine",
    "fail": "echo 'row 3 differs'; exit 3",
    "skip": "echo 'no GPU: the driver is missing'; exit 77",
    "crash": "kill -SEGV $$",
    "hang": "sleep 60",
    "deaf": "trap '' TERM; while :; do read -t 1 <> <(:) || true; done",
    "torchless": "echo 'x: error while loading shared libraries: libtorch_cpu.so: no such file'; exit 127",
    "half": "echo 'x_test.cc:12: FAILED:'; echo 'skipped: one GPU'; exit 77",
    "trainerless": "echo 'skipped: tandem-trainer does not start: libc10.so: no such file'; exit 77",
    "libs": "echo figure libs ${LD_LIBRARY_PATH:-none} :; echo figure cuda ${TANDEM_CUDA_LIBS:-none} :",
    "model": "echo figure model $TANDEM_GPU_CHECK_MODEL :",
    "partly": "echo figure small 2 GB/s; echo not_run large it needs 80 GiB, 40 are free",
    "bench": "echo figure speed 650.5 GB/s; echo figure slow 0.9 s; echo run >>../runs",
}


def verdicts_of(done):
    """{name: (verdict, rest of the line)}"""
    rows = re.findall(r"^(.{44}) (met|missed|failed|not run|no target) +(.*)$", done.stdout, re.M)
    return {name.strip(): (verdict, rest) for name, verdict, rest in rows}


def make_python(folder, torch=None):
    """A folder with a python3 that has no packages but, perhaps, a torch of that version."""
    site, bin_folder = folder / "site", folder / "python"
    if torch:
        (site / "torch/lib").mkdir(parents=True)
        (site / "torch/__init__.py").touch()
        (site / "torch/version.py").write_text(f"__version__ = '{torch}'\n")
        (site / "nvidia/nccl/lib").mkdir(parents=True)
    bin_folder.mkdir()
    (bin_folder / "python3").write_text(
        f"#!/bin/sh\nPYTHONPATH={site} exec {sys.executable} -S \"$@\"\n")
    (bin_folder / "python3").chmod(0o755)
    return bin_folder


def make_bundle(bundle, table, built=""):
    (bundle / "bin").mkdir(parents=True)
    for name, body in PROGRAMS.items():
        path = bundle / "bin" / name
        path.write_text(f"#!/usr/bin/env bash\ncd \"$(dirname \"$0\")\"\n{body}\n")
        path.chmod(0o755)
    (bundle / "bin/libs.py").write_text("import os\nprint('figure libs',"
                                        " os.environ.get('LD_LIBRARY_PATH') or 'none', ':')\n")
    (bundle / "gpu_checks.txt").write_text("# a comment\n\n" + "\n".join(table) + "\n")
    (bundle / "built.txt").write_text(built)


def run_check(bundle, *arguments, python=None, **environment):
    path = f"{python}:{os.environ['PATH']}" if python else os.environ["PATH"]
    return subprocess.run([ROOT / "deploy" / "gpu_check.sh", "--bundle", bundle, *arguments],
                          capture_output=True, text=True, timeout=60, cwd=bundle.parent,
                          env={"PATH": path, **environment})


def check(table, *arguments):
    """(exit code, {name: (verdict, rest of the line)}, everything printed, runs of bench)"""
    with tempfile.TemporaryDirectory() as folder:
        bundle = pathlib.Path(folder) / "bundle"
        make_bundle(bundle, table)
        done = run_check(bundle, *arguments)
        runs = bundle / "runs"
        count = len(runs.read_text().splitlines()) if runs.exists() else 0
    return done.returncode, verdicts_of(done), done.stdout + done.stderr, count


class GpuCheck(unittest.TestCase):
    def test_what_passes_and_meets_its_target_is_met(self):
        code, verdicts, _, runs = check(["works | 9 | bin/pass | - | -",
                                         "fast | 9 | bin/bench | speed | >= 600",
                                         "shown | 9 | bin/bench | slow | -"])
        self.assertEqual(code, 0)
        self.assertEqual([verdict for verdict, _ in verdicts.values()], ["met", "met", "no target"])
        self.assertIn("0.9 s", verdicts["shown"][1])
        self.assertIn("650.5 GB/s", verdicts["fast"][1])
        self.assertIn(">= 600", verdicts["fast"][1])
        self.assertEqual(runs, 1)  # rows of one command share its run

    def test_a_figure_beside_its_target_is_missed(self):
        for row in ("speed | >= 651", "slow | <= 0.6"):
            code, verdicts, _, _ = check([f"bench | 9 | bin/bench | {row}"])
            self.assertEqual((code, verdicts["bench"][0]), (1, "missed"))

    def test_failures_say_how(self):
        code, verdicts, _, _ = check(["wrong | 9 | bin/fail | - | -",
                                      "crashes | 9 | bin/crash | - | -",
                                      "hangs | 1 | bin/hang | - | -",
                                      "silent | 9 | bin/pass | speed | -",
                                      "works | 9 | bin/pass | - | -"])
        self.assertEqual(code, 1)
        self.assertEqual(verdicts["wrong"][0], "failed")
        self.assertIn("exit code 3: row 3 differs", verdicts["wrong"][1])
        self.assertIn("ended by signal 11", verdicts["crashes"][1])
        self.assertIn("took longer than 1 s", verdicts["hangs"][1])
        self.assertIn("printed no figure speed", verdicts["silent"][1])
        self.assertEqual(verdicts["works"][0], "met")

    def test_a_check_that_has_to_run_and_did_not_is_no_success(self):
        rows = ["works | 9 | bin/pass | - | -", "! main thing | 9 | bin/skip | - | -"]
        code, verdicts, printed, _ = check(rows)
        self.assertEqual((code, verdicts["main thing"][0]), (2, "not run"))
        self.assertIn("required checks that were not run: main thing", printed)
        self.assertEqual(check(["works | 9 | bin/pass | - | -", "thing | 9 | bin/skip | - | -"])[0], 0)
        self.assertEqual(check(["! works | 9 | bin/pass | - | -"])[0], 0)
        self.assertEqual(check(rows + ["wrong | 9 | bin/fail | - | -"])[0], 1)

    def test_a_speed_with_a_target_that_was_not_measured_is_no_success(self):
        rows = ["works | 9 | bin/pass | - | -", "large | 9 | bin/partly | large | >= 3"]
        code, verdicts, printed, _ = check(rows)
        self.assertEqual((code, verdicts["large"][0]), (2, "not run"))
        self.assertIn("required checks that were not run: large", printed)
        # Without a target it is only not shown.
        self.assertEqual(check([rows[0], "large | 9 | bin/partly | large | -"])[0], 0)

    def test_what_has_no_target_is_never_met(self):
        code, verdicts, printed, _ = check(["shown | 9 | bin/bench | slow | -"])
        self.assertEqual((code, verdicts["shown"][0]), (0, "no target"))
        self.assertIn("0 met, 1 without a target, 0 missed or failed, 0 not run", printed)

    def test_a_program_that_does_not_listen_is_ended(self):
        code, verdicts, _, _ = check(["deaf | 1 | bin/deaf | - | -"])
        self.assertEqual((code, verdicts["deaf"][0]), (1, "failed"))
        self.assertIn("took longer than 1 s", verdicts["deaf"][1])

    def test_what_did_not_run_is_listed_with_its_reason_and_is_no_success(self):
        code, verdicts, out, _ = check(["skips | 9 | bin/skip | - | -",
                                        "skips, too | 9 | bin/skip | figure | -",
                                        "missing | 9 | bin/nothing | - | -",
                                        "script | 9 | python3 bin/none.py | x | -"])
        self.assertEqual(code, 1)
        self.assertEqual({verdict for verdict, _ in verdicts.values()}, {"not run"})
        self.assertIn("  no GPU: the driver is missing\n    skips\n    skips, too\n", out)
        self.assertIn("  bin/nothing is not in the bundle\n    missing\n", out)
        self.assertIn("0 met, 0 without a target, 0 missed or failed, 4 not run", out)

    def test_a_program_that_skips_itself_after_a_failure_has_failed(self):
        code, verdicts, _, _ = check(["half | 9 | bin/half | - | -", "works | 9 | bin/pass | - | -"])
        self.assertEqual((code, verdicts["half"][0]), (1, "failed"))
        self.assertIn("exit code 77", verdicts["half"][1])

    def test_a_figure_that_was_not_measured_is_not_run_for_the_programs_reason(self):
        code, verdicts, out, _ = check(["small | 9 | bin/partly | small | -",
                                        "large | 9 | bin/partly | large | >= 3",
                                        "other | 9 | bin/partly | larger | -"])
        self.assertEqual(code, 1)
        self.assertEqual([verdict for verdict, _ in verdicts.values()], ["no target", "not run", "failed"])
        self.assertIn("  it needs 80 GiB, 40 are free\n    large\n", out)
        self.assertIn("printed no figure larger", verdicts["other"][1])

    def test_what_does_not_fit_the_budget_is_not_run(self):
        code, verdicts, out, _ = check(["hangs | 9 | bin/hang | - | -",
                                        "later | 9 | bin/pass | - | -"], "--budget", "3")
        self.assertEqual(code, 1)
        self.assertEqual(verdicts["hangs"][0], "failed")
        self.assertEqual(verdicts["later"][0], "not run")
        self.assertIn("  the budget of 3 s was spent\n    later\n", out)

    def test_checks_can_be_chosen(self):
        code, verdicts, _, _ = check(["one of two | 9 | bin/pass | - | -",
                                      "other | 9 | bin/fail | - | -"], "--only", "of two")
        self.assertEqual((code, list(verdicts)), (0, ["one of two"]))
        code, _, out, _ = check(["one | 9 | bin/pass | - | -"], "--only", "nowhere")
        self.assertEqual(code, 64)
        self.assertIn("no check's name contains", out)

    def test_a_wrong_row_is_refused(self):
        code, _, out, _ = check(["one | 9 | bin/pass | - | about 5"])
        self.assertEqual(code, 64)
        self.assertIn("a row is wrong", out)

    def test_the_real_table_is_well_formed(self):
        rows = [line.split("|") for line in (ROOT / "deploy/gpu_checks.txt").read_text().splitlines()
                if line and not line.startswith("#")]
        self.assertGreater(len(rows), 10)
        self.assertEqual({len(row) for row in rows}, {5})
        names = [row[0].strip() for row in rows]
        self.assertEqual(len(names), len(set(names)))
        self.assertLessEqual(max(map(len, names)), 43)

    def test_all_of_the_real_table_fits_the_budget(self):
        rows = [line.split("|") for line in (ROOT / "deploy/gpu_checks.txt").read_text().splitlines()
                if line and not line.startswith("#")]
        limits = {}
        for row in rows:
            limits.setdefault(row[2].strip(), int(row[1]))
        self.assertLessEqual(sum(limits.values()), 600)


class Machine(unittest.TestCase):
    """What the machine has to have, and what is said where it has not."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.bundle = self.folder / "bundle"

    def test_programs_that_need_torch_are_not_run_where_there_is_none(self):
        make_bundle(self.bundle, ["linked | 9 | bin/torchless | - | -",
                                  "starts others | 9 | bin/trainerless | - | -",
                                  "works | 9 | bin/pass | - | -"], "torch 2.11\n")
        done = run_check(self.bundle, python=make_python(self.folder))
        self.assertEqual([verdict for verdict, _ in verdicts_of(done).values()],
                         ["not run", "not run", "met"])
        self.assertRegex(done.stdout, "  python3 here has no torch .x: error while loading.*\n    linked\n")
        self.assertRegex(done.stdout, "  python3 here has no torch .tandem-trainer does.*\n    starts others\n")
        self.assertIn("LibTorch: none, python3 here has no torch", done.stdout)

    def test_a_torch_of_another_version_is_not_used(self):
        make_bundle(self.bundle, ["linked | 9 | bin/torchless | - | -",
                                  "libs | 9 | bin/libs | libs | -"], "torch 2.11\n")
        done = run_check(self.bundle, python=make_python(self.folder, "2.1.0+cu121"))
        self.assertIn("  python3 here has torch 2.1.0+cu121, and the bundle needs 2.11 (", done.stdout)
        self.assertEqual(verdicts_of(done)["libs"][1].split(), ["none", ":", "-"])

    def test_the_machines_torch_is_on_the_path_of_programs_alone(self):
        make_bundle(self.bundle, ["program | 9 | bin/libs | libs | -",
                                  "cuda | 9 | bin/libs | cuda | -",
                                  "script | 9 | python3 bin/libs.py | libs | -"], "torch 2.11\n")
        done = run_check(self.bundle, python=make_python(self.folder, "2.11.0+cu130"),
                         LD_LIBRARY_PATH="/of/the/user")
        site = self.folder / "site"
        rows = verdicts_of(done)
        self.assertEqual(rows["program"][1].split()[0],
                         f"{site}/torch/lib:{site}/nvidia/nccl/lib:/of/the/user")
        self.assertEqual(rows["cuda"][1].split()[0], f"{site}/nvidia/nccl/lib")
        self.assertEqual(rows["script"][1].split()[0], "/of/the/user")
        self.assertIn("LibTorch: 2.11.0+cu130 of python3", done.stdout)

    def test_a_model_is_found_from_where_the_user_is(self):
        make_bundle(self.bundle, ["model | 9 | bin/model | model | -"])
        done = run_check(self.bundle, TANDEM_GPU_CHECK_MODEL="my/model")
        self.assertEqual(done.returncode, 64)
        self.assertIn("TANDEM_GPU_CHECK_MODEL=my/model is not an HF checkpoint directory", done.stderr)
        (self.folder / "my/model").mkdir(parents=True)
        (self.folder / "my/model/config.json").touch()
        done = run_check(self.bundle, TANDEM_GPU_CHECK_MODEL="my/model")
        self.assertEqual(verdicts_of(done)["model"][1].split()[0], f"{self.folder}/my/model")

    def test_the_bundles_own_torch_goes_first(self):
        make_bundle(self.bundle, ["program | 9 | bin/libs | libs | -"], "torch 2.11\n")
        (self.bundle / "torch").mkdir()
        done = run_check(self.bundle, python=make_python(self.folder, "2.1.0"))
        self.assertEqual(verdicts_of(done)["program"][1].split()[0], f"{self.bundle}/torch")
        self.assertIn("LibTorch: 2.11, the bundle's own", done.stdout)

    def test_the_newer_libstdcxx_is_used(self):
        (user,) = list(pathlib.Path("/usr/lib").glob("**/libyaml-cpp.so.*.*.*"))[:1]
        for symbols, path in (("GLIBCXX_3.4.9", "none"), ("GLIBCXX_3.4.999", "lib/compiler")):
            bundle = self.folder / symbols
            make_bundle(bundle, ["libs | 9 | bin/libs | libs | -"])
            (bundle / "lib/compiler").mkdir(parents=True)
            (bundle / "lib/libyaml.so").write_bytes(user.read_bytes())
            (bundle / "lib/compiler/libstdc++.so.6").write_bytes(b"\0" + symbols.encode() + b"\0")
            shown = verdicts_of(run_check(bundle, python=self.python()))["libs"][1].split()[0]
            self.assertEqual(shown, path if path == "none" else f"{bundle}/{path}")

    def python(self):
        return self.folder / "python" if (self.folder / "python").exists() else make_python(self.folder)

    def test_an_older_c_library_or_another_processor_is_told_and_nothing_is_run(self):
        for built, why in (("glibc 99.1\n", "and the bundle needs 99.1 or newer"),
                           ("machine z80\n", "the bundle was built for z80, and this machine is")):
            bundle = self.folder / built.split()[0]
            make_bundle(bundle, ["one | 9 | bin/bench | - | -",
                                 "script | 9 | python3 bin/libs.py | - | -"], built)
            done = run_check(bundle)
            self.assertEqual([verdict for verdict, _ in verdicts_of(done).values()], ["not run", "met"])
            self.assertRegex(done.stdout, f"  .*{why}.*\n    one\n")
            self.assertFalse((bundle / "runs").exists())

    def test_a_packed_bundle_is_unpacked_for_the_run(self):
        make_bundle(self.bundle, ["works | 9 | bin/pass | - | -", "wrong | 9 | bin/fail | - | -"])
        packed = self.folder / "gpu_check.tar.xz"
        subprocess.run(["tar", "-C", self.folder, "-cJf", packed, "bundle"], check=True)
        scratch = self.folder / "scratch"
        scratch.mkdir()
        done = run_check(packed, TMPDIR=str(scratch))
        self.assertEqual([verdict for verdict, _ in verdicts_of(done).values()], ["met", "failed"])
        self.assertEqual((done.returncode, list(scratch.iterdir())), (1, []))
        packed.write_bytes(b"not an archive")
        done = run_check(packed, TMPDIR=str(scratch))
        self.assertEqual((done.returncode, list(scratch.iterdir())), (64, []))
        self.assertIn("cannot be unpacked", done.stderr)


class Bundle(unittest.TestCase):
    SCRIPT = ROOT / "deploy/scripts/gpu_check_bundle.sh"

    def test_programs_come_with_their_libraries_but_not_the_machines_own(self):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "out"
            model = pathlib.Path(folder) / "model"
            model.mkdir()
            (model / "config.json").write_text("{}")
            subprocess.run([self.SCRIPT, out, "--model", model, "--pack", "/usr/bin/env", "/bin/ls"],
                           check=True, capture_output=True)
            self.assertTrue((out / "bin/env").exists() and (out / "bin/ls").exists())
            self.assertTrue((out / "gpu_check.sh").exists() and (out / "gpu_checks.txt").exists())
            self.assertTrue((out / "model/config.json").exists())
            self.assertTrue((out.parent / "out.tar.xz").exists())
            libraries = {path.name for path in (out / "lib").iterdir()}
            listed = subprocess.run(["ldd", "/bin/ls"], capture_output=True, text=True).stdout
            needed = set(re.findall(r"(\S+) => /", listed))
            self.assertIn("libc.so.6", needed)
            self.assertEqual(libraries, {name for name in needed if name != "libc.so.6"})
            built = dict(line.split() for line in (out / "built.txt").read_text().splitlines())
            self.assertEqual(set(built), {"commit", "machine", "glibc"})
            self.assertRegex(built["glibc"], r"^2\.\d+$")
            self.assertEqual(built["machine"], os.uname().machine)

    def test_what_is_missing_is_told(self):
        with tempfile.TemporaryDirectory() as folder:
            for arguments, code, why in (
                    ((f"{folder}/out",), 64, "a folder and programs are needed"),
                    ((f"{folder}/out", "--model", folder, "/bin/ls"), 64, "an HF checkpoint directory"),
                    ((f"{folder}/out", "--with-torch", "/bin/ls"), 1, "uses LibTorch"),
                    ((), 1, "is not a build")):
                done = subprocess.run([self.SCRIPT, *arguments], capture_output=True, text=True,
                                      env={**os.environ, "TANDEM_BUILD_DIR": folder})
                self.assertEqual(done.returncode, code)
                self.assertIn(why, done.stderr)


class Counterparts(unittest.TestCase):
    def run_script(self, *arguments):
        # Without the packages of this machine's Python.
        return subprocess.run([sys.executable, "-I", "-S", ROOT / "tests/gpu/torch_counterparts.py",
                               *arguments], capture_output=True, text=True)

    def test_a_python_without_torch_is_told_and_skipped(self):
        for what in ("matmul", "sdpa", "decode", "train"):
            done = self.run_script(what)
            self.assertEqual(done.returncode, 77)
            self.assertIn("this machine's Python has no torch", done.stdout.splitlines()[-1])

    def test_an_unknown_model_is_refused(self):
        done = self.run_script("decode", "9b")
        self.assertEqual(done.returncode, 2)
        self.assertIn("there is no model 9b", done.stderr)


if __name__ == "__main__":
    unittest.main()
