"""One folder with programs, the libraries that they load, configs and documents."""
import os
import pathlib
import re
import shutil
import subprocess

import elf
import sbom

PROGRAMS = ["tandem-controller", "tandem-trainer", "tandem-rollout", "tandem-launcher",
            "tandem-agent", "tandem-parity", "tandemctl"]
# Every system with a C++ program has these; others' plug-ins (a GPU's driver) need them as new as the
# system's own.
MACHINES_OWN = re.compile(r"^(libc|libm|libdl|libpthread|librt|libresolv|libutil|ld-linux-x86-64"
                          r"|libstdc\+\+|libgcc_s|libcuda|libnvidia-.*)\.so")
# What is linked in; their notices go along with the programs.
LINKED_IN = ["libgrpc-dev", "libgrpc++-dev", "libprotobuf-dev", "libabsl-dev", "libre2-dev", "libc-ares-dev",
             "libspdlog-dev", "libcli11-dev", "nlohmann-json3-dev", "libboost1.81-dev", "libjs-dygraphs"]
# The run path of a package with LibTorch in it; of one without (a wheel) that of the link stays.
WHOLE = "$ORIGIN/../lib"


def fail(text):
    """Ends the program with a line."""
    raise SystemExit(f"error: {text}")


def libraries_of(program, torch_folders):
    """{name: path} of all libraries that a program loads here, the machine's own left out."""
    environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(map(str, torch_folders))}
    done = subprocess.run(["ldd", program], capture_output=True, text=True, check=False,
                          env=environment)
    if done.returncode != 0:
        fail(f"ldd cannot read {program}: {done.stderr.strip()}")
    found = {}
    for name, path in re.findall(r"^\s*(\S+) => (.+?)(?: \(0x[0-9a-f]+\))?$", done.stdout, re.M):
        if path == "not found":
            fail(f"{program} needs {name}, which is not found: run deploy/setup.sh")
        if not MACHINES_OWN.match(name):
            found[name] = pathlib.Path(path)
    return found


