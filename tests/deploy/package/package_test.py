"""Packing of made-up programs: what is in a package and a wheel, run paths, equal bytes."""
import base64
import csv
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from made_up import ROOT, RUN_PATH, compile_c, make_build  # noqa: E402

import archive  # noqa: E402
import collect  # noqa: E402
import elf  # noqa: E402
import make_wheel  # noqa: E402
import sbom  # noqa: E402


class InFolder(unittest.TestCase):
    """Tests with a folder of their own."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def collected(self, name="out", with_torch=True, build=None):
        """The folder of a package, and what is told of it."""
        build = build or make_build(self.folder / f"{name}-made")
        out = self.folder / name
        return out, collect.collect(out, ROOT, build, with_torch, 1_700_000_000)


class Package(InFolder):
    """The folder that is packed."""

    def test_programs_find_their_libraries_wherever_the_folder_lies(self):
        out, about = self.collected()
        self.assertEqual((about["version"], about["sources"]), ("0.1.0", "fedcba9876543210"))
        shutil.rmtree(self.folder / "out-made")
        moved = self.folder / "else where"
        out.rename(moved)
        for name in collect.PROGRAMS:
            program = moved / "bin" / name
            self.assertEqual(elf.run_path(program), "$ORIGIN/../lib")
            environment = {k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"}
            subprocess.run([program], check=True, capture_output=True, env=environment)

    def test_libraries_of_the_wheels_look_beside_themselves(self):
        out, _ = self.collected()
        self.assertEqual([p.name for p in (out / "lib").iterdir()], ["libfake_torch.so"])
        self.assertEqual(elf.run_path(out / "lib/libfake_torch.so"), "$ORIGIN")

    def test_configs_documents_notices_and_the_quickstart_are_there(self):
        out, _ = self.collected()
        for name in ("configs/quickstart.yaml", "docs/reference/errors.md", "README.md", "CHANGELOG.md", "shell/basics.sh", "systemd/tandem@.service",
                     "licenses/torch-9.9-LICENSE"):
            self.assertTrue((out / name).is_file(), name)
        self.assertEqual(archive.mode_of(out / "quickstart"), 0o755)
        about = (out / "BUILD.txt").read_text()
        self.assertIn("\nsources fedcba9876543210\n", about)
        self.assertRegex(about, r"needs the C library 2\.\d+")
        self.assertIn("libfake_torch.so  LibTorch", about)

    def test_a_missing_program_is_named(self):
        build = make_build(self.folder / "made")
        (build / "package/bin/tandemctl").unlink()
        with self.assertRaisesRegex(SystemExit, "tandemctl is missing: run deploy/package.sh"):
            self.collected(build=build)

    def test_a_folder_of_the_machine_in_a_program_is_told(self):
        build = make_build(self.folder / "made", leak=f"{ROOT}/common/base/check.cc")
        _, about = self.collected(build=build)
        self.assertEqual(len(about["unclean"]), len(collect.PROGRAMS))
        self.assertIn(f"tandemctl has {ROOT} in it", "\n".join(about["unclean"]))
        self.assertEqual(self.collected("clean")[1]["unclean"], [])

    def test_libtorchs_folder_in_a_program_is_told(self):
        site = self.folder / "made/site"
        _, about = self.collected(build=make_build(self.folder / "made", leak=f"{site}/torch/include/x.h"))
        self.assertIn(f"tandem-trainer has {site} in it", "\n".join(about["unclean"]))

    def test_programs_with_a_folder_of_the_machine_are_not_packed(self):
        build = make_build(self.folder / "made", leak=f"{ROOT}/common/base/check.cc")
        out = self.folder / "dist"
        for kind in ([], ["--wheel", "--no-tar"]):
            done = subprocess.run([sys.executable, ROOT / "deploy/package/make.py", "--build", build, "--out",
                                   out, "--epoch", "1", *kind], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertIn("nothing is packed", done.stderr)
            self.assertIn(f"tandemctl has {ROOT} in it", done.stderr)
            self.assertEqual(list(out.iterdir()), [])


class Defences(InFolder):
    """What makes a fault in a program hard to use: packed programs have it, and others are not packed."""

    # What a link without one of them gives, and what is said then.
    SOFT = {"position-independent": ("-no-pie", "-Wl,-z,relro,-z,now"),
            "-z relro": ("-pie", "-Wl,-z,norelro,-z,now"),
            "-z now": ("-pie", "-Wl,-z,relro,-z,lazy"),
            "-z noexecstack": ("-pie", "-Wl,-z,relro,-z,now,-z,execstack")}

    def test_packed_programs_have_them(self):
        out, about = self.collected()
        self.assertEqual(about["soft"], [])
        for name in collect.PROGRAMS:
            self.assertEqual(elf.missing_defences(out / "bin" / name), [], name)
        self.assertIn("\nhardened: position-independent, ", (out / "BUILD.txt").read_text())

    def test_a_link_without_one_of_them_is_told(self):
        for number, (what, link) in enumerate(self.SOFT.items()):
            program = self.folder / f"program{number}"
            compile_c(program, "int main(void) { return 0; }", "-fPIE", *link)
            missing, = elf.missing_defences(program)
            self.assertIn(what, missing)

    def packing(self, build):
        done = subprocess.run([sys.executable, ROOT / "deploy/package/make.py", "--build", build, "--out",
                               self.folder / "dist", "--epoch", "1"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertEqual(list((self.folder / "dist").iterdir()), [])
        return done.stderr

    def test_programs_without_them_are_not_packed(self):
        told = self.packing(make_build(self.folder / "lazy", link=("-fPIE", "-pie", "-Wl,-z,lazy")))
        self.assertIn("lack defences of a release, so nothing is packed", told)
        self.assertIn("tandem-trainer has not been linked as all symbols bound at the start (-z now)", told)
        build = make_build(self.folder / "made")
        (build / "CMakeCache.txt").write_text("TANDEM_HARDENED:BOOL=OFF\n")
        self.assertIn("was configured without -DTANDEM_HARDENED=ON", self.packing(build))


class BillOfMaterials(InFolder):
    """tandem.spdx.json."""

    LICENCES = re.compile(r"NOASSERTION|[A-Za-z0-9.+-]+(?: WITH [A-Za-z0-9.-]+)?(?: (?:AND|OR) [A-Za-z0-9.+-]+(?: WITH [A-Za-z0-9.-]+)?)*")

    def document(self, **how):
        out, about = self.collected(**how)
        return out, about, json.loads((out / sbom.NAME).read_text())

    def test_it_has_what_spdx_2_3_requires(self):
        _, about, document = self.document()
        self.assertEqual((document["spdxVersion"], document["dataLicense"], document["SPDXID"]),
                         ("SPDX-2.3", "CC0-1.0", "SPDXRef-DOCUMENT"))
        self.assertEqual(document["creationInfo"], {"created": "2023-11-14T22:13:20Z", "creators": [sbom.CREATOR]})
        self.assertTrue(document["documentNamespace"].startswith("https://"))
        self.assertIn(about["sources"], document["documentNamespace"])
        for one in document["packages"]:
            for key in ("name", "versionInfo", "downloadLocation", "licenseConcluded", "licenseDeclared", "copyrightText"):
                self.assertTrue(one[key], (one, key))
            self.assertIs(one["filesAnalyzed"], False)
            self.assertRegex(one["externalRefs"][0]["referenceLocator"], r"^pkg:(deb/debian|pypi|generic)/[\w.+-]+@[\w.%~+-]+$")
        ids = [one["SPDXID"] for one in (document, *document["packages"], *document["files"])]
        self.assertEqual(len(ids), len(set(ids)))
        for one in ids:
            self.assertRegex(one, r"^SPDXRef-[A-Za-z0-9.-]+$")
        for one in document["relationships"]:
            self.assertIn(one["spdxElementId"], ids)
            self.assertIn(one["relatedSpdxElement"], ids)

    def test_licences_are_expressions_and_names_of_their_own_are_explained(self):
        _, _, document = self.document()
        explained = {one["licenseId"] for one in document["hasExtractedLicensingInfos"]}
        used = set()
        for one in document["packages"]:
            plain = re.sub(r"[()]", "", one["licenseDeclared"])
            self.assertRegex(plain, rf"^(?:{self.LICENCES.pattern})$", one["name"])
            used |= set(re.findall(r"LicenseRef-[\w.-]+", plain))
        self.assertEqual(used, explained)

    def test_it_names_what_is_linked_in_and_what_the_wheels_bring(self):
        _, _, document = self.document()
        by_name = {one["name"]: one for one in document["packages"]}
        self.assertEqual(set(by_name), {"tandem", "torch", *collect.LINKED_IN})
        self.assertEqual((by_name["torch"]["versionInfo"], by_name["torch"]["licenseDeclared"]), ("9.9", "BSD-3-Clause"))
        self.assertEqual(by_name["libabsl-dev"]["versionInfo"], collect.version_of("libabsl-dev"))
        self.assertEqual(by_name["libabsl-dev"]["licenseDeclared"], "Apache-2.0")
        static = {one["relatedSpdxElement"] for one in document["relationships"] if one["relationshipType"] == "STATIC_LINK"}
        self.assertEqual(static, {by_name[name]["SPDXID"] for name in collect.LINKED_IN})
        self.assertIn({"spdxElementId": "SPDXRef-File-lib-libfake-torch.so", "relationshipType": "GENERATED_FROM",
                       "relatedSpdxElement": by_name["torch"]["SPDXID"]}, document["relationships"])

    def test_files_are_those_of_the_package_with_their_digests(self):
        out, _, document = self.document()
        self.assertEqual([one["fileName"] for one in document["files"]],
                         sorted([*(f"./bin/{name}" for name in collect.PROGRAMS), "./lib/libfake_torch.so"]))
        for one in document["files"]:
            sums = {entry["algorithm"]: entry["checksumValue"] for entry in one["checksums"]}
            data = (out / one["fileName"]).read_bytes()
            self.assertEqual(sums, {"SHA1": hashlib.sha1(data).hexdigest(), "SHA256": hashlib.sha256(data).hexdigest()})

    def test_a_wheel_has_it_where_pip_keeps_such_files_and_names_the_wheels_beside_it(self):
        out, about, document = self.document(with_torch=False)
        self.assertNotIn("./lib/libfake_torch.so", [one["fileName"] for one in document["files"]])
        self.assertIn("torch", [one["name"] for one in document["packages"]])
        path = make_wheel.write_wheel(out, self.folder, about["version"], about["glibc"], 1_700_000_000)
        with zipfile.ZipFile(path) as files:
            self.assertEqual(json.loads(files.read(f"tandem-0.1.0.dist-info/sboms/{sbom.NAME}")), document)
            self.assertNotIn(f"tandem/{sbom.NAME}", files.namelist())

    def test_an_archive_that_is_linked_in_and_not_listed_is_an_error(self):
        build = make_build(self.folder / "made")
        archive_of = {"libabsl_time.a": "libabsl-dev", "libz.a": "zlib1g-dev"}
        line = "build package/bin/tandemctl: LINK a.o\n  LINK_LIBRARIES = -ldl  {}  -lrt\n"
        with unittest.mock.patch.object(collect, "package_of", lambda path: archive_of[path.name]):
            (build / "build.ninja").write_text(line.format("/usr/lib/libabsl_time.a"))
            self.assertEqual(collect.packages_linked_in(build), collect.LINKED_IN)
            (build / "build.ninja").write_text(line.format("/usr/lib/libz.a"))
            with self.assertRaisesRegex(SystemExit, "libz.a of the package zlib1g-dev is linked in and not in the list"):
                collect.packages_linked_in(build)

    def test_names_of_licences_become_those_of_spdx(self):
        for text, expected in (("Expat", "MIT"), ("GPL-2+ or Expat", "(GPL-2.0-or-later OR MIT)"),
                               ("Apache-2.0 and BSD-3-clause", "Apache-2.0 AND BSD-3-Clause"),
                               ("Apache-2.0 with LLVM exception", "Apache-2.0 WITH LLVM-exception"),
                               ("U-of-I~BSD", "LicenseRef-U-of-I-BSD"),
                               ("LicenseRef-NVIDIA-Proprietary", "LicenseRef-NVIDIA-Proprietary")):
            self.assertEqual(sbom.expression(text), expected)


class Bytes(InFolder):
    """Two packings."""

    def tar_of(self, out):
        """Its bytes."""
        stream = io.BytesIO()
        archive.write_tar(out, "tandem", stream, 1_700_000_000)
        return stream.getvalue()

    def test_builds_in_two_folders_give_the_same_archive_and_the_same_wheel(self):
        tars, wheels = [], []
        for name in ("a", "longer name"):
            out, _ = self.collected(name, build=make_build(self.folder / f"{name} made", fresh=True))
            os.utime(out / "README.md", (1, 1))
            tars.append(self.tar_of(out))
            out, about = self.collected(f"{name} wheel", with_torch=False)
            made = make_wheel.write_wheel(out, self.folder, about["version"], about["glibc"], 1_700_000_000)
            wheels.append(made.read_bytes())
        self.assertEqual(tars[0], tars[1])
        self.assertEqual(wheels[0], wheels[1])

    def test_another_file_or_time_gives_other_bytes(self):
        out, _ = self.collected()
        before = self.tar_of(out)
        (out / "README.md").write_text("changed\n")
        self.assertNotEqual(self.tar_of(out), before)

    @unittest.skipUnless(shutil.which("zstd"), "zstd is not installed (deploy/setup.sh)")
    def test_the_script_packs_twice_the_same(self):
        make_build(self.folder / "made").rename(self.folder / "b-package")
        digests = []
        for name in ("dist 1", "dist2"):
            done = subprocess.run([ROOT / "deploy/package.sh", "--no-build", "--wheel", "--out",
                                   self.folder / name, "--level", "1"], capture_output=True, text=True,
                                  check=False, env={**os.environ, "TANDEM_BUILD_DIR": str(self.folder / "b"),
                                                    "SOURCE_DATE_EPOCH": "1700000000"})
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            digests.append(re.findall(r"sha256 (\w{64})", done.stdout))
        self.assertEqual(len(digests[0]), 2)
        self.assertEqual(digests[0], digests[1])
        package = self.folder / "dist2/tandem-0.1.0-linux-x86_64.tar.zst"
        subprocess.run(["tar", "--use-compress-program=zstd", "-xf", package, "-C", self.folder], check=True)
        unpacked = self.folder / "tandem-0.1.0-linux-x86_64"
        self.assertTrue((unpacked / "quickstart").exists())
        self.assertEqual(unpacked.joinpath("README.md").stat().st_mtime, 1_700_000_000)


class RunPath(InFolder):
    """In-place changes of ELF files."""

    def test_a_longer_run_path_is_refused_and_the_file_stays(self):
        build = make_build(self.folder)
        program = build / "package/bin/tandemctl"
        before = program.read_bytes()
        with self.assertRaisesRegex(ValueError, "no room"):
            elf.shorten_run_path(program, RUN_PATH + ":$ORIGIN/more")
        self.assertEqual(program.read_bytes(), before)

    def test_needed_libraries_and_versions_are_read(self):
        build = make_build(self.folder)
        program = build / "package/bin/tandem-trainer"
        self.assertIn("libfake_torch.so", elf.needed(program))
        self.assertGreaterEqual(elf.newest_version([program], "GLIBC"), (2, 2))


class Wheel(InFolder):
    """The wheel."""

    def setUp(self):
        super().setUp()
        out, about = self.collected(with_torch=False)
        self.path = make_wheel.write_wheel(out, self.folder, about["version"], about["glibc"], 1_700_000_000)
        self.files = zipfile.ZipFile(self.path)
        self.addCleanup(self.files.close)

    def test_the_record_has_every_file_with_its_digest(self):
        rows = list(csv.reader(io.StringIO(self.files.read("tandem-0.1.0.dist-info/RECORD").decode())))
        self.assertEqual(sorted(row[0] for row in rows), sorted(self.files.namelist()))
        for name, digest, size in rows:
            if not name.endswith("/RECORD"):
                data = self.files.read(name)
                expected = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
                self.assertEqual((digest, size), (f"sha256={expected}", str(len(data))), name)

    def test_programs_are_executable_and_look_for_libtorch_in_site_packages(self):
        self.files.extractall(self.folder / "site")
        for name in collect.PROGRAMS:
            entry = self.files.getinfo(f"tandem/bin/{name}")
            self.assertEqual(entry.external_attr >> 16, 0o100755)
            self.assertEqual(elf.run_path(self.folder / "site/tandem/bin" / name), RUN_PATH)
        self.assertFalse([n for n in self.files.namelist() if "fake_torch" in n])
        # As pip would lay the other wheel beside it.
        shutil.copytree(self.folder / "out-made/site/torch", self.folder / "site/torch")
        program = self.folder / "site/tandem/bin/tandem-trainer"
        program.chmod(0o755)
        subprocess.run([program], check=True, capture_output=True)

    def command(self, name, *arguments):
        """A command of the wheel where only its own site-packages are."""
        code = f"import sys; sys.argv[0] = {name!r}; from tandem import commands; commands.{name}()"
        return subprocess.run([sys.executable, "-S", "-c", code, *arguments], capture_output=True,
                              text=True, check=False, env={**os.environ, "PYTHONPATH": str(self.folder / "site")})

    def test_commands_become_programs_and_say_where_libtorch_is_missing(self):
        subprocess.run([sys.executable, "-m", "zipfile", "-e", self.path, self.folder / "site"], check=True)
        for program in (self.folder / "site/tandem/bin").iterdir():
            program.chmod(0o755)
        self.assertIn("made-up 0.1.0", self.command("tandemctl", "--version").stdout)
        done = self.command("tandem_trainer", "--version")
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"pip install --no-deps {make_wheel.TORCH}", done.stderr)
        shutil.copytree(self.folder / "out-made/site/torch", self.folder / "site/torch")
        self.assertIn("made-up 0.1.0", self.command("tandem_trainer", "--version").stdout)
        self.assertIn("some argument", self.command("tandem_trainer", "some argument").stdout)

    def test_commands_and_requirements_are_those_of_the_set_up(self):
        points = self.files.read("tandem-0.1.0.dist-info/entry_points.txt").decode()
        commands = (ROOT / "deploy/package/python/commands.py").read_text()
        named = re.findall(r"= tandem\.commands:(\w+)", points)
        self.assertEqual(len(named), len(collect.PROGRAMS) + 1)
        for function in named:
            self.assertIn(f"def {function}():", commands)
        setup = (ROOT / "deploy/setup.sh").read_text()
        for requirement in (make_wheel.TORCH, *make_wheel.CUDA):
            self.assertIn(requirement, setup)
        metadata = self.files.read("tandem-0.1.0.dist-info/METADATA").decode()
        self.assertIn(f"Requires-Dist: {make_wheel.TORCH}; extra == 'torch'", metadata)
        self.assertRegex(self.path.name, r"^tandem-0\.1\.0-py3-none-manylinux_2_\d+_x86_64\.whl$")


if __name__ == "__main__":
    unittest.main()
