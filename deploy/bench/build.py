#!/usr/bin/env python3
"""How long a build takes: a clean clone of the newest commit in a temporary folder, no compiler cache.

  deploy/bench/build.py [--targets quickstart|all] [--no-tests] [--no-set-up] [--no-warm] [--no-warm-clone]
                        [--record-costs] [--out DIR] [--work DIR]
--targets        the quickstart's programs (default), or everything with the tests, which then run
--no-tests       everything is built and no test runs
--no-set-up      packages and LibTorch of this checkout are used: the row set-up is not measured
--no-warm        nothing is built again after a source or a header was touched
--no-warm-clone  no second and third clone: one fills a compiler cache of its own, the other finds it full
--record-costs   with --targets all and tests: deploy/scripts/sanitizer_costs.txt, by which sanitizers' turns are
                 dealt, is written anew from this build and its tests
--out            folder of the JSON file (default build/bench)
--work           folder of the clones, removed afterwards (default: a new one under TMPDIR)
Prints the tables that docs/reference/benchmarks.md explains. Let nothing else run meanwhile.
"""
import argparse
import datetime
import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile
import time

import build_figures as figures
from machine import ROOT, commit, die_with_us, machine
from training_runs import end_on_signals, table, text

PROGRAMS = ["tandem-controller", "tandem-trainer", "tandem-rollout", "tandem-parity", "tandemctl",
            "tandem-launcher", "tandem-agent"]
# In the middle of common: others are above it and below it.
TOUCHED_SOURCE = "common/weights/layout.cc"
TOUCHED_HEADER = "common/base/clock.h"
TOUCHED_WIDEST_HEADER = "common/base/status.h"  # nearly every source has it


class Failure(Exception):
    """A command failed: there is nothing to measure."""


class Clone:
    """A clean clone and its build directory."""

    def __init__(self, folder, variables):
        self.folder = folder
        self.build = folder / "build"
        self.environment = {**os.environ, **variables, "TANDEM_BUILD_DIR": str(self.build)}
        subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(folder)], check=True)

    def timed(self, name, *command):
        """(seconds, processor seconds) of a command, whose output goes to a log."""
        print(f"--- {name}: {' '.join(command)[:160]}", flush=True)
        log = self.folder.parent / f"{self.folder.name}-{name.replace(' ', '-')}.log"
        before, begin = processor_seconds(), time.monotonic()
        with open(log, "w") as out:
            code = subprocess.run(list(command), cwd=self.folder, env=self.environment, stdout=out,
                                  stderr=subprocess.STDOUT, preexec_fn=die_with_us).returncode
        seconds = time.monotonic() - begin
        if code != 0:
            print(tail(log), file=sys.stderr)
            raise Failure(f"{name} ended with {code}; its last lines are above")
        print(f"    {seconds:.0f} s", flush=True)
        return seconds, processor_seconds() - before

    def ninja(self, name, *targets):
        return self.timed(name, "ninja", "-C", str(self.build), "-j", self.jobs(), *targets)

    def jobs(self):
        """As many as deploy/build.sh takes."""
        return subprocess.run(["bash", "-c", "source deploy/common.sh; jobs_for_build"], cwd=self.folder,
                              env=self.environment, capture_output=True, text=True, check=True).stdout

    def tool(self, *arguments):
        return subprocess.run(["ninja", "-C", str(self.build), "-t", *arguments], env=self.environment,
                              capture_output=True, text=True, check=True).stdout

    def objects(self, targets):
        """What compilers make for the targets; links and archives come after all of it."""
        inputs = self.tool("inputs", *(targets or ["all"])).split("\n")
        return [name for name in inputs if figures.OBJECT.search(name)]


def processor_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def tail(log, count=30):
    return "\n".join(log.read_text(errors="replace").splitlines()[-count:])


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", choices=("quickstart", "all"), default="quickstart")
    for name in ("tests", "set-up", "warm", "warm-clone"):
        parser.add_argument(f"--no-{name}", action="store_true")
    parser.add_argument("--record-costs", action="store_true")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "bench")
    parser.add_argument("--work", type=pathlib.Path)
    args = parser.parse_args()
    if args.record_costs and (args.targets != "all" or args.no_tests):
        parser.error("--record-costs needs --targets all and the tests: costs are those of all objects and tests")
    return args


def set_up(clone, args, result):
    if args.no_set_up:
        return
    result["seconds"]["set_up"], _ = clone.timed("set-up", "deploy/setup.sh")


def configure(clone):
    """Nothing but CMake: a target that needs no compiler."""
    return clone.timed("configure", "deploy/build.sh", "--no-cuda", "help")


def cold_build(clone, args, result):
    targets = PROGRAMS if args.targets == "quickstart" else []
    seconds, used = result["seconds"], 0
    seconds["configure"], used = configure(clone)
    objects = clone.objects(targets)
    for part, wanted in (("compile", objects), ("link", targets)):
        seconds[part], more = clone.ninja(part, *wanted)
        used += more
    result["processor_seconds"] = used
    edges = figures.edges_of((clone.build / ".ninja_log").read_text())
    made = figures.objects_of(edges)
    result["objects"] = len(made)
    result["object_seconds"] = sum(made.values())
    result["most_expensive_objects"] = [(figures.source_of(name, clone.build), spent)
                                        for name, spent in figures.most_expensive(made)]
    headers(clone, result)


