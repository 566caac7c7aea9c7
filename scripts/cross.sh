#!/usr/bin/env bash
# Builds our programs and the engine for another architecture, with Debian's cross compiler.
#   scripts/cross.sh GOARCH [NAME=VALUE...]    into build/GOARCH/bin, with variables for make
# The libseccomp and the busybox are Debian's for that architecture. The libseccomp is
# unpacked, not installed: dpkg of this host hears of no foreign architecture.
set -euo pipefail
cd "$(dirname "$0")/.."

arch=$1
case $arch in
  arm64) gnu=aarch64-linux-gnu ;;
  amd64) gnu=x86_64-linux-gnu ;;
  *) echo "cross: $arch is none of amd64, arm64" >&2; exit 1 ;;
esac
out=$PWD/build/$arch
mkdir -p "$out"
[ "$(dpkg --print-architecture)" != "$arch" ] || { echo "cross: this host is $arch itself" >&2; exit 1; }
scripts/setup.sh "gcc-${gnu//_/-}" "libc6-dev-$arch-cross"

# fetch_libseccomp unpacks the package of Debian that this host's sources have.
fetch_libseccomp() {
  local work=$out/apt file
  [ ! -e "$out/sysroot/usr/include/seccomp.h" ] || return 0
  rm -rf "$work" "$out/sysroot"
  mkdir -p "$work"/{sources,lists/partial,archives/partial}
  for file in /etc/apt/sources.list /etc/apt/sources.list.d/*; do
    [ ! -e "$file" ] || cp "$file" "$work/sources/"
  done
  local apt=(apt-get -qq -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts="$work/sources"
    -o Dir::State::Lists="$work/lists" -o Dir::Cache="$work" -o APT::Architecture="$arch"
    -o APT::Architectures="$arch" -o Dir::State::Status=/dev/null -o APT::Sandbox::User=)
  "${apt[@]}" update
  (cd "$work" && "${apt[@]}" download libseccomp-dev)
  dpkg-deb -x "$work"/libseccomp-dev_*_"$arch".deb "$out/sysroot"
  dpkg-deb -f "$work"/libseccomp-dev_*_"$arch".deb Version > "$out/libseccomp.version"
  rm -rf "$work"
}

fetch_libseccomp
[ -e "$out/busybox" ] || scripts/busybox.sh "$out/busybox-work" "$out/busybox" "$arch"

# The daemon embeds the busybox: for this build, that of the other architecture. Both have
# the same applets, since they have the same configuration.
assets=$PWD/rootfs/base/assets
printf '{"Replace": {"%s": "%s"}}\n' "$assets/busybox" "$out/busybox" > "$out/overlay.json"

export GOOS=linux GOARCH=$arch CC=$gnu-gcc GOFLAGS="-overlay=$out/overlay.json ${GOFLAGS-}"
export PKG_CONFIG_LIBDIR=$out/sysroot/usr/lib/$gnu/pkgconfig PKG_CONFIG_SYSROOT_DIR=$out/sysroot
export CGO_CFLAGS="-O2 -g -I$out/sysroot/usr/include" CGO_LDFLAGS="-L$out/sysroot/usr/lib/$gnu"
# binutils knows packed relocations for some architectures only.
exec make build BIN="build/$arch/bin" PACKED= "${@:2}"
