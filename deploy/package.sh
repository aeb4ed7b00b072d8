#!/usr/bin/env bash
# Packs a release that needs no build: programs, the libraries that they load, configs, documents.
#   deploy/package.sh [--no-cuda] [--wheel] [--no-tar] [--no-build] [--verify] [--level N] [--out DIR]
# Makes dist/tandem-VERSION-linux-x86_64.tar.zst: unpacked anywhere, its quickstart runs. LibTorch is in
# it; it needs a C library and libstdc++ no older than its BUILD.txt says, and Python's pip for the model.
# The programs are built in the folder build-package with the options of a release: the options of
# build/ do not matter, nor do this machine's memory and GPU. nvcc compiles all architectures.
# --no-cuda   without the GPU's kernels, as the names show: ...-cpu.tar.zst, tandem-VERSION+cpu-*.whl
# --wheel     dist/tandem-VERSION-py3-none-manylinux_*_x86_64.whl as well, without LibTorch
# --no-tar    without the archive
# --no-build  packs build-package/package/bin (with --no-cuda build-package-cpu/...) as it is
# --verify    then clones the commit into a temporary folder (TMPDIR), builds and packs there as well, and
#             compares byte by byte; ccache may serve that build. Exit code 1 where the bytes differ
# --level N   of zstd, 1 to 19 (default 9: docs/start/packages.md has what each costs)
# --out DIR   instead of dist
# One commit gives the same bytes in every folder, with equal compilers, libraries, zstd and --no-cuda.
# Environment: SOURCE_DATE_EPOCH, the time of all files in it (default: the commit's).
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
source "$ROOT/deploy/shell/toolchain.sh"
cd "$OLDPWD" || exit 64 # relative paths start where the user is

usage_if_asked "$@"
split_values "--level --out" "$@"
set -- "${given[@]}"
cuda=--cuda=all variant="" wheel=() tar=() build=yes verify=no level=9 out="$ROOT/dist"
while (($# > 0)); do
  case "$1" in
    --no-cuda) cuda=--no-cuda variant=-cpu ;;
    --wheel) wheel=(--wheel) ;;
    --no-tar) tar=(--no-tar) ;;
    --no-build) build=no ;;
    --verify) verify=yes ;;
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

# A second build is of the commit, so the first one must be as well.
check_is_commit() {
  local top changes
  top="$(git -C "$ROOT" rev-parse --show-cdup 2>/dev/null)" && [ -z "$top" ] \
    || fail "--verify builds a second clone, and $ROOT is not a checkout of git"
  changes="$(git -C "$ROOT" status --porcelain)"
  [ -z "$changes" ] || fail "--verify builds the commit a second time, and these files differ from it:
$changes
  commit them or put them away, and start again"
}

# verify ARGUMENTS: those of the first packing, for the second.
verify() {
  local file same=() other=()
  SECOND="$(mktemp -d "${TMPDIR:-/tmp}/tandem-second.XXXXXX")"
  trap 'rm -rf "$SECOND"' EXIT
  need_space "$SECOND" 3000 "a second build"
  say "verifying: the second build, in $SECOND/tandem"
  git clone -q "$ROOT" "$SECOND/tandem"
  git -C "$SECOND/tandem" checkout -q --detach "$(git -C "$ROOT" rev-parse HEAD)"
  ln -s "$HOME_DIR/.deps" "$SECOND/tandem/.deps"
  env -u TANDEM_HOME -u TANDEM_BUILD_DIR SOURCE_DATE_EPOCH="$epoch" \
    "$SECOND/tandem/deploy/package.sh" --out "$SECOND/dist" "$@"
  for file in "$SECOND"/dist/*; do
    if cmp "$file" "$out/${file##*/}"; then same+=("${file##*/}"); else other+=("${file##*/}"); fi
  done
  if ((${#other[@]} > 0)); then
    trap - EXIT
    fail "NOT REPRODUCIBLE: a second build of this commit gave other bytes in ${other[*]}.
  It is kept in $SECOND; unpack both and compare the folders with diff -r"
  fi
  say "REPRODUCIBLE: a second clone and build gave the same bytes: ${same[*]}"
}

[ "$verify" = no ] || check_is_commit
programs="$BUILD-package$variant"
if [ "$build" = yes ]; then
  [ "$cuda" = --no-cuda ] || find_nvcc >/dev/null || fail "there is no nvcc, and a package has the GPU's kernels:
  put a CUDA 13 toolkit on the PATH, or leave them out with --no-cuda, and start again"
  in_front env TANDEM_BUILD_DIR="$programs" "$ROOT/deploy/build.sh" --release "$cuda" package_programs
fi
[ -x "$programs/package/bin/tandem-launcher" ] \
  || fail "$programs/package/bin has no programs: start without --no-build"
epoch="${SOURCE_DATE_EPOCH:-$(git -C "$ROOT" log -1 --format=%ct 2>/dev/null || echo 315532800)}"
say "packing $("$programs/package/bin/tandemctl" --version)"
python3 "$ROOT/deploy/package/make.py" --build "$programs" --out "$out" --epoch "$epoch" --level "$level" \
  "${tar[@]}" "${wheel[@]}"
say "packed in $(seconds) s"
if [ "$verify" = yes ]; then
  without=()
  [ -z "$variant" ] || without=(--no-cuda)
  verify --level "$level" "${without[@]}" "${tar[@]}" "${wheel[@]}"
fi
