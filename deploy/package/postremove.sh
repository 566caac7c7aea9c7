#!/bin/sh
# After the files are removed. Debian calls it with "remove", "purge" or "upgrade", rpm with a
# number.
set -e

[ ! -d /run/systemd/system ] || systemctl --system daemon-reload || :
case "$1" in
remove | 0)
	# A mount is a sandbox's, and what is below it may be a user's workspace.
	! grep -q ' /run/caisson/' /proc/self/mountinfo || {
		echo "caisson: something is mounted below /run/caisson, so that stays" >&2
		exit 0
	}
	rm -rf --one-file-system /run/caisson /run/lock/caisson
	;;
purge)
	! grep -qE ' /(run|var/lib)/caisson/' /proc/self/mountinfo || {
		echo "caisson: something is mounted below /run/caisson or /var/lib/caisson, so nothing was removed" >&2
		exit 1
	}
	rm -rf --one-file-system /var/lib/caisson /run/caisson /run/lock/caisson
	! [ -d /etc/caisson ] || rmdir --ignore-fail-on-non-empty /etc/caisson
	! command -v deb-systemd-helper >/dev/null || deb-systemd-helper purge caissond.service >/dev/null || :
	;;
esac
