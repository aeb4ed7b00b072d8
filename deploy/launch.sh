#!/usr/bin/env bash
# Launches a controller and its workers on this host.
#   deploy/launch.sh CONFIG [--set key=value ...] [--start-paused] [--dry-run]
# CONFIG is a YAML file such as configs/quickstart.yaml. Exit code: 0 the run is complete, 1 the
# programs are not built, 64 wrong arguments or a config that cannot work, 66 CONFIG does not exist, 130
# Ctrl-C, else the failure's; docs/reference/errors.md, "Exit codes", lists them all.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$OLDPWD" || exit 64  # relative paths of the config start where the user is

usage_if_asked "$@"
case "${1:-}" in
  "") fail_usage "no CONFIG is given" ;;
  -*) fail_usage "the first argument is CONFIG, not $1" ;;
esac
if [ ! -e "$1" ]; then
  printf 'error: there is no file %s: CONFIG is a YAML file such as configs/quickstart.yaml\n' "$1" >&2
  exit 66
fi
[ -x "$BUILD/bin/tandem-launcher" ] \
  || fail "$BUILD/bin/tandem-launcher is missing: run deploy/setup.sh and deploy/build.sh first"
config="$1"
shift
exec "$BUILD/bin/tandem-launcher" --config "$config" "$@"
