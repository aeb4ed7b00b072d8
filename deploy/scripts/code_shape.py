"""Counts of the C++ code's shape, for code_figures.py, which prints them, and check_shape.py, which limits them.

Reads the text alone: a class's functions are the declarations between its braces, so that macros and unusual layouts
are miscounted by a few. The ops that a class takes from a .def file are one list and not counted.
"""
import collections
import re

TOPS = ("common", "controller", "trainer_worker", "rollout_worker", "parity", "deploy")
MOST_FILES, MOST_FUNCTIONS = 24, 15
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)
NAMESPACE = re.compile(r"^namespace ([\w:]+) \{", re.M)
ANONYMOUS = re.compile(r"^namespace \{$.*?^\}  // namespace$", re.M | re.S)
TYPE = re.compile(r"^(?:enum class|enum|struct|class) (\w+)(?: final)?(?: : [^;{]*)? \{", re.M)
CLASS = re.compile(r"^(?:template\s*<[^>]*>\s*)?(class|struct)\s+(\w+)[^;{(]*\{", re.M)


def sources(root, tops):
    """{path from the root: text} of hand-written C++ and CUDA."""
    return {str(path.relative_to(root)): path.read_text(encoding="utf-8", errors="replace")
            for top in tops for path in sorted((root / top).rglob("*"))
            if path.suffix in (".h", ".cc", ".cu", ".def") and path.is_file()}


def folder(path):
    return path.rsplit("/", 1)[0]


def body_of(text, begin):
    """The text between the brace at `begin` and its partner, without what lies in inner braces."""
    depth, kept = 0, []
    for char in text[begin:]:
        depth += (char == "{") - (char == "}")
        if depth == 0:
            break
        if depth == 1 and char != "{":
            kept.append(char)
    return "".join(kept)


def public_functions(text):
    """{class: number of its public functions} of a source."""
    plain = re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', "", text, flags=re.S)
    found = {}
    for match in CLASS.finditer(plain):
        access, count = "public" if match[1] == "struct" else "private", 0
        for part in re.split(r"\b(public|protected|private)\s*:", body_of(plain, match.end() - 1)):
            if part in ("public", "protected", "private"):
                access = part
            elif access == "public":
                # A declaration has a parameter list; using, friend and members with initialisers have none.
                count += len(re.findall(r"\w\s*\([^;{}]*\)[^;{}=(]*(?:=\s*(?:0|default|delete)\s*)?[;}]", part))
        found[match[2]] = count
    return found


def types_of(text):
    """Qualified names of the types that a source defines in a named namespace, without those inside a class."""
    plain = ANONYMOUS.sub("", text)
    spaces = [(match.start(), match[1]) for match in NAMESPACE.finditer(plain)]
    return {"::".join([*(name for begin, name in spaces if begin < match.start())][-1:] + [match[1]])
            for match in TYPE.finditer(plain)}


def defined_twice(texts):
    """{type: the files that define it}, of types that more than one file defines."""
    files = collections.defaultdict(list)
    for path, text in sorted(texts.items()):
        for name in types_of(text):
            files[name].append(path)
    return {name: paths for name, paths in sorted(files.items()) if len(paths) > 1}


def files_of_folders(texts):
    """{folder: number of its files}, without those of its sub-folders."""
    return collections.Counter(folder(path) for path in texts)


def arrows_between_folders(texts):
    """{(folder, folder that it includes): number of such includes}."""
    return collections.Counter((folder(path), folder(name)) for path, text in texts.items()
                               for name in INCLUDE.findall(text) if name in texts and folder(name) != folder(path))


def mutual(arrows):
    """The pairs of folders that include each other."""
    return sorted((a, b) for a, b in arrows if a < b and (b, a) in arrows)
