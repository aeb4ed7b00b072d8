#!/usr/bin/env bash
# Collects what gpu_check.sh runs into one folder that can be copied to a machine with a GPU:
#   deploy/scripts/gpu_check_bundle.sh [--model DIR] [--with-torch] [--pack] [OUT PROGRAM...]
# OUT/bin has the programs (executables, stripped, and scripts), OUT/lib every library that the
# executables load, except the C library, the driver and LibTorch, which the machine provides;
# OUT/lib/compiler has libstdc++, for machines whose own is older. Beside them gpu_check.sh, its table,
# and built.txt: what the bundle was built from and needs. The build's target gpu_check_bundle runs it.
# Without OUT: gpu_check in the build folder, of the programs that the build lists for it.
# --model       OUT/model, a copy of DIR, an HF checkpoint directory, which whole runs train
# --with-torch  OUT/torch, LibTorch too (0.5 GB), for machines whose Python has none
# --pack        OUT.tar.xz as well, which gpu_check.sh accepts like the folder
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
cd "$OLDPWD" || exit 64 # relative paths start where the user is

usage_if_asked "$@"
out="" model="" with_torch=no pack=no programs=()
while (($# > 0)); do
  case "$1" in
    --model)
      [ -f "${2:-}/config.json" ] || fail_usage "--model needs an HF checkpoint directory, not \"${2:-}\""
      model="$2"
      shift
      ;;
    --with-torch) with_torch=yes ;;
    --pack) pack=yes ;;
    -*) fail_usage "unknown argument $1" ;;
    *) if [ -z "$out" ]; then out="$1"; else programs+=("$1"); fi ;;
  esac
  shift
done
if [ -z "$out" ]; then
  out="$BUILD/gpu_check"
  [ -f "$BUILD/gpu/programs.txt" ] || fail "$BUILD is not a build: run deploy/build.sh gpu_check_bundle"
  mapfile -t programs <"$BUILD/gpu/programs.txt"
fi
((${#programs[@]} > 0)) || fail_usage "a folder and programs are needed, not $out alone"

machines_own='^(libc|libm|libdl|libpthread|librt|libresolv|libutil|ld-linux-x86-64|libcuda|libnvidia-.*)\.so'
compilers='^(libstdc\+\+|libgcc_s)\.so'

# "name path" of every library that a program loads here.
libraries_of() { ldd "$1" | awk '$2 == "=>" {print $1, $3}'; }
# The folder of LibTorch, if one of these lines is of it.
torch_folder() { awk '$1 == "libc10.so" {sub("/[^/]*$", "", $2); print $2; exit}' <<<"$1"; }
# Whether a library comes with LibTorch: from its folder or the packages beside it, or CUDA's two that
# it cannot do without.
is_torchs() {
  local name="$1" path folder="$3"
  path="$(realpath "$2")"
  [ -n "$folder" ] && [[ "$path" == "$(realpath "$folder")"/* || "$name" =~ ^lib(cudart|cupti)\.so \
    || "$path" == "$(realpath -m "$folder/../../nvidia")"/* ]]
}

# The builder's folders in a program's DT_RPATH become OUT/torch, as a path of the same length: the
# string cannot grow.
forget_folders() {
  local program="$1" folder place folders
  IFS=: read -r -a folders <<<"$(readelf -d "$program" | sed -n 's/.*(RPATH).*\[\(.*\)\]/\1/p')"
  for folder in "${folders[@]}"; do
    [[ "$folder" == /* ]] || continue
    place="\$ORIGIN/../torch"
    ((${#folder} >= ${#place})) || place="/"
    place="$(printf '%-*s' "${#folder}" "$place" | tr ' ' '/')"
    LC_ALL=C sed -i "s|${folder//./\\.}|$place|g" "$program"
  done
}

torch_version=""
# Copies a program and what it loads; sets torch_version where that is LibTorch.
add_program() {
  local program="$1" copy libraries folder name path target
  copy="$out/bin/$(basename "$program")"
  cp "$program" "$copy"
  [[ "$program" != *.py ]] || return 0
  strip "$copy"
  forget_folders "$copy"
  libraries="$(libraries_of "$program")"
  folder="$(torch_folder "$libraries")"
  if [ -n "$folder" ]; then
    torch_version="$(sed -n "s/^__version__ = '\([0-9]*\.[0-9]*\).*/\1/p" "$folder/../version.py")"
  fi
  while read -r name path; do
    [ "$path" != not ] || fail "$program needs $name, which is not found"
    [[ ! "$name" =~ $machines_own ]] || continue
    target="$out/lib"
    [[ ! "$name" =~ $compilers ]] || target="$out/lib/compiler"
    if is_torchs "$name" "$path" "$folder"; then
      [ "$with_torch" = yes ] || continue
      target="$out/torch"
    fi
    mkdir -p "$target"
    [ -e "$target/$name" ] || cp -L "$path" "$target/$name"
  done <<<"$libraries"
}

# A program that would not look into OUT/lib would fail where its libraries are missing elsewhere.
check_program() {
  local name path
  while read -r name path; do
    [[ ! -e "$out/lib/$name" || "$path" == "$out/bin/../lib/"* ]] \
      || fail "$(basename "$1") does not load $name from ../lib (DT_RPATH) but from $path"
  done < <(libraries_of "$1")
}

# The newest version of the C library that programs and libraries ask for: 2.35. Not libstdc++, which
# is used where the machine's own is older.
glibc_needed() {
  find "$out/bin" "$out/lib" -maxdepth 1 -type f -exec objdump -T {} + 2>/dev/null \
    | grep -oE 'GLIBC_2\.[0-9]+' | sort -uV | tail -n 1 | cut -d_ -f2
}

rm -rf "$out" "$out.tar.xz"
mkdir -p "$out/bin" "$out/lib"
out="$(cd "$out" && pwd)"
for program in "${programs[@]}"; do add_program "$program"; done
for program in "$out"/bin/tandem-* "$out"/bin/gpu_*; do
  [ ! -e "$program" ] || check_program "$program"
done
[ "$with_torch" = no ] || [ -e "$out/torch/libc10.so" ] || fail "none of the programs uses LibTorch"
[ -z "$model" ] || cp -rL "$model" "$out/model"
cp "$ROOT/deploy/gpu_check.sh" "$ROOT/deploy/gpu_checks.txt" "$out/"
{
  printf 'commit %s\n' "$(git -C "$ROOT" describe --always --dirty 2>/dev/null || echo unknown)"
  printf 'machine %s\nglibc %s\n' "$(uname -m)" "$(glibc_needed)"
  [ -z "$torch_version" ] || printf 'torch %s\n' "$torch_version"
} >"$out/built.txt"
printf 'bundle: %s, %s programs, %s libraries, %s\n' "$out" "$(find "$out/bin" -type f | wc -l)" \
  "$(find "$out/lib" -type f | wc -l)" "$(du -sh "$out" | cut -f1)"
if [ "$pack" = yes ]; then
  XZ_OPT=-T0 tar -C "$(dirname "$out")" --owner=0 --group=0 -cJf "$out.tar.xz" "$(basename "$out")"
  printf 'packed: %s, %s\n' "$out.tar.xz" "$(du -sh "$out.tar.xz" | cut -f1)"
fi
