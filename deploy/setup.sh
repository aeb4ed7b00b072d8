#!/usr/bin/env bash
# Installs what building and running needs: Debian packages, and LibTorch from the torch wheel
# under .deps/venv. Idempotent; what is installed already is not touched, and an interrupted
# set-up continues with the missing parts.
#   deploy/setup.sh [--dev] [--cluster]
# --dev       adds the formatter and the linter that .ci/run uses, the fuzzer, a browser that tests look at the
#             dashboard with, and what checks Kubernetes manifests
# --cluster   adds Slurm, for runs of several nodes on this machine (deploy/slurm/local_cluster.sh) and their tests
# Environment: TANDEM_HOME = folder of .deps, .cache, models, data and runs (default: the checkout, or
# $TANDEM_BUILD_DIR-home where the checkout cannot be written).
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
source "$ROOT/deploy/shell/progress.sh"
source "$ROOT/deploy/shell/failures.sh"

PACKAGES=(
  g++ cmake ninja-build ccache mold pkg-config zlib1g-dev python3-venv
  libgrpc++-dev libgrpc-dev protobuf-compiler protobuf-compiler-grpc libprotobuf-dev libabsl-dev
  libspdlog-dev libcli11-dev catch2 libyaml-cpp-dev nlohmann-json3-dev libssl-dev libpcre2-dev
  libicu-dev libsqlite3-dev libxxhash-dev zstd
  libboost1.81-dev libjs-dygraphs # HTTP and the dashboard's curves
)
# clang and libclang-rt build the fuzz targets: libFuzzer and the sanitizers are not part of clang itself. The browser
# shows the dashboard's pages to their tests.
DEV_PACKAGES=(clang-format clang-tidy clang libclang-rt-14-dev chromium chromium-driver python3-selenium)
CLUSTER_PACKAGES=(slurm-wlm munge iproute2 procps)
# libtorch_cpu.so needs the two CUDA runtime libraries even where there is no GPU.
WHEELS=(torch==2.11.0 nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85)
WHEELS_MIB=550 # to download
# Schemas of Kubernetes' objects, for deploy/kubernetes/validate.py.
SCHEMAS=(kubernetes-validate==1.37.0 kubeflow-trainer-api==2.3.0)
UNPACKED_MIB=1300
LOG="$CACHE/logs/setup.log"

usage_if_asked "$@"
dev=""
for argument in "$@"; do
  case "$argument" in
    --dev)
      PACKAGES+=("${DEV_PACKAGES[@]}")
      dev=yes
      ;;
    --cluster) PACKAGES+=("${CLUSTER_PACKAGES[@]}") ;;
    *) fail_usage "unknown argument $argument" ;;
  esac
done

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

# Lines of APT::Status-Fd: kind:name:percent:text; downloads go to 100, then installing does.
show_apt_line() {
  local kind percent text
  [ -z "$1" ] || printf '%s\n' "$1" >>"$LOG"
  IFS=: read -r kind _ percent text <<<"$1"
  case "$kind" in
    dlstatus) apt_part=downloaded ;;
    pmstatus) apt_part=installed ;;
    "") ;;
    *) return 0 ;;
  esac
  [ -z "$kind" ] || apt_percent="${percent%%.*}"
  [[ "${apt_percent:-}" =~ ^[0-9]+$ ]] || return 0
  [ "${apt_part}" = "${apt_shown:-}" ] || apt_begin=$SECONDS apt_shown="$apt_part"
  progress_show "$apt_percent % of ${#missing[@]} Debian packages $apt_part$(
    time_left $((SECONDS - apt_begin)) "$apt_percent" 100)"
}
# Everything that apt-get says goes to the log. The status is on its stdout, as sudo closes all others.
apt() {
  as_root env LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive apt-get -q -o APT::Status-Fd=1 \
    -o DPkg::Lock::Timeout=300 "$@" 2>&1 | read_lines show_apt_line
}

apt_update_and_install() { apt update && apt install -y --no-install-recommends "${missing[@]}"; }

