"""The scripts around a package: its quickstart, package/run.sh, the digest of sources, run_steps.py."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "deploy/docker"))
import run_steps  # noqa: E402

FOLDERS = ("common", "controller", "deploy/cmake", "deploy/launcher", "parity", "proto",
           "rollout_worker", "trainer_worker")
# Programs that write what the real ones would.
PROGRAMS = {
    "tandem-launcher": 'if [ "$1" = --version ]; then echo made-up; else echo "launched in $PWD: $*"; fi',
    "tandemctl": 'for last; do :; done; mkdir -p "$last"\n'
                 'if [ "$1" = import ]; then cd "$last"; touch config.json model.safetensors tokenizer.json\n'
                 'else cd "$last"; touch train.jsonl val.jsonl; fi',
}


def write(path, text, mode=0o644):
    """A file and its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def make_package(folder, sources="0123"):
    """An unpacked package of made-up programs."""
    for name, body in PROGRAMS.items():
        write(folder / "bin" / name, f"#!/bin/sh\n{body}\n", 0o755)
    write(folder / "quickstart", (ROOT / "deploy/package/quickstart.sh").read_text(), 0o755)
    write(folder / "configs/quickstart.yaml",
          "trainer:\n  total_training_steps: 50  # all\n  expected_val_rise: 0.4\n")
    write(folder / "BUILD.txt", f"version 0.1.0\nsources {sources}\n")
    return folder


