#!/usr/bin/env bash
# Installs what building and running needs: Debian packages, and LibTorch from the torch wheel
# under .deps/venv. Idempotent; what is there already is not touched.
#   deploy/setup.sh [--dev]     --dev adds the formatter and the linter that .ci/run uses
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

PACKAGES=(
  g++ cmake ninja-build ccache mold pkg-config zlib1g-dev python3-venv
  libgrpc++-dev libgrpc-dev protobuf-compiler protobuf-compiler-grpc libprotobuf-dev libabsl-dev
  libspdlog-dev libcli11-dev catch2 libyaml-cpp-dev nlohmann-json3-dev libssl-dev libpcre2-dev
  libsqlite3-dev libxxhash-dev
)
DEV_PACKAGES=(clang-format clang-tidy)
# libtorch_cpu.so needs the two CUDA runtime libraries even where there is no GPU.
WHEELS=(torch==2.11.0 nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85)

usage_if_asked "$@"
case "${1:-}" in
  "") ;;
  --dev) PACKAGES+=("${DEV_PACKAGES[@]}") ;;
  *) fail_usage "unknown argument $1" ;;
esac

# The packages of the list that are not installed.
missing_packages() {
  local installed
  # shellcheck disable=SC2016  # the ${} are dpkg's
  installed="$(dpkg-query -W -f='${db:Status-Abbrev}${Package}\n' "${PACKAGES[@]}" 2>/dev/null \
    | awk '/^ii/ {print $2}' || true)"
  comm -23 <(printf '%s\n' "${PACKAGES[@]}" | sort -u) <(printf '%s\n' "$installed" | sort -u)
}

as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    fail "these Debian packages are missing and need root to install: ${missing[*]}
  run as root: apt-get install -y --no-install-recommends ${missing[*]}
  then start again"
  fi
}

install_packages() {
  command -v dpkg-query >/dev/null && command -v apt-get >/dev/null \
    || fail "this script installs Debian packages and found no apt-get; install by hand: ${PACKAGES[*]}"
  local begin=$SECONDS
  mapfile -t missing < <(missing_packages)
  if [ "${#missing[@]}" = 0 ]; then
    say "Debian packages: all ${#PACKAGES[@]} are installed"
    return
  fi
  say "Debian packages: installing ${#missing[@]} of ${#PACKAGES[@]}: ${missing[*]}"
  as_root apt-get update -q
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends \
    "${missing[@]}"
  say "Debian packages: done in $(seconds "$begin") s"
}

# The stamp names the wheels it was written for; the files must still be there as well.
libtorch_is_installed() {
  local stamp="$VENV/tandem-wheels" site
  [ -f "$stamp" ] && [ "$(cat "$stamp")" = "${WHEELS[*]}" ] || return 1
  site="$(echo "$VENV"/lib/python3*/site-packages)"
  [ -f "$site/torch/lib/libtorch_cpu.so" ] && [ -f "$site/nvidia/cu13/lib/libcudart.so.13" ] \
    && [ -f "$site/nvidia/cu13/lib/libcupti.so.13" ]
}

install_libtorch() {
  local begin=$SECONDS
  if libtorch_is_installed; then
    say "LibTorch: ${WHEELS[0]} is in .deps/venv"
    return
  fi
  say "LibTorch: downloading ${WHEELS[*]} into .deps/venv (about 550 MB, 1.1 GB on disk)"
  rm -f "$VENV/tandem-wheels"
  [ -x "$VENV/bin/pip" ] || python3 -m venv "$VENV"
  # One command for all wheels: a second one would delete parts of the nvidia folder.
  "$VENV/bin/pip" install --disable-pip-version-check --no-deps "${WHEELS[@]}" \
    || fail "pip could not install ${WHEELS[*]}: check the network and the free disk space, then start again"
  printf '%s' "${WHEELS[*]}" >"$VENV/tandem-wheels"
  libtorch_is_installed || fail "the wheels lack libtorch_cpu.so, libcudart.so.13 or libcupti.so.13"
  say "LibTorch: done in $(seconds "$begin") s"
}

install_packages
install_libtorch
say "set-up is complete ($(seconds) s)"
