"""A build of made-up programs, small enough to compile in a moment."""
import atexit
import functools
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "deploy/package"))
import collect  # noqa: E402

RUN_PATH = "$ORIGIN/../lib:$ORIGIN/../../torch/lib:$ORIGIN/../../nvidia/cu13/lib"
SOURCE = """
#include <stdio.h>
#include <string.h>
#ifdef TORCH
int fake_torch(void);
#else
static int fake_torch(void) { return 7; }
#endif
int main(int argc, char** argv) {
  if (argc > 1 && strcmp(argv[1], "--version") == 0) {
    puts("made-up 0.1.0, commit 0123456789ab, sources fedcba9876543210, Release, " CUDA);
    return 0;
  }
  for (int i = 1; i < argc; ++i) puts(argv[i]);
  puts(FOLDER);
  return fake_torch() == 7 ? 0 : 1;
}
"""


def compile_c(out, text, *flags):
    """A program or library from C."""
    out.parent.mkdir(parents=True, exist_ok=True)
    # A fixed name of the source: it is in the file's symbols.
    subprocess.run(["cc", "-x", "c", "-", "-o", out, *flags], input=text, text=True, check=True,
                   capture_output=True)


@functools.cache
def _made_before():
    """A build that others are copied from."""
    scratch = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, scratch)
    made = pathlib.Path(scratch)
    make_build(made, fresh=True)
    return made


HARDENED = ("-fPIE", "-pie", "-Wl,-z,relro,-z,now,-z,noexecstack")


def make_build(folder, leak="", cuda="CUDA 80-real 90-real 100", fresh=False, link=HARDENED):
    """folder/build as a build leaves it, with a LibTorch in folder/site; returns folder/build.

    leak: a text that stands in every program. cuda: the end of --version's line. fresh: compiled there,
    not copied. link: how programs are linked.
    """
    if not leak and not fresh and cuda != "CUDA off" and link == HARDENED:
        shutil.copytree(_made_before(), folder, dirs_exist_ok=True)
        name_torch(folder)
        return folder / "build"
    site, build = folder / "site", folder / "build"
    torch = site / "torch/lib/libfake_torch.so"
    compile_c(torch, "int fake_torch(void) { return 7; }", "-shared", "-fPIC",
              "-Wl,-soname,libfake_torch.so", "-Wl,--disable-new-dtags,-rpath,$ORIGIN/../../nvidia/lib:$ORIGIN")
    (site / "nvidia/cu13/lib").mkdir(parents=True)
    (site / "torch-9.9.dist-info").mkdir()
    (site / "torch-9.9.dist-info/LICENSE").write_text("as you like\n")
    (site / "torch-9.9.dist-info/METADATA").write_text("Name: torch\nVersion: 9.9\nLicense: BSD-3-Clause\n\nA library.\n")
    (site / "torch-9.9.dist-info/RECORD").write_text("torch/lib/libfake_torch.so,sha256=x,1\n")
    programs = build / "package/bin"
    for name in collect.PROGRAMS:
        with_torch = [] if name == "tandemctl" else ["-DTORCH", f"-L{torch.parent}", "-lfake_torch"]
        compile_c(programs / name, SOURCE, f'-DFOLDER="{leak}"', f'-DCUDA="{cuda}"',
                  f"-Wl,--disable-new-dtags,-rpath,{RUN_PATH}", "-Wl,--strip-all,--build-id=none",
                  *link, *with_torch)
    (build / "CMakeCache.txt").write_text("TANDEM_HARDENED:BOOL=ON\n")
    name_torch(folder)
    return build


def name_torch(folder):
    """The file in which a build tells where LibTorch and the CUDA runtime lie."""
    site = folder / "site"
    (folder / "build/package/torch_folders.txt").write_text(
        f"{site / 'torch/lib'}\n{site / 'nvidia/cu13/lib'}\n")
