#!/bin/sh
# After the files are in place. Debian calls it with "configure [OLD-VERSION]", rpm with
# 1 (installed) or 2 (upgraded), install.sh as Debian.
set -e

version=@VERSION@ # of the programs
libexec=/usr/libexec/caisson
path=/usr/sbin:/usr/bin:/sbin:/bin

case "$1" in
configure) [ -n "$2" ] && upgrade=yes || upgrade=no ;;
1) upgrade=no ;;
2) upgrade=yes ;;
*) exit 0 ;;
esac

# add_group makes the group whose members may use the socket.
add_group() {
	! getent group caisson >/dev/null || return 0
	if command -v systemd-sysusers >/dev/null; then systemd-sysusers caisson.conf; else groupadd --system caisson; fi
}

# keep_programs gives the programs names that the next version does not replace: a daemon of
# this version, and the shims of its sandboxes, run them until they have ended.
keep_programs() {
	mkdir -p "$libexec/$version"
	for file in "$libexec"/*; do
		[ -f "$file" ] || continue
		rm -f "$libexec/$version/.new"
		# Some file systems have no hard links.
		ln "$file" "$libexec/$version/.new" 2>/dev/null || cp -p "$file" "$libexec/$version/.new"
		mv -f "$libexec/$version/.new" "$libexec/$version/${file##*/}"
		rm -f "$libexec/$version/.new" # mv leaves a link to the same file
	done
}

# is_used reports whether a process runs a program of a directory.
is_used() {
	for exe in /proc/[0-9]*/exe; do
		case "$(readlink "$exe")" in "$1"/*) return 0 ;; esac
	done
	return 1
}

# drop_programs removes those of other versions that no process runs.
drop_programs() {
	for dir in "$libexec"/*; do
		[ -d "$dir" ] && [ ! -L "$dir" ] && [ "$dir" != "$libexec/$version" ] || continue
		is_used "$dir" || rm -r --one-file-system -- "$dir"
	done
}

# check_config leaves the old daemon alone where the new one would not start.
check_config() {
	code=0
	said=$(env -i PATH=$path /usr/bin/caissond doctor 2>&1 >/dev/null) || code=$?
	[ "$code" != 125 ] || {
		echo "$said" >&2
		echo "caisson: the configuration is refused, and the daemon was not restarted; correct it and configure the package again (dpkg --configure caisson)" >&2
		exit 1
	}
}

enable_unit() {
	if command -v deb-systemd-helper >/dev/null; then
		if deb-systemd-helper --quiet was-enabled caissond.service; then
			deb-systemd-helper enable caissond.service >/dev/null || :
		else
			deb-systemd-helper update-state caissond.service >/dev/null || :
		fi
	elif ! command -v systemctl >/dev/null; then
		:
	elif [ "$1" = configure ]; then
		systemctl enable caissond.service
	elif [ $upgrade = no ]; then # what the distribution's presets say
		systemctl preset caissond.service
	fi
}

start_unit() {
	systemctl --system daemon-reload
	if [ $upgrade = yes ]; then
		check_config
		systemctl try-restart caissond.service
	elif command -v deb-systemd-invoke >/dev/null; then
		deb-systemd-invoke start caissond.service # asks policy-rc.d
	elif systemctl --quiet is-enabled caissond.service; then
		systemctl start caissond.service
	fi
}

add_group
keep_programs
enable_unit "$1"
if [ -d /run/systemd/system ]; then # else a chroot, a container or another init
	! command -v systemd-tmpfiles >/dev/null || systemd-tmpfiles --create caisson.conf
	start_unit
fi
drop_programs
