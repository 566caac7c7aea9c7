#!/usr/bin/env bash
# Builds the busybox of the image base: Debian's source package with Debian's static
# configuration, and with -T of wget, on which Debian's own build dies by a signal.
#   scripts/busybox.sh DIR TARGET [ARCH]    work in DIR, which is removed; write TARGET
# ARCH is Debian's name of another architecture than the host's.
#
# Against musl it would start in a third of the time. But musl takes no REFUSED for an
# answer to a name, and waits five seconds for another one.
set -euo pipefail

dir=$(realpath -m "$1")
target=$(realpath -m "$2")
arch=${3:-$(dpkg --print-architecture)}
cross= # an unknown architecture has no compiler, which the check below tells
[ "$arch" = "$(dpkg --print-architecture)" ] || cross=$(dpkg-architecture -a"$arch" -q DEB_HOST_GNU_TYPE 2>/dev/null)-
rm -rf "$dir"
mkdir -p "$dir"/{sources,lists/partial,archives/partial}

die() { echo "$*" >&2; exit 1; }
for tool in apt-get dpkg-source "${cross}gcc" "${cross}strip" bzip2; do
  command -v $tool >/dev/null || die "$tool is missing: make setup"
done

# The host's own package sources, as those of source packages; its lists stay as they are.
for file in /etc/apt/sources.list /etc/apt/sources.list.d/*; do
  case $file in
    *.list) [ ! -e "$file" ] || sed -n 's/^deb /deb-src /p' "$file" >"$dir/sources/$(basename "$file")" ;;
    *.sources) sed 's/^Types:.*/Types: deb-src/' "$file" >"$dir/sources/$(basename "$file")" ;;
  esac
done
apt() {
  apt-get -qq -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts="$dir/sources" \
    -o Dir::State::Lists="$dir/lists" -o Dir::Cache="$dir" -o APT::Sandbox::User= "$@"
}

cd "$dir"
apt update
apt --download-only source busybox # checks the signed list and the sums that are in it
dpkg-source --no-check -x busybox_*.dsc source >/dev/null

cd source
config=debian/config/pkg/static
sed -i 's/^# CONFIG_FEATURE_WGET_TIMEOUT is not set/CONFIG_FEATURE_WGET_TIMEOUT=y/' $config
grep -q '^CONFIG_FEATURE_WGET_TIMEOUT=y' $config || die "the package's configuration knows no timeout of wget"
# Debian's own rules harden the program, name the package's version in it and keep the
# time of the build out of it: the same source and compiler give the same image.
unset MAKEFLAGS MAKEOVERRIDES MFLAGS # a VERSION given to our make is not busybox's
DEB_BUILD_OPTIONS="parallel=$(nproc)" dpkg-architecture -a"$arch" -c make -s -f debian/rules build-static >"$dir/log" 2>&1 ||
  { tail -n 30 "$dir/log" >&2; die "busybox does not build"; }
"${cross}strip" b/static/busybox
install -D -m 0755 b/static/busybox "$target"
rm -rf "$dir"