class InFolder(unittest.TestCase):
    """Tests with a folder of their own."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)


class Quickstart(InFolder):
    """quickstart of a package."""

    def run_it(self, *arguments, path=None):
        """In a folder with a space in its name."""
        package = make_package(self.folder / "a package")
        work = self.folder / "work here"
        work.mkdir(exist_ok=True)
        environment = dict(os.environ)
        if path:
            environment["PATH"] = path
        return subprocess.run(["/bin/bash", package / "quickstart", *arguments], cwd=work, text=True,
                              capture_output=True, check=False, env=environment)

    def test_a_model_that_is_brought_needs_no_python(self):
        write(self.folder / "some.gguf", "GGUF")
        done = self.run_it("--gguf", str(self.folder / "some.gguf"), "--steps", "3", "rollout.n=4")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"launched in {self.folder}/work here", done.stdout)
        self.assertIn("configs/quickstart.yaml --set trainer.total_training_steps=3 "
                      "--set trainer.expected_val_rise=0.024 rollout.n=4", done.stdout)
        for name in ("models/SmolLM2-135M-Instruct/model.safetensors", "data/addition/train.jsonl"):
            self.assertTrue((self.folder / "work here" / name).exists(), name)
        again = self.run_it()
        self.assertIn("--set trainer.max_seconds=300 --set trainer.min_training_steps=8", again.stdout)
        self.assertIn("model: models/SmolLM2-135M-Instruct is there", again.stdout)

    def test_a_model_directory_is_handed_on(self):
        write(self.folder / "hf/config.json", "{}")
        done = self.run_it("--model", str(self.folder / "hf"))
        self.assertIn(f"--set model.path={self.folder}/hf", done.stdout)
        self.assertEqual(self.run_it("--model", str(self.folder)).returncode, 64)

    def test_without_pip_it_says_what_to_install_or_to_bring(self):
        tools = self.folder / "tools"
        tools.mkdir()
        for tool in ("dirname", "readlink", "awk", "find", "head", "mkdir", "rm", "mv"):
            place = subprocess.run(["which", tool], capture_output=True, text=True, check=True)
            (tools / tool).symlink_to(place.stdout.strip())
        done = self.run_it(path=str(tools))
        self.assertEqual(done.returncode, 1)
        self.assertIn("apt-get install -y --no-install-recommends python3-pip", done.stderr)
        self.assertIn("--gguf FILE", done.stderr)

    def test_what_it_does_not_know_ends_with_64(self):
        for arguments in (["--frobnicate"], ["--steps", "few"], ["--steps"], ["--gguf", "/no/file"]):
            self.assertEqual(self.run_it(*arguments).returncode, 64, arguments)
        self.assertIn("--start-paused", self.run_it("--help").stdout)


class BesideACheckout(InFolder):
    """deploy/package/run.sh as deploy/quickstart.sh uses it."""

    def setUp(self):
        super().setUp()
        self.root = self.folder / "check out"
        for name in ("common.sh", "package/run.sh"):
            write(self.root / "deploy" / name, (ROOT / "deploy" / name).read_text())
        for folder in FOLDERS:
            write(self.root / folder / "CMakeLists.txt", f"# {folder}\n")
        write(self.root / "CMakeLists.txt", "# all\n")
        write(self.root / "common/b/a file.cc", "int a;\n")
        write(self.root / "deploy/quickstart.sh",
              'source "$(dirname "${BASH_SOURCE[0]}")/common.sh"\n'
              'source "$ROOT/deploy/package/run.sh"\n'
              'if [ "${1:-}" = digest ]; then digest_of_sources; exit; fi\n'
              'run_package_if_there "$@"\necho building\n', 0o755)

    def quickstart(self, *arguments, **environment):
        """Its output."""
        clean = {k: v for k, v in os.environ.items() if not k.startswith("TANDEM_")}
        done = subprocess.run(["bash", self.root / "deploy/quickstart.sh", *arguments], text=True,
                              capture_output=True, check=False, env={**clean, **environment})
        return done.stdout + done.stderr

    def cmake_digest(self):
        """As the build reckons it."""
        out = self.folder / "this_build.cc"
        subprocess.run(["cmake", f"-DSOURCE={self.root}", "-DVERSION=1", "-DFLAGS=f", "-DCUDA=off",
                        f"-DOUTPUT={out}", "-P", ROOT / "deploy/cmake/write_build_info.cmake"],
                       check=True, cwd=ROOT)
        text = out.read_text()
        return text.split('.sources = "')[1].split('"')[0], text.split('.commit = "')[1].split('"')[0]

    def test_script_and_build_reckon_one_digest_of_the_programs_sources(self):
        digest, commit = self.cmake_digest()
        self.assertEqual(commit, "unknown")  # no checkout of git
        self.assertEqual(self.quickstart("digest").strip(), digest)
        write(self.root / "tests/a_test.cc", "int t;\n")
        write(self.root / "docs/page.md", "words\n")
        write(self.root / "build/generated/x.cc", "int g;\n")
        self.assertEqual(self.cmake_digest()[0], digest)
        write(self.root / "common/b/a file.cc", "int b;\n")
        changed = self.cmake_digest()[0]
        self.assertNotEqual(changed, digest)
        self.assertEqual(self.quickstart("digest").strip(), changed)

    def test_the_commit_is_told_and_dirty_only_where_sources_differ(self):
        def git(*words):
            subprocess.run(["git", "-C", self.root, "-c", "user.name=t", "-c", "user.email=t@t", *words],
                           check=True, capture_output=True)
        git("init", "-q")
        git("add", ".")
        git("commit", "-q", "-m", "all")
        commit = self.cmake_digest()[1]
        self.assertRegex(commit, r"^[0-9a-f]{12}$")
        write(self.root / "docs/page.md", "words\n")
        self.assertEqual(self.cmake_digest()[1], commit)
        write(self.root / "common/b/new.cc", "int n;\n")
        self.assertEqual(self.cmake_digest()[1], f"{commit}-dirty")

    def test_a_package_of_the_same_sources_is_used(self):
        digest = self.quickstart("digest").strip()
        package = make_package(self.root / "dist/tandem-0.1.0-linux-x86_64", digest)
        write(self.root / "models/SmolLM2-135M-Instruct/config.json", "")
        write(self.root / "models/SmolLM2-135M-Instruct/model.safetensors", "")
        write(self.root / "models/SmolLM2-135M-Instruct/tokenizer.json", "")
        told = self.quickstart("--set", "rollout.n=4")
        self.assertIn("nothing is built", told)
        self.assertIn(f"launched in {self.root}: --config {package}/configs/quickstart.yaml ", told)
        self.assertIn("--set rollout.n=4\n", told)
        self.assertIn("building", self.quickstart(TANDEM_PACKAGE="no"))

    def test_a_package_of_other_sources_is_left_aside_unless_named(self):
        package = make_package(self.root / "tandem-0.1.0-linux-x86_64", "0000111122223333")
        told = self.quickstart("--help")
        self.assertIn("is of other sources (0000111122223333)", told)
        self.assertIn("building", told)
        self.assertIn("--start-paused", self.quickstart("--help", TANDEM_PACKAGE=str(package)))
        self.assertIn("does not exist", self.quickstart(TANDEM_PACKAGE="/no/package"))

    def test_without_a_package_it_builds(self):
        self.assertEqual(self.quickstart().strip(), "building")


class Steps(unittest.TestCase):
    """run_steps.py."""

    def test_the_containerfile_has_only_steps_that_it_knows(self):
        steps = run_steps.steps_of((ROOT / "deploy/docker/Containerfile").read_text())
        self.assertEqual({name for name, _ in steps},
                         {"FROM", "RUN", "COPY", "ENV", "WORKDIR", "ENTRYPOINT"})
        self.assertEqual(steps[0], ("FROM", "debian:12-slim"))
        self.assertNotIn("\\", steps[1][1])


if __name__ == "__main__":
    unittest.main()
