"""Figures of a build from its directory: ninja's log and the headers that ninja recorded."""
import collections
import pathlib
import re

OBJECT = re.compile(r"\.(o|gch)$")


def edges_of(log):
    """{output: seconds} of .ninja_log's text; of several lines of an output the last one counts."""
    edges = {}
    for line in log.splitlines():
        fields = line.split("\t")
        if len(fields) == 5:
            edges[fields[3]] = (int(fields[1]) - int(fields[0])) / 1000
    return edges


def objects_of(edges):
    return {output: seconds for output, seconds in edges.items() if OBJECT.search(output)}


def most_expensive(seconds, count=20):
    """[(name, seconds)], the largest first."""
    return sorted(seconds.items(), key=lambda item: (-item[1], item[0]))[:count]


def source_of(output, build):
    """What an object of this build is made of, as one knows it: controller/CMakeFiles/tandem_x.dir/a.cc.o
    -> controller/a.cc; of a unit its target and its sources (deploy/cmake/TandemUnity.cmake)."""
    unit = re.search(r"(?:^|/)unity/([^/]+)/(\d+)\.cc\.o$", output)
    if unit:
        path = pathlib.Path(build, "unity", unit[1], f"{unit[2]}.cc")
        sources = re.findall(r'^#include "([^"]+)"', path.read_text(), re.M) if path.is_file() else []
        return f"{unit[1]} {unit[2]}: " + (" ".join(sources) or "its unit is gone")
    return re.sub(r"/?CMakeFiles/[^/]+\.dir", "", OBJECT.sub("", output)).lstrip("/")


def deps_of(text):
    """{object: [header or source]} of `ninja -t deps`."""
    deps, current = {}, None
    for line in text.splitlines():
        if not line.strip():
            current = None
        elif line[0] != " ":
            current = deps.setdefault(line.split(": #deps")[0], [])
        elif current is not None:
            current.append(line.strip())
    return deps


def readers_of(deps):
    """{file: objects whose compilation reads it}. Once in each, as include guards see to."""
    readers = collections.Counter()
    for files in deps.values():
        readers.update(set(files))
    return readers


def lines_read(readers, lines_in):
    """{file: its own lines x objects that read it}: adds up to what all compilers read.

    g++ does not tell the time of a header (clang's -ftime-trace would, for a build of its own), and
    sizes of preprocessed output count what a header includes in each header above it again.
    """
    return {file: lines_in(file) * count for file, count in readers.items()}


def is_header(file):
    return not re.search(r"\.(cc|cpp|c|cu)$", file)


# Where a header comes from: the folder of the project, or the package.
PLACES = (("absl", "/absl/"), ("protobuf", "/google/protobuf/"), ("gRPC", "/grpc"), ("spdlog", "/spdlog/"),
          ("fmt", "/fmt/"), ("nlohmann-json", "/nlohmann/"), ("yaml-cpp", "/yaml-cpp/"), ("CLI11", "/CLI/"),
          ("Catch2", "/catch2/"), ("standard library", "/c++/"), ("generated", "gen/tandem/"))


def place_of(file, root):
    if re.search(r"torch_include|site-packages/torch", file):
        return "LibTorch"
    for name, part in PLACES:
        if part in file:
            return name
    path = pathlib.PurePath(file)
    if path.is_absolute() and not path.is_relative_to(root):
        return "system"
    parts = path.relative_to(root).parts if path.is_absolute() else path.parts
    return "/".join(parts[:2]) if len(parts) > 2 else parts[0]


def by_place(lines, root):
    """{place: lines read}."""
    sums = collections.Counter()
    for file, count in lines.items():
        sums[place_of(file, root)] += count
    return dict(sums)


def verdict(seconds, target):
    if seconds is None:
        return "not measured"
    return "no target" if target is None else "met" if seconds <= target else "missed"


# Row of docs/reference/benchmarks.md, key of its figure, target in seconds.
TARGETS = (
    ("set-up and build of the quickstart's programs", "quickstart", 720),
    ("deploy/test.sh from nothing: set-up, build of everything, all tests", "all", 2100),
    ("one .cc of common touched (layout.cc)", "touched_source", 40),
    ("one header of common/base touched (clock.h)", "touched_header", 300),
    ("the header of common/base that nearly every source has touched (status.h)", "touched_widest_header",
     300),
    ("clean clone elsewhere, warm compiler cache", "warm_clone", 180),
)


def totals(figures):
    """{key of TARGETS: seconds} of what was measured."""
    parts = figures["seconds"]
    sums = {key: parts[key] for _, key, _ in TARGETS if key in parts}
    build = [parts.get(part) for part in ("set_up", "configure", "compile", "link")]
    if None not in build:
        if figures["targets"] == "quickstart":
            sums["quickstart"] = sum(build)
        elif "tests" in parts:
            sums["all"] = sum(build) + parts["tests"]
    return sums


def target_rows(figures):
    """A row for each of TARGETS, measured or not."""
    sums = totals(figures)
    return [{"row": row, "seconds": sums.get(key), "target": target, "verdict": verdict(sums.get(key), target)}
            for row, key, target in TARGETS]
