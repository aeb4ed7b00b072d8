#!/usr/bin/env bash
# Launches a controller and its workers on this host.
#   deploy/launch.sh CONFIG [--set key=value ...] [--start-paused]
# Exit code: 0 the run is complete, 64 the config cannot work, 130 Ctrl-C, else the failure's.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$OLDPWD" || exit 64  # relative paths of the config start where the user is

case "${1:-}" in
  "" | -h | --help) fail "usage: deploy/launch.sh CONFIG [--set key=value ...]" ;;
esac
[ -x "$BUILD/bin/tandem-launcher" ] \
  || fail "$BUILD/bin/tandem-launcher is missing: run deploy/setup.sh and deploy/build.sh first"
config="$1"
shift
exec "$BUILD/bin/tandem-launcher" --config "$config" "$@"
