#!/usr/bin/env bash
# Downloads Debian packages of another architecture from this host's own sources. Nothing is
# installed: dpkg of this host hears of no foreign architecture.
#   scripts/foreign.sh ARCH DIR [--depends] PACKAGE...    into DIR, with all that they depend on
set -euo pipefail

arch=$1
dir=$(realpath -m "$2")
shift 2
work=$dir/apt
rm -rf "$work"
mkdir -p "$work"/{sources,lists/partial,archives/partial}
for file in /etc/apt/sources.list /etc/apt/sources.list.d/*; do
  [ ! -e "$file" ] || cp "$file" "$work/sources/"
done
apt=(apt-get -qq -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts="$work/sources"
  -o Dir::State::Lists="$work/lists" -o Dir::Cache="$work" -o APT::Architecture="$arch"
  -o APT::Architectures="$arch" -o Dir::State::Status=/dev/null -o APT::Sandbox::User= -o Debug::NoLocking=1)
"${apt[@]}" update
cd "$dir"
if [ "$1" = --depends ]; then
  "${apt[@]}" install --download-only --no-install-recommends --yes "${@:2}" > /dev/null
  mv "$work"/archives/*.deb .
else
  "${apt[@]}" download "$@"
fi
rm -rf "$work"
