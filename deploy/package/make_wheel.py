"""A wheel from a folder of programs: programs in the package, LibTorch from its own wheels."""
import base64
import hashlib
import pathlib
import shutil
import time
import zipfile

import archive
import sbom

# deploy/setup.sh has the same versions; a test compares.
TORCH = "torch==2.11.0"
CUDA = ["nvidia-cuda-runtime==13.0.96", "nvidia-cuda-cupti==13.0.85"]
PROGRAMS = ["tandem-controller", "tandem-trainer", "tandem-rollout", "tandem-launcher",
            "tandem-agent", "tandem-parity", "tandemctl"]
SUMMARY = "Reinforcement-learning post-training of language models, as programs in C++"
HEAD = pathlib.Path(__file__).parent / "python"


def metadata(version):
    """METADATA. LibTorch is an extra: pip would fetch 3 GB of CUDA along with torch."""
    lines = ["Metadata-Version: 2.1", "Name: tandem", f"Version: {version}", f"Summary: {SUMMARY}",
             "Requires-Python: >=3.9", *(f"Requires-Dist: {wheel}" for wheel in CUDA),
             "Provides-Extra: torch", f"Requires-Dist: {TORCH}; extra == 'torch'",
             "Description-Content-Type: text/markdown"]
    return "\n".join(lines) + "\n\n" + (HEAD / "description.md").read_text()


def entry_points():
    """One command for each program, and the quickstart."""
    lines = ["[console_scripts]", "tandem-quickstart = tandem.commands:quickstart"]
    lines += [f"{name} = tandem.commands:{name.replace('-', '_')}" for name in PROGRAMS]
    return "\n".join(lines) + "\n"


def record_line(name, data):
    """A line of RECORD."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(data)}"


def write_wheel(folder, out_folder, version, glibc, epoch):
    """The wheel's path. `folder`: as collect makes it without LibTorch."""
    tag = f"py3-none-manylinux_{glibc.replace('.', '_')}_x86_64"
    out = out_folder / f"tandem-{version}-{tag}.whl"
    info = f"tandem-{version}.dist-info"
    entries = {f"tandem/{name}": (folder / name).read_bytes() for name in archive.files_of(folder)
               if not name.startswith("licenses/") and name != sbom.NAME}
    entries[f"{info}/sboms/{sbom.NAME}"] = (folder / sbom.NAME).read_bytes()  # where PEP 770 has it
    executable = {f"tandem/{name}" for name in archive.files_of(folder)
                  if archive.mode_of(folder / name) == 0o755}
    for name in archive.files_of(folder):
        if name.startswith("licenses/"):
            entries[f"{info}/{name}"] = (folder / name).read_bytes()
    for source in ("__init__.py", "commands.py"):
        entries[f"tandem/{source}"] = (HEAD / source).read_bytes()
    entries[f"{info}/METADATA"] = metadata(version).encode()
    entries[f"{info}/WHEEL"] = (f"Wheel-Version: 1.0\nGenerator: tandem deploy/package.sh\n"
                                f"Root-Is-Purelib: false\nTag: {tag}\n").encode()
    entries[f"{info}/entry_points.txt"] = entry_points().encode()
    record = [record_line(name, data) for name, data in sorted(entries.items())]
    entries[f"{info}/RECORD"] = ("\n".join([*record, f"{info}/RECORD,,"]) + "\n").encode()
    moment = time.gmtime(max(epoch, 315532800))[:6]  # a zip begins with 1980
    part = out.with_name(out.name + ".part")
    with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as wheel:
        # By custom the description of the wheel is at its end.
        for name in sorted(entries, key=lambda n: (n.startswith(info), n)):
            entry = zipfile.ZipInfo(name, moment)
            entry.create_system = 3
            entry.external_attr = (0o100755 if name in executable else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, entries[name], compresslevel=9)
    shutil.move(part, out)
    return out
