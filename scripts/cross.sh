#!/usr/bin/env bash
# Runs a command that builds for another architecture, with Debian's cross compiler.
#   scripts/cross.sh GOARCH COMMAND [ARG...]
# The libseccomp and the busybox are Debian's for that architecture, in build/GOARCH.
# binutils knows packed relocations for some architectures only: give make PACKED=.
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
  local debs=$out/debs
  [ ! -e "$out/sysroot/usr/include/seccomp.h" ] || return 0
  rm -rf "$debs" "$out/sysroot"
  scripts/foreign.sh "$arch" "$debs" libseccomp-dev
  dpkg-deb -x "$debs"/libseccomp-dev_*.deb "$out/sysroot"
  dpkg-deb -f "$debs"/libseccomp-dev_*.deb Version > "$out/libseccomp.version"
  rm -r "$debs"
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
exec "${@:2}"
