# shellcheck shell=bash
# For deploy/quickstart.sh, after deploy/common.sh: where a package of this checkout's sources lies
# beside it, the package's programs are used and nothing is built.
#   run_package_if_there ARGUMENTS   becomes the package's quickstart, or returns to build
# Looked for: $TANDEM_PACKAGE (a .tar.zst or an unpacked folder; "no": none), then
# tandem-*-linux-x86_64 and tandem-*-linux-x86_64.tar.zst in the checkout and in its dist, then those
# without the GPU's kernels, whose names go on with -cpu.

# The digest that programs tell as "sources": deploy/cmake/write_build_info.cmake computes the same.
digest_of_sources() {
  (
    cd "$ROOT" || exit
    {
      printf 'CMakeLists.txt\n'
      find common controller deploy/cmake deploy/launcher parity proto rollout_worker trainer_worker \
        -type f \( -name '*.h' -o -name '*.cc' -o -name '*.cu' -o -name '*.inc' -o -name '*.proto' \
        -o -name '*.cmake' -o -name CMakeLists.txt \)
    } | LC_ALL=C sort -u | tr '\n' '\0' | xargs -0 sha256sum | sed 's/^\([0-9a-f]*\)  /\1 /' \
      | sha256sum | cut -c1-16
  )
}

# The folder of a package: itself, or the archive unpacked once below .cache.
unpacked_package() {
  local package="$1" folder part
  if [ -d "$package" ]; then
    (cd "$package" && pwd)
    return
  fi
  folder="$CACHE/package/$(stat -c '%s-%Y' "$package")"
  if [ ! -x "$folder/quickstart" ]; then
    command -v zstd >/dev/null || return 1
    part="$folder.part"
    rm -rf "$part" "$folder"
    mkdir -p "$part"
    tar --use-compress-program=zstd -xf "$package" -C "$part" --strip-components=1 || return 1
    mv "$part" "$folder"
  fi
  printf '%s\n' "$folder"
}

find_package() {
  local kind candidate
  if [ -n "${TANDEM_PACKAGE:-}" ]; then
    printf '%s\n' "$TANDEM_PACKAGE"
    return
  fi
  for kind in "" .tar.zst -cpu -cpu.tar.zst; do
    for candidate in "$ROOT"/tandem-*-linux-x86_64"$kind" "$ROOT"/dist/tandem-*-linux-x86_64"$kind"; do
      if [ -x "$candidate/quickstart" ] || [ -f "$candidate" ]; then
        printf '%s\n' "$candidate"
        return
      fi
    done
  done
}

run_package_if_there() {
  local package folder theirs ours
  [ "${TANDEM_PACKAGE:-}" != no ] || return 0
  package="$(find_package)"
  [ -n "$package" ] || return 0
  [ -e "$package" ] || fail "TANDEM_PACKAGE=$package does not exist"
  if ! folder="$(unpacked_package "$package")"; then
    say "package: $package cannot be unpacked (no zstd, damaged, or the disk is full); building instead"
    return 0
  fi
  theirs="$(awk '$1 == "sources" {print $2}' "$folder/BUILD.txt" 2>/dev/null || true)"
  ours="$(digest_of_sources)"
  if [ "$theirs" != "$ours" ] && [ -z "${TANDEM_PACKAGE:-}" ]; then
    say "package: $package is of other sources ($theirs) than this checkout ($ours); building instead. TANDEM_PACKAGE=$package uses it all the same"
    return 0
  fi
  say "package: using the programs of $package, nothing is built (TANDEM_PACKAGE=no builds)"
  # Models, data and runs where a build's would lie, which is not always the checkout.
  need_home
  mkdir -p "$HOME_DIR"
  cd "$HOME_DIR" || exit
  exec "$folder/quickstart" "$@"
}
