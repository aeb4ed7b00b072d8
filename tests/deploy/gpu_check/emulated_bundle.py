"""A bundle of the emulated programs, away from the build: emulated_bundle.py BUILD TORCH_PACKAGE."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
GRPO, DRIVER = "three GRPO steps, rollout against trainer", "driver, regions, pinned memory, graphs"


def make_bundle(build, folder):
    """The emulated programs under the names of the real ones."""
    names = folder / "names"
    names.mkdir()
    for name in ("launcher", "controller", "trainer", "rollout"):
        (names / f"tandem-{name}").symlink_to(build / f"emulated/tandem-{name}")
    for name in ("gpu_memory_test", "gpu_grpo_test"):
        (names / name).symlink_to(build / f"tests/{name}_emulated")
    script = ROOT / "deploy/scripts/gpu_check_bundle.sh"
    subprocess.run([script, folder / "made", *sorted(names.iterdir())], check=True)
    shutil.move(folder / "made", folder / "bundle")
    return folder / "bundle"


def run(bundle, only, packages):
    """What gpu_check.sh says with a Python that sees these packages alone, and its exit code."""
    python = bundle.parent / "python"
    python.mkdir(exist_ok=True)
    (python / "python3").write_text(f"#!/bin/sh\nPYTHONPATH={packages} exec {sys.executable} -S \"$@\"\n")
    (python / "python3").chmod(0o755)
    done = subprocess.run([bundle / "gpu_check.sh", "--only", only, "--budget", "500"],
                          cwd=bundle.parent, capture_output=True, text=True,
                          env={"PATH": f"{python}:{os.environ['PATH']}"})
    print(done.stdout + done.stderr, flush=True)
    for log in (bundle.parent / "gpu_check_logs").iterdir():
        print(log.name, log.read_text()[-6000:], sep="\n", flush=True)
    return done.stdout, done.returncode


def require(told, pattern):
    assert re.search(pattern, told, re.M), f"nothing said {pattern}"


def main():
    build, torch = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        bundle = make_bundle(build, folder)
        # The table's limits are for a GPU.
        table = bundle / "gpu_checks.txt"
        for row in (DRIVER, GRPO):
            text, changed = re.subn(rf"^((?:! )?{row}) \| \d+", r"\1 | 400", table.read_text(),
                                    flags=re.M)
            assert changed == 1, row
            table.write_text(text)
        told, code = run(bundle, DRIVER, folder)
        assert code == 0
        require(told, f"^{DRIVER} +met ")
        # Nothing of the builder's folders is left in the programs: without its torch there is none.
        told, code = run(bundle, GRPO, folder)
        assert code == 1
        require(told, f"^{GRPO} +not run ")
        require(told, f"^  python3 here has no torch .*libtorch_cpu.so.*\n    {GRPO}$")
        told, code = run(bundle, GRPO, torch.parent)
        assert code == 0
        require(told, rf"^{GRPO} +met +\d+ tokens")
        require(told, "LibTorch: 2.11")


if __name__ == "__main__":
    main()
