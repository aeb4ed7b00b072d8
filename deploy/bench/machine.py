"""Commit and machine, on which figures depend; and running a command and keeping its lines."""
import ctypes
import os
import pathlib
import platform
import re
import signal
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def commit():
    """The commit, with a + where files differ from it."""
    def git(*arguments):
        return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True,
                              check=False).stdout.strip()
    return (git("rev-parse", "--short=12", "HEAD") or "unknown") + (
        "+" if git("status", "--porcelain", "--untracked-files=no") else "")


def machine():
    """CPU, instruction sets, memory, load."""
    text = pathlib.Path("/proc/cpuinfo").read_text()
    name = re.search(r"^model name\s*:\s*(.*)$", text, re.M)
    flags = set((re.search(r"^flags\s*:\s*(.*)$", text, re.M) or [""])[0].split())
    isa = [f for f in ("avx2", "fma", "avx512f", "avx512_bf16", "amx_bf16") if f in flags]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {"cpu": name[1] if name else platform.processor(), "cores": os.cpu_count(),
            "usable_cores": len(os.sched_getaffinity(0)), "memory_gib": round(memory, 1),
            "isa": isa, "forced_isa": os.environ.get("TANDEM_CPU_ISA", ""),
            "kernel": platform.release(), "load_before": round(os.getloadavg()[0], 2)}


def die_with_us():
    """In a child: SIGTERM where its parent ends, however that ends. The launcher ends its workers then."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def run(command, failed, env=None):
    """Its lines, shown while they come; a command that fails is added to `failed`."""
    print(f"--- {' '.join(map(str, command))}", flush=True)
    lines = []
    with subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True,
                          preexec_fn=die_with_us, env={**os.environ, **(env or {})}) as process:
        for line in process.stdout:
            print("   ", line, end="", flush=True)
            lines.append(line.rstrip())
    if process.returncode != 0:
        failed.append(f"{command[0]} ended with {process.returncode}")
        print(f"error: {failed[-1]}", file=sys.stderr)
    return lines
