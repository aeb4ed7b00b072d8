"""The bill of materials of a package, as SPDX 2.3 in JSON: what is in it, in which version and under which licence.

Libraries are described by what they came from: a Debian package by dpkg and its copyright file, a wheel by its METADATA.
Equal packages give equal bytes: everything is sorted, and the time is the commit's.
"""
import hashlib
import json
import pathlib
import re
import time
import typing

NAME = "tandem.spdx.json"
DOCUMENTATION = pathlib.Path("/usr/share/doc")
NOT_TOLD = "NOASSERTION"
# The names that Debian's copyright files have for licences, in lower case, and SPDX's for the same.
KNOWN = {
    "0bsd": "0BSD", "apache-2": "Apache-2.0", "apache-2.0": "Apache-2.0", "apache-2.0 with llvm exception":
    "Apache-2.0 WITH LLVM-exception", "bsd-2-clause": "BSD-2-Clause", "bsd-3-clause": "BSD-3-Clause", "bsl-1.0": "BSL-1.0",
    "boost-1.0": "BSL-1.0", "cc0-1.0": "CC0-1.0", "expat": "MIT", "gpl-1+": "GPL-1.0-or-later", "gpl-2": "GPL-2.0-only",
    "gpl-2+": "GPL-2.0-or-later", "gpl-2.0+": "GPL-2.0-or-later", "gpl-3": "GPL-3.0-only", "gpl-3+": "GPL-3.0-or-later",
    "isc": "ISC", "lgpl-2.1": "LGPL-2.1-only", "lgpl-2.1+": "LGPL-2.1-or-later", "lgpl-3": "LGPL-3.0-only", "mit": "MIT",
    "mpl-2.0": "MPL-2.0", "python": "Python-2.0", "x11": "X11", "zlib": "Zlib",
}
CREATOR = "Tool: tandem-deploy-package.sh"


class Library(typing.NamedTuple):
    """A shared library that the programs load."""
    name: str
    path: pathlib.Path  # on this machine
    is_torchs: bool  # it is one of LibTorch's wheels
    debian: str  # its Debian package, "" if it is of none
    packed: bool  # it lies in lib/; else beside a wheel


def element(text):
    """An SPDX identifier: letters, digits, dots and hyphens."""
    return "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]+", "-", text)


def licence(text):
    """An SPDX identifier for a licence by a name of Debian's or of a wheel's."""
    text = " ".join(text.split())
    if text.startswith("LicenseRef-") or text in KNOWN.values():
        return re.sub(r"[^A-Za-z0-9. -]+", "-", text)
    return KNOWN.get(text.lower()) or "LicenseRef-" + re.sub(r"[^A-Za-z0-9.-]+", "-", text)


def expression(text):
    """An SPDX expression for a License line of a copyright file, as "Expat or CC0-1.0"."""
    choices = [[licence(one) for one in re.split(r"\s+and\s+|\s*,\s*(?:and\s+)?", choice) if one]
               for choice in re.split(r"\s*,?\s+or\s+", text)]
    parts = [" AND ".join(all_of) for all_of in choices if all_of]
    return parts[0] if len(parts) == 1 else "(" + " OR ".join(parts) + ")"


def declared(package):
    """The licences of a Debian package's files, those of its packaging left out. Not told where its copyright file is prose."""
    file = DOCUMENTATION / package / "copyright"
    text = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
    if not re.match(r"Format:.*copyright-format", text):
        return NOT_TOLD
    found = set()
    for paragraph in re.split(r"\n\s*\n", text):
        files = re.search(r"^Files:((?:.*\n?)(?:[ \t].*\n?)*)", paragraph, re.M)
        named = re.search(r"^License:[ \t]*(\S.*)$", paragraph, re.M)
        if files and named and not all(one.startswith("debian/") for one in files[1].split()):
            found.add(expression(named[1].strip()))
    return " AND ".join(sorted(found)) or NOT_TOLD