def package_of(path):
    """The Debian package of a file, or None. Files of a merged /usr are known by either name."""
    real = path.resolve()
    names = [str(path), str(real), str(real).removeprefix("/usr")]
    for name in names:
        done = subprocess.run(["dpkg-query", "-S", name], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return done.stdout.split(":")[0]
    return None


def version_of(package):
    """Of a Debian package."""
    return subprocess.run(["dpkg-query", "-W", "-f", "${Version}", package], capture_output=True,
                          text=True, check=True).stdout


def add_notice(out, name, source):
    """A licence text as licenses/NAME."""
    if source.is_file():
        (out / "licenses").mkdir(exist_ok=True)
        shutil.copyfile(source, out / "licenses" / name)


def add_torchs_notices(out, torch_folders):
    """The licence texts of the wheels that LibTorch and the CUDA runtime come from."""
    for pattern in ("torch-*.dist-info", "nvidia_cuda_*.dist-info"):
        for info in sorted(torch_folders[0].parents[1].glob(pattern)):
            texts = [p for p in sorted(info.rglob("*")) if re.match(r"(LICENSE|License|NOTICE)", p.name)
                     and p.is_file()]
            for text in texts:
                add_notice(out, f"{info.name.removesuffix('.dist-info')}-{text.name}", text)


def add_libraries(out, programs, torch_folders, with_torch):
    """Copies libraries to lib/; returns [sbom.Library] of all that the programs load, those of a wheel's neighbours too."""
    (out / "lib").mkdir()
    wanted = {}
    for program in programs:
        wanted |= libraries_of(program, torch_folders)
    found = []
    for name, path in sorted(wanted.items()):
        # LibTorch's own libgomp, not the system's: whichever of the folders has it.
        path = next((f / name for f in torch_folders if (f / name).exists()), path)
        is_torchs = path.parent in torch_folders
        if is_torchs and not with_torch:
            found.append(sbom.Library(name, path, is_torchs, "", False))
            continue
        # Sections that only linkers read: a fifth of LibTorch.
        subprocess.run(["strip", "--strip-unneeded", "-o", out / "lib" / name, path.resolve()],
                       check=True)
        (out / "lib" / name).chmod(0o644)
        if elf.run_path(out / "lib" / name):
            elf.shorten_run_path(out / "lib" / name, "$ORIGIN")  # a wheel's names folders beside it
        package = "" if is_torchs else package_of(path) or ""
        if package:
            add_notice(out, package, sbom.DOCUMENTATION / package / "copyright")
        found.append(sbom.Library(name, path, is_torchs, package, True))
    return found


def line_about(library):
    """"name  where it is from", for BUILD.txt."""
    if not library.packed:
        return f"{library.name}  not in the package: from the Python packages torch and nvidia-cuda-*"
    if library.debian:
        return f"{library.name}  Debian {library.debian} {version_of(library.debian)}"
    return f"{library.name}  {'LibTorch and the CUDA runtime, from their wheels' if library.is_torchs else library.path}"


def packages_linked_in(build):
    """LINKED_IN; an archive of another package on a program's command line of the linker is an error."""
    file = build / "build.ninja"
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    archives = {archive for block in re.findall(r"^build package/bin/.*\n((?:[ ]{2}.*\n)+)", text, re.M)
                for archive in re.findall(r"(/usr/\S+\.a)\b", block)}
    for archive in sorted(archives):
        package = package_of(pathlib.Path(archive))
        if package not in LINKED_IN:
            fail(f"{archive} of the package {package} is linked in and not in the list LINKED_IN of deploy/package/collect.py, "
                 "so that its notice would be missing")
    return LINKED_IN


def add_programs(out, built, with_torch):
    """Copies the programs of the folder `built`; returns their paths in the package."""
    (out / "bin").mkdir(parents=True)
    programs = []
    for name in PROGRAMS:
        if not (built / name).is_file():
            fail(f"{built / name} is missing: run deploy/package.sh without --no-build")
        copy = out / "bin" / name
        shutil.copyfile(built / name, copy)
        copy.chmod(0o755)
        if with_torch:
            elf.shorten_run_path(copy, WHOLE)
        programs.append(copy)
    return programs


def add_documents(out, root):
    """What git has of configs and documents; without git, what is there."""
    listed = subprocess.run(["git", "-C", root, "ls-files", "-z", "--", "configs", "docs", "README.md",
                             "CHANGELOG.md", "LICENSE*"], capture_output=True, text=True, check=False)
    files = [f for f in listed.stdout.split("\0") if f and (root / f).is_file()]
    if listed.returncode != 0 or not files:
        files = [p.relative_to(root).as_posix() for top in ("configs", "docs", "README.md", "CHANGELOG.md")
                 for p in [root / top, *(root / top).rglob("*")] if p.is_file()]
    for file in files:
        (out / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / file, out / file)
    shutil.copyfile(root / "deploy/package/quickstart.sh", out / "quickstart")
    (out / "quickstart").chmod(0o755)
    (out / "systemd").mkdir()
    shutil.copyfile(root / "deploy/systemd/tandem@.service", out / "systemd/tandem@.service")
    (out / "shell").mkdir()
    shutil.copyfile(root / "deploy/shell/basics.sh", out / "shell/basics.sh")


def build_of(program):
    """{"version", "commit", "sources", "flags", "has_cuda": ...} as the program tells it."""
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    match = re.match(r"\S+ (\S+), commit (\S+), sources (\S+), (.*)", done.stdout)
    if done.returncode != 0 or not match:
        fail(f"{program} --version does not tell its build: {done.stdout}{done.stderr}")
    about = dict(zip(("version", "commit", "sources", "flags"), match.groups()))
    return about | {"has_cuda": not about["flags"].endswith(", CUDA off")}


def folders_left_in(programs, folders):
    """Lines about programs that hold a folder of this machine: others' bytes would differ."""
    for program in programs:
        data = program.read_bytes()
        for folder in folders:
            if str(folder).encode() + b"/" in data:
                yield f"{program.name} has {folder} in it: compile with -ffile-prefix-map={folder}=."


def without_defences(programs, build):
    """Lines about programs that are not as hard to attack as a package's are meant to be."""
    cache = build / "CMakeCache.txt"
    if not re.search(r"^TANDEM_HARDENED:[A-Z]+=ON$", cache.read_text() if cache.is_file() else "", re.M):
        yield f"{build} was configured without -DTANDEM_HARDENED=ON: start deploy/package.sh without --no-build"
    for program in programs:
        for what in elf.missing_defences(program):
            yield f"{program.name} has not been linked as {what}: tandem_harden_link in CMake does it"


def collect(out, root, build, with_torch, epoch):
    """Fills the folder `out`; returns what build_of says of it. epoch: the time that the bill of materials tells."""
    if out.exists():
        shutil.rmtree(out)
    torch_folders = [pathlib.Path(line) for line in
                     (build / "package/torch_folders.txt").read_text().splitlines()]
    programs = add_programs(out, build / "package/bin", with_torch)
    libraries = add_libraries(out, [build / "package/bin" / name for name in PROGRAMS], torch_folders,
                              with_torch)
    add_documents(out, root)
    for package in packages_linked_in(build):
        add_notice(out, package, sbom.DOCUMENTATION / package / "copyright")
    if with_torch:
        add_torchs_notices(out, torch_folders)
    # A program that needs no LibTorch tells it: it runs before anything is proved of the package.
    about = build_of(out / "bin/tandemctl")
    files = [*programs, *sorted((out / "lib").iterdir())]
    glibc = ".".join(map(str, elf.newest_version(files, "GLIBC")))
    compiler = ".".join(map(str, elf.newest_version(files, "GLIBCXX")))
    about["glibc"] = glibc
    lines = [f"{key} {about[key]}" for key in ("version", "commit", "sources", "flags")]
    lines += ["hardened: position-independent, read-only relocations, bound at the start, stack protector, fortified calls"]
    lines += [f"needs the C library {glibc} or newer", f"needs libstdc++ with GLIBCXX_{compiler} or newer"]
    (out / "BUILD.txt").write_text("\n".join([*lines, "", "Libraries of lib/:", *map(line_about, libraries), ""]))
    sbom.write(out, about, libraries, {package: version_of(package) for package in
                                       {*LINKED_IN, *(one.debian for one in libraries if one.debian)}}, LINKED_IN, epoch)
    # LibTorch's as well: TANDEM_HOME can be elsewhere.
    site = torch_folders[0].parents[1]
    about["unclean"] = list(folders_left_in(programs, [root, build, site]))
    about["soft"] = list(without_defences(programs, build))
    return about
