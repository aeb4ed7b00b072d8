#!/usr/bin/env python3
"""Runs the steps of a Containerfile in an unpacked root, without a container engine.

usage: run_steps.py CONTAINERFILE ROOT [ARGUMENT...]     as root, from the folder that COPY copies from

RUN, COPY, ENV, WORKDIR; FROM is what ROOT is already (debootstrap --variant=minbase bookworm ROOT).
With arguments, ENTRYPOINT is run with them at the end. ROOT needs /proc and /dev:
both are mounted for the length of the steps, in a mount namespace of their own.
"""
import glob
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys


def steps_of(text):
    """[(instruction, rest)] with continued lines joined and comments left out."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n", " ", "\n".join(lines))
    return [tuple(line.strip().split(None, 1)) for line in joined.splitlines() if line.strip()]


class Steps:
    """What the steps so far have set."""

    def __init__(self, root):
        self.root = root
        self.environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                            "HOME": "/root", "DEBIAN_FRONTEND": "noninteractive"}
        # As an engine hands it on: how the network is reached.
        self.environment |= {k: v for k, v in os.environ.items()
                             if k.lower().endswith("_proxy") or k.startswith("PIP_")}
        self.folder = "/"
        self.entry = None

    def run(self, command):
        """A command in the root; ends the program where it fails."""
        done = subprocess.run(["chroot", self.root, "/usr/bin/env", "-C", self.folder, *command],
                              env=self.environment, check=False)
        if done.returncode != 0:
            sys.exit(f"error: exit code {done.returncode} of {' '.join(command)}")

    def copy(self, words):
        """Files alone; the target is a folder where it ends with a slash."""
        *patterns, target = words
        sources = [source for pattern in patterns for source in sorted(glob.glob(pattern))]
        if not sources:
            sys.exit(f"error: nothing matches {' '.join(patterns)}: run deploy/package.sh first")
        place = self.root / target.lstrip("/")
        (place if target.endswith("/") else place.parent).mkdir(parents=True, exist_ok=True)
        for source in sources:
            shutil.copy2(source, place)

    def do(self, instruction, rest):
        """One step."""
        if instruction == "RUN":
            self.run(["/bin/sh", "-c", rest])
        elif instruction == "COPY":
            self.copy(rest.split())
        elif instruction == "ENV":
            name, value = rest.split("=", 1)
            self.environment[name] = value
        elif instruction == "WORKDIR":
            self.folder = rest
            (self.root / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
        elif instruction == "ENTRYPOINT":
            self.entry = json.loads(rest)
        elif instruction != "FROM":
            sys.exit(f"error: {instruction} is not known here")


def main():
    """All steps, in a mount namespace of their own."""
    if len(sys.argv) < 3 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        sys.exit(0 if "--help" in sys.argv or "-h" in sys.argv else 64)
    if os.environ.get("TANDEM_IN_NAMESPACE") != "yes":
        os.execvpe("unshare", ["unshare", "--mount", "--pid", "--fork", sys.executable, *sys.argv],
                   {**os.environ, "TANDEM_IN_NAMESPACE": "yes"})
    root = pathlib.Path(sys.argv[2]).resolve()
    subprocess.run(["mount", "-t", "proc", "proc", root / "proc"], check=True)
    for folder in ("dev", "sys"):
        subprocess.run(["mount", "--rbind", f"/{folder}", root / folder], check=True)
    shutil.copyfile("/etc/resolv.conf", root / "etc/resolv.conf")
    steps = Steps(root)
    for instruction, rest in steps_of(pathlib.Path(sys.argv[1]).read_text()):
        print(f"==> {instruction} {rest}", flush=True)
        steps.do(instruction, rest)
    if len(sys.argv) > 3 and steps.entry:
        arguments = [a for a in sys.argv[3:] if a != "--"]
        print(f"==> {' '.join(steps.entry + arguments)}", flush=True)
        steps.run([*steps.entry, *arguments])


if __name__ == "__main__":
    main()
