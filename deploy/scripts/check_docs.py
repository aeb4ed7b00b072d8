#!/usr/bin/env python3
"""Checks that what the documentation names exists: usage check_docs.py [ROOT].

In every .md file, and in the comments of configs/ and docs/examples/: links with their headings, paths that
begin with a folder of the repository (globs allowed), bare names of source files, and names of tests; and the
messages in tables headed "message", word for word between their dots (…). Every page of docs/ but the
decisions must be reachable by links from README.md. Pages of docs/ and headings of README.md that code and
scripts name, in messages or comments, exist too.

The table of threads in docs/explanation/architecture.md has the threads that the sources name, and no others.

In comments of C++ files: names of files, which must be whole paths, ends of paths at a slash, or bare names of files of
the repository. NOT_OURS lists those of other projects and of examples; what protoc generates may be named as well.
"""
import glob
import pathlib
import re
import sys

FOLDERS = "common|configs|controller|deploy|docs|parity|proto|rollout_worker|tests|trainer_worker"
PATH = re.compile(rf"(?<![\w./-])(?:\./)?((?:{FOLDERS})/[\w./*-]*[\w*])")
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)")
SOURCE = re.compile(r"`([\w-]+\.(?:cc|h|proto|py|sh))`")
TEST = re.compile(r"`(\w+_test)`")
CODE = (".cc", ".h", ".cu", ".cmake", ".py", ".sh", ".proto", ".txt")
PAGE_IN_CODE = re.compile(r"\bdocs/(?:start|guides|reference|explanation)/[\w/.-]+\.md")
README_IN_CODE = re.compile(r'README(?:\.md)?, \\?"([^"\\]+)\\?"')
# A comment is the last group. Literals come first, so that a // inside one begins no comment.
COMMENT = re.compile(r'''R"([^()\s\\]{0,16})\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|'''
                     r"(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])*'|(//[^\n]*|/\*.*?\*/)", re.S)
FILE = re.compile(r"(?<![\w./<>*{}-])((?:[\w.-]+/)*[\w-][\w.-]*\.(?:h|cc|cu|proto|py|sh|md|yaml))\b(?![\w/(*-])")
NOT_OURS = {
    "ATen.h", "nccl.h", "sysexits.h",  # of libraries
    "docs/gguf.md",  # of ggml
    "core_algos.py", "debug/metrics.py", "docs/algo/rollout_corr_math.md", "metric_utils.py", "padding.py",  # of verl
    "reward_score/gsm8k.py", "rollout_corr_helper.py", "utils/seqlen_balancing.py",
    "a.yaml", "configs/a.yaml",  # examples of a user's file
}


THREADS = "docs/explanation/architecture.md"
# A thread's name where the thread is made: NamedThread("a", make_unique<EngineThread>("a", NamedThread b("a", and
# member_("a", [ in a constructor's list.
THREAD = re.compile(r'\b(?:(?:NamedThread|EngineThread)(?:>|\s+\w+)?\s*\(\s*"(?P<made>[\w -]+)"'
                    r'|\w+_\s*\(\s*"(?P<member>[\w -]+)",\s*\[)')


class Tree:
    """The repository's files under FOLDERS, found in one walk; each is read once, when it is first asked for."""

    def __init__(self, root):
        self.root = root
        self.paths = [path for folder in FOLDERS.split("|") for path in sorted((root / folder).rglob("*"))]
        self.texts = {}

    def read(self, *suffixes, tests=True):
        """Paths and texts of the files with one of these suffixes, without the folder tests where `tests` is false."""
        for path in self.paths:
            if path.suffix not in suffixes or (not tests and path.relative_to(self.root).parts[0] == "tests"):
                continue
            if path not in self.texts:
                if not path.is_file():
                    continue
                self.texts[path] = path.read_text(errors="replace")
            yield path, self.texts[path]


def pages(root):
    """The files that are read."""
    found = [*root.glob("*.md"), *root.glob("docs/**/*"), *root.glob("configs/**/*.yaml"),
             *root.glob(".ci/*")]
    return sorted(p for p in found if p.is_file() and p.suffix != ".pyc")


def literals(tree):
    """All string literals of the sources, with the pieces of each call joined."""
    sources = "\n".join(text for _, text in tree.read(".cc", ".h"))
    return re.sub(r'"\s*\n\s*"', "", sources).replace('\\"', '"')


def messages_of(page, text):
    """Lines about messages of a page that no source has."""
    in_table = False
    for number, line in enumerate(page.read_text(errors="replace").splitlines(), 1):
        in_table = line.startswith("| message ") or (in_table and line.startswith("|"))
        cell = re.match(r"\| `([^`]+)` \|", line)
        if in_table and cell:
            for part in cell[1].split("…"):
                if part.strip() not in text:
                    yield f"{page.name}:{number}: no message has \"{part.strip()}\""