install_packages() {
  # shellcheck disable=SC2015  # fail where either is missing
  command -v dpkg-query >/dev/null && command -v apt-get >/dev/null \
    || fail "this script installs Debian packages and found no apt-get; install by hand: ${PACKAGES[*]}"
  local begin=$SECONDS
  mapfile -t missing < <(missing_packages)
  if [ "${#missing[@]}" = 0 ]; then
    say "Debian packages: all ${#PACKAGES[@]} are installed"
    return
  fi
  say "Debian packages: installing ${#missing[@]} of ${#PACKAGES[@]}: ${missing[*]}"
  need_space /usr "$((100 + 25 * ${#missing[@]}))" "installing ${#missing[@]} Debian packages"
  : >"$LOG"
  in_front apt_update_and_install || explain_failure "installing Debian packages" "$LOG" /usr
  progress_end
  mapfile -t missing < <(missing_packages)
  ((${#missing[@]} == 0)) || explain_failure "installing Debian packages (missing: ${missing[*]})" "$LOG" /usr
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

# As a module: the first line of bin/pip names its Python, and a space in that path breaks it.
venv_pip() { "$VENV/bin/python" -m pip --disable-pip-version-check --no-input "$@" >>"$LOG" 2>&1; }

new_venv() { python3 -m venv "$VENV" >>"$LOG" 2>&1; }
make_venv() {
  if [ -x "$VENV/bin/python" ] && "$VENV/bin/python" -m pip --version >/dev/null 2>&1; then return; fi
  rm -rf "$VENV" # an interrupted one, or one whose Python is gone
  in_front new_venv || explain_failure "making $(short "$VENV")" "$LOG" "$HOME_DIR"
}

# Removes wheels that cannot be unpacked: a download that was cut off must not stand in the way.
remove_damaged() {
  local wheel
  for wheel in "$1"/*.whl; do
    [ -f "$wheel" ] || continue
    "$VENV/bin/python" -m zipfile -t "$wheel" >/dev/null 2>&1 && continue
    say "LibTorch: ${wheel##*/} is not whole, it is downloaded again"
    rm -f "$wheel"
  done
}

install_libtorch() {
  local begin=$SECONDS wheels="$CACHE/wheels"
  if libtorch_is_installed; then
    say "LibTorch: ${WHEELS[0]} is in $(short "$VENV")"
    return
  fi
  say "LibTorch: downloading ${WHEELS[*]} into $(short "$VENV") (about $WHEELS_MIB MB, $UNPACKED_MIB MB on disk)"
  need_space "$HOME_DIR" "$TORCH_MIB" "LibTorch, downloaded and unpacked,"
  : >"$LOG"
  make_venv
  rm -f "$VENV/tandem-wheels"
  rm -rf "$wheels/unfinished" # of a download that was killed
  mkdir -p "$wheels/unfinished"
  remove_damaged "$wheels"
  # Those that are whole stay if another fails, and pip takes none whose digest is wrong.
  TMPDIR="$wheels/unfinished" growing "LibTorch downloaded" "$WHEELS_MIB" "$wheels" -- \
    venv_pip download --no-deps -d "$wheels" "${WHEELS[@]}" \
    || { rm -rf "$wheels/unfinished"; explain_failure "downloading LibTorch" "$LOG" "$HOME_DIR"; }
  # One command for all wheels: a second one would delete parts of the nvidia folder.
  growing "LibTorch unpacked" "$UNPACKED_MIB" "$VENV" -- \
    venv_pip install --no-deps --no-index --find-links "$wheels" "${WHEELS[@]}" \
    || explain_failure "unpacking LibTorch" "$LOG" "$HOME_DIR"
  printf '%s' "${WHEELS[*]}" >"$VENV/tandem-wheels"
  libtorch_is_installed || fail "the wheels lack libtorch_cpu.so, libcudart.so.13 or libcupti.so.13"
  rm -rf "$wheels"
  say "LibTorch: done in $(seconds "$begin") s"
}

install_schemas() {
  local begin=$SECONDS stamp="$VENV/tandem-schemas"
  if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "${SCHEMAS[*]}" ]; then return; fi
  : >"$LOG"
  in_front venv_pip install "${SCHEMAS[@]}" || explain_failure "installing ${SCHEMAS[*]}" "$LOG" "$HOME_DIR"
  printf '%s' "${SCHEMAS[*]}" >"$stamp"
  say "schemas of Kubernetes: done in $(seconds "$begin") s"
}

need_home
mkdir -p "${LOG%/*}"
install_packages
install_libtorch
[ -z "$dev" ] || install_schemas
say "set-up is complete ($(seconds) s)"