def headers(clone, result):
    """Lines that compilers read, by header and by where it comes from."""
    counts = {}

    def lines_in(file):
        if file not in counts:
            path = pathlib.Path(clone.build, file)
            counts[file] = path.read_bytes().count(b"\n") if path.is_file() and path.suffix != ".gch" else 0
        return counts[file]

    readers = figures.readers_of(figures.deps_of(clone.tool("deps")))
    lines = {file: count for file, count in figures.lines_read(readers, lines_in).items()
             if figures.is_header(file)}
    result["lines_of_headers"] = sum(lines.values())
    result["most_expensive_headers"] = [(file.replace(f"{clone.folder}/", ""), count, readers[file])
                                        for file, count in figures.most_expensive(lines)]
    result["lines_by_place"] = figures.most_expensive(figures.by_place(lines, clone.folder))


def warm_builds(clone, args, result):
    targets = PROGRAMS if args.targets == "quickstart" else []
    for key, name in (("touched_source", TOUCHED_SOURCE), ("touched_header", TOUCHED_HEADER),
                      ("touched_widest_header", TOUCHED_WIDEST_HEADER)):
        (clone.folder / name).touch()
        result["seconds"][key], _ = clone.ninja(f"touched {pathlib.PurePath(name).name}", *targets)


def warm_clone(work, variables, args, result):
    """A clone that fills an empty compiler cache, and one in another folder that finds it full."""
    targets = PROGRAMS if args.targets == "quickstart" else []
    variables = {name: value for name, value in variables.items() if name != "CCACHE_DISABLE"}
    variables["CCACHE_DIR"] = str(work / "ccache")
    for key, name in (("cache_filled", "filling"), ("warm_clone", "in another place/warm")):
        (work / name).parent.mkdir(exist_ok=True)
        clone = Clone(work / name, variables)
        if "TANDEM_HOME" not in variables:  # LibTorch is downloaded once
            variables["TANDEM_HOME"] = str(work / "cold")
            clone.environment.update(variables)
        configured, _ = configure(clone)
        built, _ = clone.ninja("warm build", *targets)
        result["seconds"][key] = configured + built
        shutil.rmtree(clone.folder)


def show(result):
    seconds = result["seconds"]
    table([["part", "seconds"], *([part.replace("_", " "), text(spent)] for part, spent in seconds.items()),
           ["objects", str(result["objects"])],
           ["processor seconds", text(result["processor_seconds"], 0)]])
    table([["object", "seconds"], *([name, text(spent)] for name, spent in result["most_expensive_objects"])])
    table([["header", "lines x objects", "objects"],
           *([name, str(count), str(objects)] for name, count, objects in result["most_expensive_headers"])])
    table([["headers of", "lines x objects"], *([name, str(count)] for name, count in result["lines_by_place"])])
    table([["row", "seconds", "target", "verdict"],
           *([row["row"], text(row["seconds"]), f"<= {row['target']}", row["verdict"]]
             for row in result["rows"])])


def measure(work, args, result):
    variables = {"CCACHE_DISABLE": "1"}
    if args.no_set_up:
        variables["TANDEM_HOME"] = os.environ.get("TANDEM_HOME", str(ROOT))
    clone = Clone(work / "cold", variables)
    set_up(clone, args, result)
    cold_build(clone, args, result)
    if args.targets == "all" and not args.no_tests:
        result["seconds"]["tests"], _ = clone.timed("tests", "deploy/test.sh")
        if args.record_costs:
            subprocess.run([sys.executable, str(ROOT / "deploy/scripts/sanitize_plan.py"), "--record",
                            str(clone.build)], check=True)
    if not args.no_warm:
        warm_builds(clone, args, result)
    if not args.no_warm_clone:
        warm_clone(work, variables, args, result)


def main():
    args = arguments()
    end_on_signals()
    args.out = args.out.resolve()
    result = {"commit": commit(), "started": datetime.datetime.now().astimezone().isoformat(),
              "machine": machine(), "targets": args.targets, "compiler_cache": "off", "seconds": {}}
    print(f"commit {result['commit']}\n" + "\n".join(f"{k}: {v}" for k, v in result["machine"].items()))
    if result["commit"].endswith("+"):
        print("note: files differ from the commit; what is measured is the commit")
    work = pathlib.Path(tempfile.mkdtemp(prefix="tandem-build-", dir=args.work))
    try:
        measure(work, args, result)
    except (Failure, subprocess.CalledProcessError) as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(work, ignore_errors=True)
    result["rows"] = figures.target_rows(result)
    show(result)
    args.out.mkdir(parents=True, exist_ok=True)
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    path = args.out / f"build-{args.targets}-{stamp}-{result['commit'].rstrip('+')}.json"
    path.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    print(f"\nwritten: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
