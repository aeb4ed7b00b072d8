#!/usr/bin/env python3
"""Packs a build: usage make.py --build DIR --out DIR --epoch SECONDS [--level N] [--no-tar] [--wheel].

deploy/package.sh calls it, with the time of the commit; equal inputs give equal bytes. Programs that contain
a path of this machine would differ elsewhere: they are named, and nothing is packed.
"""
import argparse
import pathlib
import shutil
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import archive  # noqa: E402
import collect  # noqa: E402
import make_wheel  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]


def told(path):
    """The line about a file that was made."""
    return f"{path}  {path.stat().st_size / 1e6:.0f} MB  sha256 {archive.digest_of(path)}"


def collected(folder, build, with_torch, epoch):
    """What collect tells of a folder that others can make as well; else the end of the program."""
    about = collect.collect(folder, ROOT, build, with_torch, epoch)
    if about["unclean"]:
        collect.fail("a build in another folder would give other bytes, so nothing is packed:\n  "
                     + "\n  ".join(sorted(about["unclean"])))
    if about["soft"]:
        collect.fail("the programs lack defences of a release, so nothing is packed:\n  " + "\n  ".join(about["soft"]))
    return about


def main():
    """Makes what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--epoch", type=int, required=True)
    parser.add_argument("--level", type=int, default=9)
    parser.add_argument("--no-tar", action="store_true")
    parser.add_argument("--wheel", action="store_true")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    build = asked.build.resolve()
    with tempfile.TemporaryDirectory(dir=asked.out) as scratch:
        if not asked.no_tar:
            folder = pathlib.Path(scratch) / "whole"
            about = collected(folder, build, with_torch=True, epoch=asked.epoch)
            name = f"tandem-{about['version']}-linux-x86_64{'' if about['has_cuda'] else '-cpu'}"
            out = asked.out / f"{name}.tar.zst"
            archive.write_tar_zst(folder, name, out, asked.epoch, asked.level)
            print(told(out))
            shutil.rmtree(folder)
        if asked.wheel:
            folder = pathlib.Path(scratch) / "wheel"
            about = collected(folder, build, with_torch=False, epoch=asked.epoch)
            # A local version, as torch's wheels have it.
            version = about["version"] + ("" if about["has_cuda"] else "+cpu")
            print(told(make_wheel.write_wheel(folder, asked.out, version, about["glibc"], asked.epoch)))


if __name__ == "__main__":
    main()
