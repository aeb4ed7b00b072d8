#!/usr/bin/env bash
# Packs what most need not build: programs, the libraries that they load, configs, documents.
#   deploy/package.sh [--wheel] [--no-tar] [--no-build] [--level N] [--out DIR]
# Makes dist/tandem-VERSION-linux-x86_64.tar.zst: unpacked anywhere, its quickstart runs. LibTorch is in
# it; it needs a C library and libstdc++ no older than its BUILD.txt says, and Python's pip for the model.
# --wheel     dist/tandem-VERSION-py3-none-manylinux_*_x86_64.whl as well, without LibTorch
# --no-tar    not the archive
# --no-build  packs build/package/bin as it is
# --level N   of zstd, 1 to 19 (default 9: docs/packages.md has what each costs)
# --out DIR   in place of dist
# One commit gives the same bytes in every folder, with equal compilers, libraries and zstd.
# Environment: SOURCE_DATE_EPOCH, the time of all files in it (default: the commit's).
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$OLDPWD" || exit 64 # relative paths start where the user is

usage_if_asked "$@"
wheel=() tar=() build=yes level=9 out="$ROOT/dist"
while (($# > 0)); do
  case "$1" in
    --wheel) wheel=(--wheel) ;;
    --no-tar) tar=(--no-tar) ;;
    --no-build) build=no ;;
    --level | --out)
      (($# > 1)) || fail_usage "$1 needs a value"
      printf -v "${1#--}" '%s' "$2"
      shift
      ;;
    *) fail_usage "unknown argument $1" ;;
  esac
  shift
done
[[ "$level" =~ ^(1[0-9]|[1-9])$ ]] || fail_usage "--level takes 1 to 19, not \"$level\""
[ -z "${tar[*]}" ] || [ -n "${wheel[*]}" ] || fail_usage "--no-tar without --wheel leaves nothing to make"

missing=()
for tool in python3 strip readelf ldd; do command -v "$tool" >/dev/null || missing+=("$tool"); done
[ -n "${tar[*]}" ] || command -v zstd >/dev/null || missing+=(zstd)
[ "${#missing[@]}" = 0 ] || fail "missing: ${missing[*]}; as root: apt-get install -y binutils zstd python3"

if [ "$build" = yes ]; then "$ROOT/deploy/build.sh" package_programs; fi
[ -x "$BUILD/package/bin/tandem-launcher" ] \
  || fail "$BUILD/package/bin has no programs: start without --no-build"
epoch="${SOURCE_DATE_EPOCH:-$(git -C "$ROOT" log -1 --format=%ct 2>/dev/null || echo 315532800)}"
say "packing $("$BUILD/package/bin/tandemctl" --version)"
python3 "$ROOT/deploy/package/make.py" --build "$BUILD" --out "$out" --epoch "$epoch" --level "$level" \
  "${tar[@]}" "${wheel[@]}"
say "packed in $(seconds) s"
