#!/usr/bin/env python3
"""Compiles every kernel (.cu) and reads ptxas's report: one line per kernel.

A kernel that spills registers or keeps anything in local memory is an error, and so is one without
tensor-core instructions where its file asks for them by a comment:
  // tensor cores                 every kernel of the file
  // tensor cores: Name, Name     these kernels
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

MARKER = re.compile(r"^// tensor cores(?:: *([\w, ]+))?\.?$", re.M)
ENTRY = re.compile(r"^(?:\.visible |\.weak )?\.entry (\w+)\(", re.M)
TENSOR_CORES = re.compile(r"^\s*(?:@!?%\w+ )?(?:mma\.sync|wgmma\.mma_async|tcgen05\.mma)", re.M)
COMPILING = re.compile(r"Compiling entry function '(\w+)'")
LOCAL = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers(?:.*?(\d+) bytes smem)?")


def parse_ptxas(text):
    """{mangled name: {registers, shared, stack, spills}} of the output of ptxas -v."""
    kernels, current = {}, None
    for line in text.splitlines():
        if found := COMPILING.search(line):
            current = kernels.setdefault(found[1], {})
        elif (found := LOCAL.search(line)) and current is not None:
            # Functions that a kernel calls follow it: what they use is the kernel's.
            current["stack"] = current.get("stack", 0) + int(found[1])
            current["spills"] = current.get("spills", 0) + int(found[2]) + int(found[3])
        elif (found := USED.search(line)) and current is not None:
            current["registers"] = int(found[1])
            current["shared"] = int(found[2] or 0)
    return kernels


def parse_ptx(text):
    """{mangled name: tensor-core instructions} of a PTX file's kernels."""
    starts = [(found.start(), found[1]) for found in ENTRY.finditer(text)]
    ends = [start for start, _ in starts[1:]] + [len(text)]
    return {name: len(TENSOR_CORES.findall(text[start:end].split("\n}", 1)[0]))
            for (start, name), end in zip(starts, ends)}


def has_name(mangled, name):
    """Whether the kernel is the function `name` (or a template of it) of some namespace."""
    return f"{len(name)}{name}" in mangled


def problems_of(source, ptx, ptxas):
    """Lines "what is wrong" of a file, from its text and both parsed outputs."""
    if not ptx:
        return ["it has no kernel"]
    bad = []
    for name in ptx:
        said = ptxas.get(name, {})
        if {"stack", "spills", "registers"} - said.keys():
            bad.append(f"{name}: ptxas does not say what it uses")
            continue
        if said["spills"]:
            bad.append(f"{name}: {said['spills']} bytes of spills")
        if said["stack"]:
            bad.append(f"{name}: {said['stack']} bytes of local memory")
    for marker in MARKER.finditer(source):
        wanted = [name.strip() for name in (marker[1] or "").split(",") if name.strip()]
        bad += [f"no kernel is called {name}, and its tensor cores are asked for"
                for name in wanted if not any(has_name(kernel, name) for kernel in ptx)]
        bad += [f"{kernel}: no tensor-core instruction" for kernel, instructions in ptx.items()
                if not instructions
                and (not wanted or any(has_name(kernel, name) for name in wanted))]
    return bad


def readable(names):
    """{mangled: short name}: without result, arguments and namespaces, if c++filt is there."""
    if not names or not shutil.which("c++filt"):
        return {name: name for name in names}
    lines = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True,
                           check=True).stdout.splitlines()
    short = {}
    for name, line in zip(names, lines):
        line = re.sub(r"\(anonymous namespace\)::|tandem::|cuda::|^void ", "", line)
        line = re.sub(r"\([A-Za-z]\w*\)", "", line)  # the types of template arguments
        short[name] = line[:line.index("(")] if "(" in line else line
    return short


def check_file(options, root, path, arch):
    """(table lines, problems) of one file for one architecture."""
    with tempfile.TemporaryDirectory() as folder:
        ptx = pathlib.Path(folder, "kernel.ptx")
        nvcc = [options.nvcc, "-std=c++20", f"-I{root}", *shlex.split(options.flags), "-ptx",
                f"-arch=compute_{arch}", str(path), "-o", str(ptx)]
        ptxas = [str(pathlib.Path(options.nvcc).parent / "ptxas"), "-v", f"-arch=sm_{arch}",
                 str(ptx), "-o", os.devnull]
        output = ""
        for command in (nvcc, ptxas):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            output = done.stdout + done.stderr
            if done.returncode:
                return [], [f"{shlex.join(command)}\n{output}"]
        instructions, said = parse_ptx(ptx.read_text()), parse_ptxas(output)
    bad = problems_of(path.read_text(), instructions, said)
    names = readable(list(instructions))
    table = []
    for kernel, count in instructions.items():
        used = said.get(kernel, {})
        numbers = [used.get(key, "?") for key in ("registers", "shared", "stack", "spills")]
        table.append(f"sm_{arch:<5}" + "".join(f"{number:>8}" for number in numbers + [count])
                     + f"  {path.name}: {names[kernel]}")
    for mangled, name in names.items():
        bad = [line.replace(mangled, name) for line in bad]
    return sorted(table), bad


def kernel_files(root):
    """The .cu files below `root`, without hidden folders and without build folders, whose name is
    anybody's choice: CMake leaves a .cu of its own there, which has no kernel."""
    files = []
    for folder, below, names in os.walk(root):
        if "CMakeCache.txt" in names:
            below.clear()
            continue
        below[:] = [name for name in below if not name.startswith(".")]
        files += [pathlib.Path(folder, name) for name in names if name.endswith(".cu")]
    return sorted(files)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", nargs="?", default=str(pathlib.Path(__file__).parents[2]))
    parser.add_argument("--nvcc", default=shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc")
    parser.add_argument("--arch", default="80,90,100", help="compute capabilities")
    parser.add_argument("--flags", default="-fmad=false", help="more options for nvcc")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    root = pathlib.Path(options.root).resolve()
    files = kernel_files(root)
    arches = [re.match(r"\d+", arch)[0] for arch in re.split("[,;]", options.arch)]
    pairs = [(path, arch) for path in files for arch in arches]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        results = list(pool.map(lambda pair: check_file(options, root, *pair), pairs))
    heads = ("regs", "shared", "local", "spills", "mma")
    print("arch    " + "".join(f"{head:>8}" for head in heads) + "  kernel")
    print("".join(line + "\n" for table, _ in results for line in table), end="")
    bad = [f"{path.relative_to(root)} (sm_{arch}): {line}"
           for (path, arch), (_, lines) in zip(pairs, results) for line in lines]
    if not files:
        bad.append(f"{root} has no .cu file: nothing was checked")
    kernels = sum(len(table) for table, _ in results)
    print("\n".join(bad + [f"kernels: {len(files)} files, {kernels} kernels, {len(bad)} problems"]))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
