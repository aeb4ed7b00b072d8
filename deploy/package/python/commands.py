"""The commands of the package: each becomes a program of bin/ beside this file."""
import importlib.metadata
import importlib.util
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
NEED_TORCH = ("tandem-trainer", "tandem-rollout", "tandem-parity")
START_THOSE = ("tandem-launcher", "tandem-agent", "quickstart")


def _torch_wanted():
    """The requirement of the extra "torch", such as torch==2.11.0."""
    for line in importlib.metadata.requires("tandem") or []:
        if line.startswith("torch=="):
            return line.split(";")[0].strip()
    return "torch"


def _folder_of(package, *below):
    """A folder of an installed package, without importing it, or None."""
    try:
        found = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None
    for place in (found.submodule_search_locations or []) if found else []:
        folder = pathlib.Path(place).joinpath(*below)
        if folder.is_dir():
            return folder
    return None


def _find_torch(fetch):
    """Sees to it that programs find LibTorch; fetches it once where it is not installed."""
    folder = _folder_of("torch", "lib")
    wanted = _torch_wanted()
    if folder is None and not fetch:
        sys.exit(f"error: this program needs LibTorch: {sys.executable} -m pip install --no-deps {wanted}")
    if folder is None:
        print(f"==> LibTorch is not installed: pip installs {wanted} alone, without the CUDA "
              "packages that it lists (550 MB, 1.1 GB on disk)", flush=True)
        done = subprocess.run([sys.executable, "-m", "pip", "install", "--no-deps", wanted],
                              check=False)
        importlib.invalidate_caches()
        folder = _folder_of("torch", "lib")
        if done.returncode != 0 or folder is None:
            sys.exit(f"error: pip could not install {wanted}: check the network, or install it "
                     f"yourself: {sys.executable} -m pip install --no-deps {wanted}")
    # Beside this package the programs find both by themselves; elsewhere they are told.
    folders = [folder, _folder_of("nvidia", "cu13", "lib")]
    others = [str(f) for f in folders if f and HERE.parent not in f.parents]
    if others:
        before = os.environ.get("LD_LIBRARY_PATH")
        os.environ["LD_LIBRARY_PATH"] = ":".join([*others, *([before] if before else [])])


def _become(program, relative):
    only_asks = bool({"-h", "--help", "--version"}.intersection(sys.argv[1:]))
    if program in NEED_TORCH or (program in START_THOSE and not only_asks):
        _find_torch(fetch=not only_asks)
    os.environ["TANDEM_PYTHON"] = sys.executable
    path = HERE / relative
    os.execv(path, [str(path), *sys.argv[1:]])


def quickstart():
    """Model, data and the training of the quickstart, in the current directory."""
    _become("quickstart", "quickstart")


def tandem_controller():
    """The controller."""
    _become("tandem-controller", "bin/tandem-controller")


def tandem_trainer():
    """A trainer."""
    _become("tandem-trainer", "bin/tandem-trainer")


def tandem_rollout():
    """A rollout."""
    _become("tandem-rollout", "bin/tandem-rollout")


def tandem_launcher():
    """A controller with its workers."""
    _become("tandem-launcher", "bin/tandem-launcher")


def tandem_agent():
    """The workers of one host of several."""
    _become("tandem-agent", "bin/tandem-agent")


def tandem_parity():
    """Rollout against trainer on a checkpoint."""
    _become("tandem-parity", "bin/tandem-parity")


def tandemctl():
    """Attaches to a run; prepares models, data and configs."""
    _become("tandemctl", "bin/tandemctl")
