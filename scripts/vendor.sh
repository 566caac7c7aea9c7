#!/usr/bin/env bash
# Fetches the libraries of the page again, in the versions of page/vendor.txt.
#   scripts/vendor.sh DIR    writes the files into DIR, and does not change the tree
set -euo pipefail
cd "$(dirname "$0")/.."
into=$(realpath "${1:?usage: scripts/vendor.sh DIR}")
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

grep -v '^#' page/vendor.txt | while read -r name package path _; do
  dir=$tmp/$package
  if [ ! -d "$dir" ]; then
    mkdir -p "$dir"
    (cd "$dir" && npm pack --silent "$package" > /dev/null && tar xzf ./*.tgz)
  fi
  cp "$dir/package/$path" "$into/$name"
done
