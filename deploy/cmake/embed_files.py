#!/usr/bin/env python3
"""Writes a C++ source that has files as compressed texts: usage embed_files.py OUT.cc NAME=FILE ...

The source defines EmbeddedFiles of controller/web/embedded_files.h. Equal files give equal bytes.
"""
import gzip
import hashlib
import pathlib
import sys

LINE_BYTES = 32


def literal(data):
    """The bytes as a literal of C++, in octal: a hexadecimal escape would go on over the next digit."""
    lines = ["".join(f"\\{byte:03o}" for byte in data[at:at + LINE_BYTES]) for at in range(0, len(data), LINE_BYTES)]
    return "\n".join(f'     "{line}"' for line in lines)


def main():
    out, entries = pathlib.Path(sys.argv[1]), []
    for argument in sys.argv[2:]:
        name, _, path = argument.partition("=")
        text = pathlib.Path(path).read_bytes()
        packed = gzip.compress(text, compresslevel=9, mtime=0)
        entries.append(f'    {{"{name}", "{hashlib.sha256(text).hexdigest()[:16]}", std::string_view(\n'
                       f"{literal(packed)},\n     {len(packed)})}},\n")
    out.write_text('#include "controller/web/embedded_files.h"\n\nnamespace tandem {\n\n'
                   "const std::vector<EmbeddedFile>& EmbeddedFiles() {\n"
                   "  static const std::vector<EmbeddedFile> files = {\n" + "".join(entries)
                   + "  };\n  return files;\n}\n\n}  // namespace tandem\n")


if __name__ == "__main__":
    main()
