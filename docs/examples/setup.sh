#!/usr/bin/env bash
# Makes the Python that the examples run with: grpcio in .deps/examples, an environment of its own
# because Debian's Python refuses pip, and the stubs of proto/ beside it. Idempotent.
# Exit code 69: pip could not install grpcio.
source "$(dirname "${BASH_SOURCE[0]}")/../../deploy/common.sh"

usage_if_asked "$@"

EXAMPLES="$ROOT/.deps/examples"
STUBS="$EXAMPLES/stubs"

[ -x "$EXAMPLES/bin/python" ] || python3 -m venv "$EXAMPLES" \
  || fail "python3 -m venv failed: install python3-venv (deploy/setup.sh does)"
if ! "$EXAMPLES/bin/python" -c 'import grpc, grpc_tools' 2>/dev/null; then
  say "examples: installing grpcio and grpcio-tools into .deps/examples"
  "$EXAMPLES/bin/pip" install --quiet --disable-pip-version-check grpcio grpcio-tools || {
    printf 'error: pip could not install grpcio and grpcio-tools: check the network\n' >&2
    exit 69
  }
fi
rm -rf "$STUBS"
mkdir -p "$STUBS"
"$EXAMPLES/bin/python" -m grpc_tools.protoc -Iproto --python_out="$STUBS" \
  --grpc_python_out="$STUBS" proto/tandem/v1/*.proto
# A .pth file puts the stubs on the path of this Python alone.
printf '%s\n' "$STUBS" >"$(echo "$EXAMPLES"/lib/python3*/site-packages)/tandem.pth"
say "examples: run them with .deps/examples/bin/python"
