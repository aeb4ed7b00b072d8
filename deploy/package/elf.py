"""Reads and changes ELF files for packing: run path, needed libraries, symbol versions."""
import re
import struct
import subprocess

DT_NULL, DT_NEEDED, DT_STRTAB, DT_STRSZ, DT_RPATH, DT_RUNPATH = 0, 1, 5, 10, 15, 29


class NotElf(ValueError):
    """The file is none of 64 bits and little-endian order."""


def _sections(data):
    """(type, offset, size) of each section header."""
    if data[:6] != b"\x7fELF\x02\x01":
        raise NotElf("no 64-bit ELF file")
    table, = struct.unpack_from("<Q", data, 0x28)
    entry, count = struct.unpack_from("<HH", data, 0x3A)
    for i in range(count):
        kind, = struct.unpack_from("<I", data, table + i * entry + 4)
        offset, size = struct.unpack_from("<QQ", data, table + i * entry + 24)
        link, = struct.unpack_from("<I", data, table + i * entry + 40)
        yield kind, offset, size, link


def _dynamic(data):
    """[(tag, value)] of the dynamic section, and the offset of its strings."""
    sections = list(_sections(data))
    for kind, offset, size, link in sections:
        if kind == 6:  # SHT_DYNAMIC
            entries = []
            for at in range(offset, offset + size, 16):
                tag, value = struct.unpack_from("<qQ", data, at)
                if tag == DT_NULL:
                    break
                entries.append((tag, value))
            return entries, sections[link][1]
    raise NotElf("it has no dynamic section")


def _string(data, at):
    return data[at:data.index(b"\0", at)].decode()


def needed(path):
    """Names of the libraries that a file asks for itself."""
    data = path.read_bytes()
    entries, strings = _dynamic(data)
    return [_string(data, strings + value) for tag, value in entries if tag == DT_NEEDED]


def run_path(path):
    """Its DT_RPATH or DT_RUNPATH, "" where it has none."""
    data = path.read_bytes()
    entries, strings = _dynamic(data)
    for tag, value in entries:
        if tag in (DT_RPATH, DT_RUNPATH):
            return _string(data, strings + value)
    return ""


def shorten_run_path(path, folders):
    """Sets the run path in place; the file keeps its size, so that it cannot become longer."""
    data = bytearray(path.read_bytes())
    entries, strings = _dynamic(data)
    for tag, value in entries:
        if tag in (DT_RPATH, DT_RUNPATH):
            old = _string(data, strings + value).encode()
            new = folders.encode()
            if len(new) > len(old):
                raise ValueError(f"{path}: no room for the run path {folders} where {old.decode()} is")
            start = strings + value
            data[start:start + len(old)] = new.ljust(len(old), b"\0")
            path.write_bytes(data)
            return
    raise ValueError(f"{path} has no run path: link it by tandem_run_anywhere")


def missing_defences(path):
    """What a program lacks of that which makes a fault in it hard to use: [], or words for an error."""
    text = subprocess.run(["readelf", "-hldW", path], capture_output=True, text=True, check=True).stdout
    flags = " ".join(re.findall(r"\((?:FLAGS|FLAGS_1)\)(.*)", text))
    stack = re.search(r"GNU_STACK\s.*", text)
    found = {
        "a position-independent program (-pie)": re.search(r"Type:\s+DYN", text) and "PIE" in flags,
        "tables that are read-only after loading (-z relro)": "GNU_RELRO" in text,
        "all symbols bound at the start (-z now)": "BIND_NOW" in text or re.search(r"\bNOW\b", flags),
        "a stack without code (-z noexecstack)": stack and not re.search(r"\bR?W?E\b", stack[0]),
    }
    return [what for what, there in found.items() if not there]


def newest_version(paths, family):
    """The newest symbol version such as GLIBC_2.36 that the files need, as (2, 36)."""
    found = [(0,)]
    for path in paths:
        text = subprocess.run(["readelf", "-V", "--wide", path], capture_output=True, text=True,
                              check=True).stdout
        # Needed versions alone: a library that defines versions lists its own as well.
        wanted = text.split("Version needs section", 1)[-1] if "Version needs section" in text else ""
        found += [tuple(map(int, v.split(".")))
                  for v in re.findall(rf"Name: {family}_([0-9.]+)\b", wanted)]
    return max(found)
