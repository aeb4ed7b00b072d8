"""The scripts around a package: its quickstart, package/run.sh, the digest of sources, run_steps.py."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "deploy/docker"))
import run_steps  # noqa: E402

FOLDERS = ("common", "controller", "deploy/cmake", "deploy/launcher", "parity", "proto",
           "rollout_worker", "trainer_worker")
# Programs that write what the real ones would.
PROGRAMS = {
    "tandem-launcher": 'if [ "$1" = --version ]; then echo made-up; else echo "launched in $PWD: $*"; fi',
    "tandemctl": 'if [ "$1" = import ] && ! grep -q GGUF "$3"; then echo "not whole" >&2; exit 1; fi\n'
                 'for last; do :; done; mkdir -p "$last"\n'
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
    write(folder / "shell/basics.sh", (ROOT / "deploy/shell/basics.sh").read_text())
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

    def run_it(self, *arguments, path=None, name="work here", **variables):
        """In a folder with a space in its name."""
        package = make_package(self.folder / "a package")
        work = self.folder / name
        work.mkdir(exist_ok=True)
        environment = os.environ | variables
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
        for tool in ("dirname", "readlink", "awk", "df", "find", "grep", "head", "mkdir", "rm", "mv"):
            place = subprocess.run(["which", tool], capture_output=True, text=True, check=True)
            (tools / tool).symlink_to(place.stdout.strip())
        done = self.run_it(path=str(tools))
        self.assertEqual(done.returncode, 1)
        self.assertIn("apt-get install -y --no-install-recommends python3-pip", done.stderr)
        self.assertIn("--gguf FILE", done.stderr)

    def fake(self, name, text):
        """A PATH where `name` does what `text` says."""
        write(self.folder / "fakes" / name, f"#!/bin/sh\n{text}\n", 0o755)
        return f"{self.folder / 'fakes'}:{os.environ['PATH']}"

    def test_a_model_that_was_half_unpacked_is_unpacked_again(self):
        # An interrupted unpacking leaves a file that is large enough to look like the model.
        script = 'case "$*" in *download*) while [ "$1" != -d ]; do shift; done; touch "$2/model.whl";;\n' \
                 '*zipfile*) {};;\nesac'
        path = self.fake("python3", script.format('head -c 2000000 /dev/zero >"$5/half.gguf"; exit 1'))
        python = {"TANDEM_PYTHON": str(self.folder / "fakes/python3")}
        for _ in range(2):
            done = self.run_it(path=path, **python)
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertRegex(done.stderr, "could not be unpacked .* start again")
        self.fake("python3", script.format('(echo GGUF; head -c 2000000 /dev/zero) >"$5/whole.gguf"'))
        done = self.run_it(path=path, **python)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("importing whole.gguf", done.stdout)

    def test_an_import_that_fails_names_the_remedy(self):
        write(self.folder / "some.gguf", "damaged")
        done = self.run_it("--gguf", str(self.folder / "some.gguf"))
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"not whole\nerror: the model could not be imported.*\n.*start again")
        self.assertFalse((self.folder / "work here/models/SmolLM2-135M-Instruct").exists())

    def test_what_would_fail_later_is_said_first(self):
        path = self.fake("df", 'echo head; echo "disk 1 1 2000 1% /"')
        done = self.run_it(path=path)
        self.assertEqual(done.returncode, 1)
        self.assertIn("the quickstart needs 5600 MiB", done.stderr)
        done = self.run_it(name="d" * 80)
        self.assertIn("--set cluster.run_dir=/tmp/tandem-quickstart", done.stderr)
        write(self.folder / "cpuinfo", "flags: sse4_2\n")
        done = self.run_it(TANDEM_CPUINFO=str(self.folder / "cpuinfo"))
        self.assertIn("no AVX2 with FMA", done.stderr)
        self.assertFalse((self.folder / "work here/models").exists())

    def test_what_it_does_not_know_ends_with_64(self):
        for arguments in (["--frobnicate"], ["--steps", "few"], ["--steps"], ["--gguf", "/no/file"]):
            self.assertEqual(self.run_it(*arguments).returncode, 64, arguments)
        self.assertIn("--start-paused", self.run_it("--help").stdout)


class BesideACheckout(InFolder):
    """deploy/package/run.sh as deploy/quickstart.sh uses it."""

    def setUp(self):
        super().setUp()
        self.root = self.folder / "check out"
        for name in ("common.sh", "shell/basics.sh", "package/run.sh"):
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

    def quickstart(self, *arguments, read_only=False, **environment):
        """Its output. Root writes in spite of permissions: a mount of this command alone keeps it out."""
        clean = {k: v for k, v in os.environ.items() if not k.startswith("TANDEM_")}
        command = ["bash", self.root / "deploy/quickstart.sh", *arguments]
        if read_only:
            mount = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" || exit 77; exec "$@"'
            command = ["unshare", "-m", "bash", "-c", mount, self.root, *command]
        done = subprocess.run(command, text=True, capture_output=True, check=False,
                              env={**clean, **environment})
        if read_only and done.returncode in (1, 77) and "cannot be written" not in done.stderr:
            self.skipTest("no mounts are allowed here")
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

    def test_a_package_works_in_the_folder_that_is_named(self):
        package = make_package(self.root / "dist/tandem-0.1.0-linux-x86_64", self.quickstart("digest").strip())
        home = self.folder / "not there yet/home"
        write(self.folder / "hf/config.json", "{}")
        told = self.quickstart("--model", str(self.folder / "hf"), TANDEM_HOME=str(home))
        self.assertIn(f"launched in {home}: --config {package}/configs/quickstart.yaml ", told)
        self.assertTrue((home / "data/addition/train.jsonl").exists())
        for name in ("data", "models", "runs", ".cache"):
            self.assertFalse((self.root / name).exists(), name)

    def test_a_read_only_checkout_is_left_as_it_is(self):
        make_package(self.root / "dist/tandem-0.1.0-linux-x86_64", self.quickstart("digest").strip())
        write(self.folder / "hf/config.json", "{}")
        model = ("--model", str(self.folder / "hf"))
        told = self.quickstart(*model, TANDEM_BUILD_DIR=str(self.folder / "b"), read_only=True)
        self.assertIn(f"launched in {self.folder}/b-home: ", told)
        told = self.quickstart(*model, read_only=True)
        self.assertIn("cannot be written", told)
        self.assertIn("TANDEM_HOME=FOLDER", told)

    def test_a_package_of_other_sources_is_left_aside_unless_named(self):
        package = make_package(self.root / "tandem-0.1.0-linux-x86_64", "0000111122223333")
        told = self.quickstart("--help")
        self.assertIn("is of other sources (0000111122223333)", told)
        self.assertIn("building", told)
        self.assertIn("--start-paused", self.quickstart("--help", TANDEM_PACKAGE=str(package)))
        self.assertIn("does not exist", self.quickstart(TANDEM_PACKAGE="/no/package"))

    def test_a_package_with_kernels_goes_before_one_without(self):
        digest = self.quickstart("digest").strip()
        cpu = make_package(self.root / "tandem-0.1.0-linux-x86_64-cpu", digest)
        self.assertIn(f"the programs of {cpu},", self.quickstart("--help"))
        whole = make_package(self.root / "dist/tandem-0.1.0-linux-x86_64", digest)
        self.assertIn(f"the programs of {whole},", self.quickstart("--help"))

    def test_without_a_package_it_builds(self):
        self.assertEqual(self.quickstart().strip(), "building")


class Recorded:
    """In place of subprocess.run: what was to be run, and the exit codes that are wanted."""

    def __init__(self, *codes):
        self.codes, self.calls = list(codes), []

    def __call__(self, command, env, check):
        self.calls.append(([str(word) for word in command], env, check))
        return subprocess.CompletedProcess(command, self.codes.pop(0) if self.codes else 0)


class Steps(InFolder):
    """run_steps.py, with what it would run in a root recorded; the root is a folder."""

    def steps(self, *codes):
        """Steps over an empty root, and what they run."""
        recorded = Recorded(*codes)
        patch = unittest.mock.patch.object(run_steps.subprocess, "run", recorded)
        patch.start()
        self.addCleanup(patch.stop)
        root = self.folder / "root"
        root.mkdir()
        return run_steps.Steps(root), recorded.calls

    def test_a_command_runs_in_the_root_with_the_folder_and_environment_so_far(self):
        steps, calls = self.steps()
        steps.do("RUN", "one && two")
        steps.do("ENV", "PATH=/opt/bin:/bin=x")
        steps.do("WORKDIR", "/some/work")
        steps.do("RUN", "three")
        root = str(self.folder / "root")
        start = ["chroot", root, "/usr/bin/env", "-C"]
        self.assertEqual([call[0] for call in calls], [[*start, "/", "/bin/sh", "-c", "one && two"],
                                                       [*start, "/some/work", "/bin/sh", "-c", "three"]])
        self.assertEqual(calls[1][1]["PATH"], "/opt/bin:/bin=x")
        self.assertEqual(calls[1][1]["HOME"], "/root")
        self.assertTrue((self.folder / "root/some/work").is_dir())

    def test_a_proxy_is_handed_on_and_nothing_else_of_this_machine(self):
        with unittest.mock.patch.dict(os.environ, {"https_proxy": "http://p", "PIP_INDEX_URL": "http://i",
                                                   "SECRET": "s"}):
            steps, calls = self.steps()
        steps.do("RUN", "one")
        environment = calls[0][1]
        self.assertEqual((environment["https_proxy"], environment["PIP_INDEX_URL"]), ("http://p", "http://i"))
        self.assertNotIn("SECRET", environment)

    def test_a_command_that_fails_ends_the_steps(self):
        steps, calls = self.steps(0, 3)
        steps.do("RUN", "one")
        with self.assertRaisesRegex(SystemExit, "exit code 3 of /bin/sh -c two"):
            steps.do("RUN", "two")
        self.assertEqual(len(calls), 2)

    def test_files_are_copied_into_a_folder_or_under_a_name(self):
        steps, _ = self.steps()
        for name in ("a 1.zst", "b.zst"):
            write(self.folder / "dist" / name, name)
        before = os.getcwd()
        os.chdir(self.folder)
        self.addCleanup(os.chdir, before)
        steps.do("COPY", "dist/*.zst /tmp/")
        steps.do("COPY", "dist/b.zst /opt/else/named")
        root = self.folder / "root"
        self.assertEqual(sorted(p.name for p in (root / "tmp").iterdir()), ["a 1.zst", "b.zst"])
        self.assertEqual((root / "opt/else/named").read_text(), "b.zst")
        with self.assertRaisesRegex(SystemExit, r"nothing matches dist/\*\.whl: run deploy/package.sh"):
            steps.do("COPY", "dist/*.whl /tmp/")

    def test_the_entry_point_is_kept_and_an_unknown_step_refused(self):
        steps, calls = self.steps()
        steps.do("FROM", "debian:12-slim")
        steps.do("ENTRYPOINT", '["/opt/tandem/quickstart", "x y"]')
        self.assertEqual((steps.entry, calls), (["/opt/tandem/quickstart", "x y"], []))
        with self.assertRaisesRegex(SystemExit, "ADD is not known here"):
            steps.do("ADD", "a b")

    def test_comments_and_continued_lines(self):
        self.assertEqual(run_steps.steps_of("# c\nRUN a \\\n  # in between\n && b\n\nWORKDIR /w\n"),
                         [("RUN", "a   && b"), ("WORKDIR", "/w")])

    def test_the_containerfile_unpacks_the_one_archive_that_dist_has(self):
        text = next(rest for name, rest in run_steps.steps_of((ROOT / "deploy/docker/Containerfile").read_text())
                    if name == "RUN" and "set --" in rest)
        text = text.replace("/tmp/", f"{self.folder}/tmp/").split("&& mkdir")[0]
        for count, code in ((1, 0), (2, 1)):
            write(self.folder / f"tmp/tandem-{count}-linux-x86_64.tar.zst", "")
            done = subprocess.run(["/bin/sh", "-c", text], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, code, done.stderr)
        self.assertIn("dist has 2 packages", done.stderr)

    def test_the_containerfile_has_only_steps_that_it_knows(self):
        steps = run_steps.steps_of((ROOT / "deploy/docker/Containerfile").read_text())
        self.assertEqual({name for name, _ in steps},
                         {"FROM", "RUN", "COPY", "ENV", "WORKDIR", "ENTRYPOINT"})
        self.assertEqual(steps[0], ("FROM", "debian:12-slim"))
        self.assertNotIn("\\", steps[1][1])


if __name__ == "__main__":
    unittest.main()