def dead_in_code(tree):
    """Lines about pages and headings of README.md that code names and that do not exist. Tests are not
    read: they name made-up pages."""
    root = tree.root
    headings = headings_of(root / "README.md") if (root / "README.md").exists() else set()
    for path, text in tree.read(*CODE, tests=False):
        for number, line in enumerate(text.splitlines(), 1):
            dead = [name for name in PAGE_IN_CODE.findall(line) if not (root / name).exists()]
            dead += [f'heading "{name}" of README.md' for name in README_IN_CODE.findall(line)
                     if name.lower().replace(" ", "-") not in headings]
            for what in dead:
                yield f"{path.relative_to(root)}:{number}: {what} does not exist"


def headings_of(page):
    """The names by which links reach the headings of a page, as GitHub makes them."""
    text = re.sub(r"```.*?```", "", page.read_text(errors="replace"), flags=re.S)
    return {re.sub(r"[^\w\- ]", "", re.sub(r"\]\([^)]*\)", "", heading).lower()).strip().replace(" ", "-")
            for heading in re.findall(r"^#+ (.*)$", text, re.M)}


def dead_links(page, line):
    """Links of a line to files or headings that do not exist."""
    for link, heading in LINK.findall(line):
        target = page.parent / link if link else page
        if "://" in link or not (link or heading):
            continue
        if not target.exists():
            yield f"link to {link}"
        elif heading and target.suffix == ".md" and heading not in headings_of(target):
            yield f"link to {link}#{heading}"


def unreachable(root):
    """Pages of docs/ that no chain of links from README.md reaches."""
    seen, todo = set(), [root / "README.md"]
    while todo:
        page = todo.pop()
        if page in seen or not page.exists():
            continue
        seen.add(page)
        todo += [(page.parent / link).resolve() for link, _ in LINK.findall(page.read_text(errors="replace"))
                 if link.endswith(".md") and "://" not in link]
    return [f"{page.relative_to(root)}: no chain of links leads here from README.md"
            for page in sorted(root.glob("docs/**/*.md")) if page.parent.name != "adr" and page not in seen]


def problems_of(page, root, names, tests):
    """Lines "what is wrong" of one page."""
    for number, line in enumerate(page.read_text(errors="replace").splitlines(), 1):
        missing = []
        if page.suffix == ".md":
            missing += dead_links(page, line)
            missing += [f"file {name}" for name in SOURCE.findall(line) if name not in names]
            missing += [f"test {name}" for name in TEST.findall(line) if name not in tests]
        missing += [f"path {path}" for path in PATH.findall(line)
                    if not glob.glob(str(root / path)) and not glob.glob(str(root / path) + ".*")]
        for what in missing:
            yield f"{page.relative_to(root)}:{number}: {what} does not exist"


def ends_of_paths(tree):
    """Every name by which a comment may call a file of the repository."""
    ends = set()
    for path in tree.paths + list(tree.root.glob("*")):
        parts = path.relative_to(tree.root).parts
        ends.update("/".join(parts[first:]) for first in range(len(parts)))
    return ends


def threads_of(tree):
    """Lines about threads that only the sources or only the table of threads have."""
    made = {found["made"] or found["member"]: path for path, text in tree.read(".h", ".cc", tests=False)
            for found in THREAD.finditer(text)}
    page = tree.root / THREADS
    text = page.read_text() if page.exists() else ""
    table = re.search(r"^### Threads$(.*?)(?=^#|\Z)", text, re.M | re.S)
    told = set(re.findall(r"^\| `([\w -]+)` \|", table[1], re.M)) if table else set()
    return ([f"{made[name].relative_to(tree.root)}: thread {name} is not in the table of {THREADS}"
             for name in sorted(made.keys() - told)]
            + [f"{THREADS}: no source makes a thread {name}" for name in sorted(told - made.keys())])


def problems_of_comments(path, text, root, ends):
    """Lines "what is wrong" of the comments of a C++ file."""
    for comment in COMMENT.finditer(text):
        for name in FILE.finditer(comment[2] or ""):
            if name[1] in ends or name[1] in NOT_OURS or name[1].endswith((".pb.h", ".pb.cc")):
                continue
            number = text.count("\n", 0, comment.start(2) + name.start()) + 1
            yield f"{path.relative_to(root)}:{number}: file {name[1]} does not exist"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__ + "/../../..").resolve()
    tree = Tree(root)
    names = {path.name for path in tree.paths}
    tests = {name for path, text in tree.read(".txt") if path.name == "CMakeLists.txt"
             for name in re.findall(r"NAME (\w+_test)\b", text)}
    tests.update(f"e2e_{path.stem}" for path in root.glob("tests/e2e/*_test.cc"))
    found = pages(root)
    bad = [line for page in found for line in problems_of(page, root, names, tests)]
    bad += unreachable(root)
    bad += dead_in_code(tree)
    bad += threads_of(tree)
    text = literals(tree)
    bad += [line for page in found for line in messages_of(page, text)]
    ends = ends_of_paths(tree)
    sources = list(tree.read(".h", ".cc", ".cu"))
    bad += [line for path, text in sources for line in problems_of_comments(path, text, root, ends)]
    if not found:
        bad.append(f"{root} has no page and no configuration: nothing was checked")
    print("\n".join(bad + [f"docs: {len(found)} files, comments of {len(sources)}, "
                           f"{len(bad)} names of things that do not exist"]))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
