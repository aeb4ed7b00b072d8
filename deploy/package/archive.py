"""Archives of equal bytes from equal trees: sorted, one owner, one time, modes 644 and 755."""
import hashlib
import pathlib
import shutil
import subprocess
import tarfile


def files_of(folder):
    """Relative paths of all files and links of a tree, in the order of their text."""
    return sorted((p.relative_to(folder).as_posix() for p in folder.rglob("*")
                   if p.is_file() or p.is_symlink()))


def mode_of(path):
    """0o755 for what its owner may execute, else 0o644."""
    return 0o755 if path.stat().st_mode & 0o100 else 0o644


def digest_of(path):
    """SHA-256 of a file, as hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_tar(folder, name, stream, epoch):
    """The tree as NAME/... in a tar stream."""
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.GNU_FORMAT) as tar:
        folders = sorted({p.as_posix() for f in files_of(folder)
                          for p in pathlib.PurePosixPath(f).parents if p.as_posix() != "."})
        for relative in sorted([*folders, *files_of(folder)]):
            path = folder / relative
            info = tarfile.TarInfo(f"{name}/{relative}")
            info.mtime, info.uname, info.gname = epoch, "root", "root"
            if path.is_symlink():
                info.type, info.linkname, info.mode = tarfile.SYMTYPE, str(path.readlink()), 0o777
                tar.addfile(info)
            elif path.is_dir():
                info.type, info.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(info)
            else:
                info.size, info.mode = path.stat().st_size, mode_of(path)
                with open(path, "rb") as file:
                    tar.addfile(info, file)


def write_tar_zst(folder, name, out, epoch, level):
    """OUT, at once or not at all. zstd's bytes depend on its version and level, not on threads."""
    if not shutil.which("zstd"):
        raise SystemExit("error: zstd is missing: apt-get install zstd, then start again")
    part = out.with_name(out.name + ".part")
    with open(part, "wb") as file:
        with subprocess.Popen(["zstd", "-q", "-c", "-T0", f"-{level}"], stdin=subprocess.PIPE,
                              stdout=file) as zstd:
            write_tar(folder, name, zstd.stdin, epoch)
            zstd.stdin.close()
            if zstd.wait() != 0:
                part.unlink()
                raise SystemExit(f"error: zstd could not write {part}: is the disk full?")
    part.rename(out)
