#!/bin/sh
# Runs the command that compiles a precompiled header, X.gch, and writes X.gch.sum beside it: a digest of
# the headers in it. gcc never writes the same bytes twice, so ccache, which would hash them as a
# part of every source that uses the header, hashes the digest instead (CCACHE_PCH_EXTSUM). The old one is
# removed first, as gcc reads an existing precompiled header while it compiles its successor.
header="" headers="" previous=""
for argument; do
  case "$previous" in
    -o) header="$argument" ;;
    -MF) headers="$argument" ;;
  esac
  previous="$argument"
done
case "$header" in
  *.gch) rm -f "$header" "$header.sum" ;;
  *) exec "$@" ;; # the source beside it, which is empty
esac
"$@" || exit
# The list of headers is a rule for make: "target: header header \".
sed -e 's/^[^:]*://' -e 's/\\$//' "$headers" | xargs cat | sha256sum >"$header.sum"
