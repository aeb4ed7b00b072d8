"""deploy/package.sh in a checkout of its own: how it builds, in which folder, and what it calls a package.

git, Python, zstd and the packing are real; what configures and builds stands in.
"""
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "setup"))
from checkout import PRELUDE, Checkout  # noqa: E402
from made_up import ROOT, make_build  # noqa: E402

# Builds what lies in `made`; where there is a folder `elsewhere` what lies in that, in another checkout.
NINJA = """case "$1" in --version) echo 1.11.1; exit;; esac
[ "$3" != -n ] || exit 0
made=made
case "$2" in "$CHECKOUT"*) ;; *) [ ! -d "$FAKES/elsewhere" ] || made=elsewhere;; esac
cp -r "$FAKES/$made/build/package" "$2" """
GIB = 2**30


@unittest.skipUnless(shutil.which("zstd"), "zstd is not installed (deploy/setup.sh)")
class PackageScript(unittest.TestCase):
    def setUp(self):
        self.checkout = Checkout()
        self.addCleanup(self.checkout.close)
        self.made = self.checkout.fakes / "made"
        make_build(self.made)
        shutil.copy(ROOT / ".gitignore", self.checkout.root)
        self.stand_in("python3", f'exec {sys.executable} "$@"')
        self.stand_in("ninja", NINJA)
        self.stand_in("nvcc", "exit 1")

    def stand_in(self, name, text):
        """What `name` does from now on."""
        path = self.checkout.fakes / "bin" / name
        path.write_text(f"{PRELUDE}{text}\n")
        path.chmod(0o755)

    def package(self, *arguments, code=0, **variables):
        """What deploy/package.sh says."""
        done = self.checkout.run("package.sh", "--level", "1", *arguments, TANDEM_CUDA_TOOLKIT="/no",
                                 SOURCE_DATE_EPOCH="1700000000", **variables)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def configured(self, *arguments, **variables):
        """The options of CMake, of which the last of a name holds, and the folder."""
        self.checkout.forget_calls()
        self.package(*arguments, **variables)
        call, = self.checkout.calls("cmake -S")
        folder, options = re.search(r" --preset release -B (.*?) (-D.*)", call).groups()
        last = {option.split("=")[0]: option for option in options.split()}
        return set(last.values()), pathlib.Path(folder)

    def packed(self):
        """Names of what lies in dist."""
        return sorted(path.name for path in (self.checkout.root / "dist").iterdir())

    def test_options_are_the_same_on_every_machine(self):
        options, folder = self.configured()
        self.assertEqual(folder, self.checkout.root / "build-package")
        self.assertEqual(options, {
            "-DTANDEM_CUDA=ON", "-DCMAKE_CUDA_ARCHITECTURES=all", "-DCMAKE_BUILD_TYPE=Release",
            "-DCMAKE_UNITY_BUILD=ON", "-DTANDEM_UNITY_BATCH=10", "-DCMAKE_DISABLE_PRECOMPILE_HEADERS=OFF",
            "-DCMAKE_C_FLAGS=", "-DCMAKE_CXX_FLAGS=", "-DCMAKE_CUDA_FLAGS=", "-DCMAKE_EXE_LINKER_FLAGS=",
            "-DTANDEM_SANITIZE=", "-DTANDEM_GRPC_STATIC=ON", "-DTANDEM_HARDENED=ON"})
        for machine in ({"MEMORY_IS": str(4 * GIB)}, {"GPU_IS": "8.6"}, {"CXXFLAGS": "-O3"}):
            shutil.rmtree(folder)
            self.assertEqual(self.configured(**machine)[0], options, machine)

    def test_what_the_build_folder_was_configured_with_does_not_matter(self):
        self.checkout.run("build.sh", "--no-cuda", MEMORY_IS=str(4 * GIB))
        cache = self.checkout.root / "build/CMakeCache.txt"
        before = cache.read_text()
        self.assertIn("TANDEM_UNITY_BATCH:STRING=3", before)
        self.assertIn("-DTANDEM_UNITY_BATCH=10", self.configured()[0])
        self.assertEqual(cache.read_text(), before)
        # Nor does a package's own folder, where somebody configured it anew.
        cache = self.checkout.root / "build-package/CMakeCache.txt"
        cache.write_text(cache.read_text().replace("BATCH:STRING=10", "BATCH:STRING=3"))
        self.assertIn("-DTANDEM_UNITY_BATCH=10", self.configured()[0])
        self.checkout.forget_calls()
        self.package()
        self.assertEqual(self.checkout.calls("cmake -S"), [])

    def test_without_nvcc_a_package_without_kernels_must_be_asked_for(self):
        (self.checkout.fakes / "bin/nvcc").unlink()
        self.assertIn("leave them out with --no-cuda", self.package(code=1))
        self.assertEqual(self.checkout.calls("cmake -S"), [])
        shutil.rmtree(self.made)
        make_build(self.made, cuda="CUDA off")
        options, folder = self.configured("--no-cuda", "--wheel")
        self.assertEqual(folder, self.checkout.root / "build-package-cpu")
        self.assertIn("-DTANDEM_CUDA=OFF", options)
        wheel, archive = self.packed()
        self.assertEqual(archive, "tandem-0.1.0-linux-x86_64-cpu.tar.zst")
        self.assertRegex(wheel, r"^tandem-0\.1\.0\+cpu-py3-none-manylinux_2_\d+_x86_64\.whl$")

    def test_a_package_with_kernels_has_the_plain_name(self):
        self.package()
        self.assertEqual(self.packed(), ["tandem-0.1.0-linux-x86_64.tar.zst"])

    def test_a_build_folder_that_is_named_gets_one_beside_it(self):
        other = self.checkout.fakes / "b"
        self.assertEqual(self.configured(TANDEM_BUILD_DIR=str(other))[1], self.checkout.fakes / "b-package")
        self.checkout.forget_calls()
        self.package("--no-build", TANDEM_BUILD_DIR=str(other))
        self.assertEqual(self.checkout.calls("ninja"), [])
        self.assertIn("start without --no-build", self.package("--no-build", code=1))

    def commit(self):
        """Makes the checkout one of git."""
        for words in (["init", "-q"], ["add", "."], ["-c", "user.name=t", "-c", "user.email=t@t", "commit",
                                                     "-q", "-m", "all"]):
            subprocess.run(["git", "-C", self.checkout.root, *words], check=True, capture_output=True)

    def test_a_second_clone_and_build_are_compared(self):
        self.commit()
        scratch = self.checkout.fakes / "scratch"
        scratch.mkdir()
        told = self.package("--verify", "--wheel", TMPDIR=str(scratch))
        self.assertRegex(told, r"REPRODUCIBLE: .* same bytes: tandem-.*\.tar\.zst tandem-.*\.whl\n$")
        configured = self.checkout.calls("cmake -S")
        self.assertEqual(len(configured), 2)
        self.assertIn(f"-S {scratch}/tandem-second.", configured[1])
        self.assertEqual(*(re.search(r" -D.*", call)[0] for call in configured))
        self.assertEqual(list(scratch.iterdir()), [])

    def test_other_bytes_of_the_second_build_are_an_error_and_kept(self):
        self.commit()
        make_build(self.checkout.fakes / "elsewhere", leak="something else")
        scratch = self.checkout.fakes / "scratch"
        scratch.mkdir()
        told = self.package("--verify", code=1, TMPDIR=str(scratch))
        self.assertIn("NOT REPRODUCIBLE: a second build of this commit gave other bytes in "
                      "tandem-0.1.0-linux-x86_64.tar.zst", told)
        kept, = scratch.iterdir()
        self.assertIn(f"kept in {kept}", told)
        self.assertTrue((kept / "dist/tandem-0.1.0-linux-x86_64.tar.zst").exists())

    def test_only_a_commit_can_be_verified(self):
        self.assertIn("is not a checkout of git", self.package("--verify", code=1))
        self.commit()
        (self.checkout.root / "configs/new.yaml").write_text("a: 1\n")
        self.assertIn("?? configs/new.yaml", self.package("--verify", code=1))
        self.assertEqual(self.checkout.calls("cmake -S"), [])


if __name__ == "__main__":
    unittest.main()