def package(name, version, licences, purl, comment):
    """An SPDX package."""
    return {"SPDXID": element(f"Package-{name}"), "name": name, "versionInfo": version, "downloadLocation": NOT_TOLD,
            "filesAnalyzed": False, "licenseConcluded": NOT_TOLD, "licenseDeclared": licences, "copyrightText": NOT_TOLD,
            "comment": comment,
            "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl}]}


def debian_package(name, version):
    return package(name, version, declared(name), f"pkg:deb/debian/{name}@{version.replace(':', '%3A').replace('+', '%2B')}",
                   f"licenses/{name} is its copyright file")


class Wheel(typing.NamedTuple):
    """A wheel that LibTorch or the CUDA runtime comes from."""
    package: dict
    files: frozenset  # names of its libraries


def wheels(site):
    """[Wheel] of torch and nvidia-cuda-* in a site-packages."""
    found = []
    for info in sorted([*site.glob("torch-*.dist-info"), *site.glob("nvidia_cuda_*.dist-info")]):
        about = dict(line.split(": ", 1) for line in (info / "METADATA").read_text(encoding="utf-8").split("\n\n")[0].splitlines()
                     if re.match(r"(Name|Version|License|License-Expression): ", line))
        name, version = about["Name"], about["Version"]
        told = about.get("License-Expression") or about.get("License")
        record = info / "RECORD"
        files = {line.split(",")[0].rsplit("/", 1)[-1] for line in record.read_text(encoding="utf-8").splitlines()} \
            if record.is_file() else set()
        found.append(Wheel(package(name, version, expression(told) if told else NOT_TOLD, f"pkg:pypi/{name}@{version}",
                                   f"licenses/{info.name.removesuffix('.dist-info')}-* are its notices"), frozenset(files)))
    return found


def file_entry(out, name):
    """An SPDX file."""
    data = (out / name).read_bytes()
    sums = [{"algorithm": kind, "checksumValue": hashlib.new(kind.lower(), data).hexdigest()} for kind in ("SHA1", "SHA256")]
    return {"SPDXID": element(f"File-{name}"), "fileName": f"./{name}", "checksums": sums, "fileTypes": ["BINARY"],
            "licenseConcluded": NOT_TOLD, "licenseInfoInFiles": [NOT_TOLD], "copyrightText": NOT_TOLD}


def relation(one, kind, other):
    return {"spdxElementId": one, "relationshipType": kind, "relatedSpdxElement": other}


def extracted(packages):
    """What SPDX wants told of each licence that has no identifier of its own."""
    names = sorted({name for one in packages for name in re.findall(r"LicenseRef-[A-Za-z0-9.-]+", one["licenseDeclared"])})
    return [{"licenseId": name, "name": name.removeprefix("LicenseRef-"),
             "extractedText": "The text is in the notices in the folder licenses of the package."} for name in names]


def document(out, about, libraries, versions, linked_in, epoch):
    """The bill of materials of the folder `out`: `about` as collect.build_of has it, versions {Debian package: version}."""
    ours = package("tandem", about["version"], NOT_TOLD, f"pkg:generic/tandem@{about['version']}",
                   f"commit {about['commit']}, sources {about['sources']}, {about['flags']}")
    from_debian = {name: debian_package(name, version) for name, version in sorted(versions.items())}
    site = next((one.path.parents[2] for one in libraries if one.is_torchs and one.path.parent.parent.name == "torch"), None)
    from_wheels = wheels(site) if site else []
    packed = [one for one in libraries if one.packed]
    files = [file_entry(out, name) for name in sorted([*(f"bin/{one.name}" for one in (out / "bin").iterdir()),
                                                       *(f"lib/{one.name}" for one in packed)])]
    me = ours["SPDXID"]
    related = [relation("SPDXRef-DOCUMENT", "DESCRIBES", me)]
    related += [relation(me, "STATIC_LINK", from_debian[name]["SPDXID"]) for name in sorted(linked_in)]
    related += [relation(me, "DYNAMIC_LINK", from_debian[name]["SPDXID"])
                for name in sorted({one.debian for one in libraries if one.debian})]
    related += [relation(me, "DYNAMIC_LINK", wheel.package["SPDXID"]) for wheel in from_wheels]
    related += [relation(me, "CONTAINS", file["SPDXID"]) for file in files]
    for one in packed:
        source = from_debian.get(one.debian) or next((wheel.package for wheel in from_wheels if one.name in wheel.files), None)
        if source:
            related.append(relation(element(f"File-lib/{one.name}"), "GENERATED_FROM", source["SPDXID"]))
    packages = [ours, *from_debian.values(), *(wheel.package for wheel in from_wheels)]
    kind = "whole" if any(one.is_torchs and one.packed for one in libraries) else "wheel"
    return {"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT",
            "name": f"tandem-{about['version']}",
            "documentNamespace": f"https://spdx.org/spdxdocs/tandem-{about['version']}-{about['commit']}-{about['sources']}-{kind}",
            "creationInfo": {"created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch)), "creators": [CREATOR]},
            "packages": packages, "files": files, "relationships": related,
            "hasExtractedLicensingInfos": extracted(packages)}


def write(out, about, libraries, versions, linked_in, epoch):
    """Writes `out`/tandem.spdx.json."""
    text = json.dumps(document(out, about, libraries, versions, linked_in, epoch), indent=1, ensure_ascii=False)
    (out / NAME).write_text(text + "\n", encoding="utf-8")
