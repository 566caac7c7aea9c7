#!/bin/sh
# Installs caisson from this directory on a host without dpkg and rpm, or removes it.
#   install.sh             install or upgrade; sandboxes go on
#   install.sh --remove    end all sandboxes and remove what was installed; images stay
#   install.sh --purge     the same, and remove images, volumes and the configuration
# It downloads nothing.
set -e
cd "$(dirname "$0")"

config=/etc/caisson/config.yaml
die() { echo "install.sh: $*" >&2; exit 1; }

[ "$(id -u)" = 0 ] || die "run it as root"
for manager in "dpkg-query -s" "rpm -q"; do
	if command -v "${manager%% *}" >/dev/null && $manager caisson >/dev/null 2>&1; then
		die "a package of caisson is installed; upgrade or remove that one with ${manager%% *}'s tools"
	fi
done

# files lists what is installed, beside the configuration.
files() { (cd root && find . -type f ! -path ".$config" | cut -c 2-); }

install_files() {
	files | while read -r file; do
		mkdir -p "${file%/*}"
		cp -p "root$file" "$file.new"
		chown 0:0 "$file.new"
		mv -f "$file.new" "$file"
	done
	if [ -e "$config" ]; then
		cmp -s "root$config" "$config" || cp "root$config" "$config.new"
	else
		mkdir -p "${config%/*}"
		cp "root$config" "$config"
	fi
}

remove_files() {
	files | while read -r file; do rm -f "$file"; done
	rmdir /usr/libexec/caisson 2>/dev/null || : # an older version still runs from there
	rm -rf /usr/share/doc/caisson
}

case "${1-}" in
"")
	old=
	[ ! -e /usr/bin/caissond ] || old=$(/usr/bin/caissond --version)
	sh scripts/preinstall.sh install
	install_files
	sh scripts/postinstall.sh configure "$old"
	;;
--remove | --purge)
	[ -e /usr/bin/caissond ] || die "caisson is not installed"
	sh scripts/preremove.sh remove
	if [ -d /run/systemd/system ]; then systemctl disable caissond.service; fi
	remove_files
	sh scripts/postremove.sh remove
	[ "$1" = --remove ] || {
		rm -f "$config"
		sh scripts/postremove.sh purge
	}
	;;
*) die "there is no $1; it is called without, with --remove or with --purge" ;;
esac
