#!/bin/bash
# What the virtual machine does, as a service of its systemd: one part for each boot, the
# number of which is in /test/boot. It prints to the second serial port; a line that begins
# with "FAIL" fails the test, and the last one is "@@ done".
set -u
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
cd /

fail() { echo "FAIL $*"; }
say() { echo "@@ $(cut -d ' ' -f 1 /proc/uptime) $*"; }
expect() { # WHAT WANT GOT
  if [ "$2" = "$3" ]; then say "ok $1"; else fail "$1: want \"$2\", got \"$3\""; fi
}
now() { date +%s%N; }
since() { echo $((($(now) - $1) / 1000000)) ms; }
init_of() { caisson inspect "$1" | sed -n 's/^ *"pid": \([0-9]*\),*/\1/p' | head -n 1; }
left() { # what of caisson the host has, but not what is below that
  find /usr /etc /var/lib /run /sys/fs/cgroup -xdev -name '*caisson*' ! -path '/etc/g*' ! -path '/run/systemd/*' \
    ! -path '/var/lib/dpkg/*' ! -path '/var/lib/systemd/*' -print -prune
  grep -E ' /(run|var/lib)/caisson/' /proc/self/mountinfo
  find /sys/fs/cgroup -maxdepth 1 -name 'caisson*'
}
processes() { ps -e -o comm= | grep -E '^(caisson|containerd|runc)'; }

install_first() {
  local began
  # The administrator's own variables must not reach the daemon.
  export CAISSON_SOCKET=/nonexistent/caisson.sock
  began=$(now)
  dpkg -i /test/first.deb > /test/dpkg.log 2>&1 || { fail "dpkg -i: $(tail -n 5 /test/dpkg.log)"; return 1; }
  say "dpkg -i took $(since "$began")"
  unset CAISSON_SOCKET
  expect "the first command" hello "$(caisson run -- echo hello 2>&1)"
  say "dpkg -i and the first command took $(since "$began")"
  expect "the unit is enabled" enabled "$(systemctl is-enabled caissond)"
  expect "the unit runs" active "$(systemctl is-active caissond)"
  expect "the unit of sandboxes runs" active "$(systemctl is-active caisson-sandboxes)"
  expect "the host is fit" 0 "$(caisson doctor > /test/doctor.log 2>&1; echo $?)"
  grep -E 'fail|mount namespace' /test/doctor.log
  # A member of the group is a peer.
  useradd --create-home --groups caisson ann
  expect "a member of the group" "ann's" "$(runuser -u ann -- caisson run -- echo "ann's" 2>&1)"
  useradd --create-home bob
  runuser -u bob -- caisson run -- true > /test/bob.log 2>&1 && fail "bob is no member, and runs commands"
  grep -q SBX- /test/bob.log || fail "bob: $(cat /test/bob.log)"
}

unit_guards() {
  # With the unit stopped, a client of root starts no daemon beside it.
  systemctl stop caissond
  caisson ls > /test/ls.log 2>&1 && fail "there is a daemon beside the stopped unit"
  expect "the refusal names the remedy" 1 "$(grep -c 'systemctl start caissond' /test/ls.log)"
  systemctl start caissond
  expect "started again" 0 "$(caisson ls > /test/ls.log 2>&1; echo $?)"
  # A mount namespace of the service's own is refused by name.
  mkdir -p /etc/systemd/system/caissond.service.d
  printf '[Service]\nPrivateTmp=yes\nRestart=no\n' > /etc/systemd/system/caissond.service.d/bad.conf
  systemctl daemon-reload
  systemctl restart caissond > /dev/null 2>&1 && fail "the daemon starts with PrivateTmp=yes"
  journalctl -u caissond -n 20 > /test/journal.log
  expect "the refusal of PrivateTmp=" yes "$(grep -q 'a service with a mount namespace of its own.*SBX-105\|SBX-105.*a mount namespace of its own' /test/journal.log && grep -q PrivateTmp= /test/journal.log && echo yes)"
  rm -r /etc/systemd/system/caissond.service.d
  systemctl daemon-reload
  systemctl reset-failed caissond
  systemctl start caissond
}

# bad_upgrades leaves the last one interrupted: upgrade goes on from there.
bad_upgrades() {
  local before version free pid
  caisson create --name kept > /dev/null || fail "create kept"
  before=$(init_of kept)
  version=$(caisson version --daemon | head -n 1)
  unchanged() { # AFTER WHAT
    expect "the daemon after $1" "$version" "$(caisson version --daemon | head -n 1)"
    expect "the sandbox after $1" "$before" "$(init_of kept)"
    expect "a command after $1" works "$(caisson exec kept -- echo works 2>&1)"
    expect "a run after $1" works "$(caisson run -- echo works 2>&1)"
  }
  # A full disk: the programs do not fit.
  free=$(($(stat -f -c '%f * %S' /) - 20000000)) # root may take what is kept for root
  fallocate -l $free /test/filler
  dpkg -i /test/next.deb > /test/dpkg.log 2>&1 && fail "a full disk takes the package"
  expect "the refusal of a full disk" yes "$(grep -q 'No space left' /test/dpkg.log && echo yes)"
  rm /test/filler
  unchanged "a full disk"
  # Two at once, and one that is killed while it unpacks.
  setsid dpkg -i /test/next.deb > /test/dpkg.log 2>&1 &
  pid=$!
  for _ in $(seq 600); do compgen -G '/usr/libexec/caisson/*.dpkg-new' > /dev/null && break; sleep 0.05; done
  dpkg -i /test/next.deb > /test/second.log 2>&1 && fail "two packages at once are installed"
  expect "the refusal of a second one" yes "$(grep -q 'lock' /test/second.log && echo yes)"
  kill -KILL -- -$pid || fail "the first one ended before it was interrupted"
  wait $pid
  unchanged "an interrupted upgrade"
  # A unit that is started twice, and a daemon beside it.
  pid=$(systemctl show -P MainPID caissond)
  systemctl start caissond || fail "a unit that runs cannot be started"
  expect "the daemon of a unit started twice" "$pid" "$(systemctl show -P MainPID caissond)"
  timeout 60 caissond > /test/beside.log 2>&1 && fail "there is a daemon beside the unit's"
  expect "the refusal of a daemon beside it" yes "$(grep -q 'SBX-' /test/beside.log && echo yes)"
  caisson rm --force kept > /dev/null || fail "rm kept"
}

upgrade() {
  local before after count calls began
  mkdir -p /home/ann/work && chown ann: /home/ann/work
  for name in one two three; do caisson create --name $name > /dev/null || fail "create $name"; done
  caisson create --name desk --workspace /home/ann/work > /dev/null || fail "create desk"
  caisson exec -d one -- sh -c 'i=0; while :; do echo $i > /tmp/count; i=$((i+1)); sleep 0.1; done' > /dev/null
  before=$(for name in one two three desk; do init_of $name; done | xargs)
  [ "$(wc -w <<< "$before")" = 4 ] || fail "PIDs: $before"
  # A caller that goes on all the time: the longest time between two answers counts.
  (
    last=$(now) worst=0 n=0 bad=0
    while [ ! -e /test/stop ]; do
      caisson exec two -- true > /test/call.log 2>&1 && {
        gap=$((($(now) - last) / 1000000)) last=$(now) n=$((n + 1))
        [ $gap -le $worst ] || worst=$gap
      } || { bad=$((bad + 1)); cat /test/call.log >> /test/bad.log; }
    done
    echo "$n calls, $bad refused, longest gap $worst ms" > /test/calls
  ) &
  calls=$!
  sleep 5
  count=$(caisson exec one -- cat /tmp/count)
  began=$(now)
  dpkg -i /test/next.deb > /test/dpkg.log 2>&1 || fail "upgrade: $(tail -n 5 /test/dpkg.log)"
  say "the upgrade took $(since "$began")"
  expect "the new daemon serves" 9.9.9-next "$(caisson version --daemon | sed -n 's/^caissond \([^ ]*\).*/\1/p')"
  after=$(for name in one two three desk; do init_of $name; done | xargs)
  expect "PID 1 of each sandbox" "$before" "$after"
  [ "$(caisson exec one -- cat /tmp/count)" -gt "$count" ] || fail "the counter stands at $count"
  sleep 5
  touch /test/stop
  wait $calls
  say "during the upgrade: $(cat /test/calls)"
  [ ! -e /test/bad.log ] || head -n 6 /test/bad.log
  expect "directories of programs: old sandboxes need theirs" 2 "$(find /usr/libexec/caisson -mindepth 1 -maxdepth 1 -type d | wc -l)"
  expect "a new sandbox" new "$(caisson run -- echo new 2>&1)"
  caisson rm --force one > /dev/null 2>/test/rm.log || fail "an old sandbox cannot be removed: $(cat /test/rm.log)"
}

downgrade() {
  local record
  record=$(find /run/caisson/sandboxes -maxdepth 2 -name record.json | head -n 1)
  cp "$record" /test/record.json
  sed -i 's/"version": *[0-9]*/"version":99/' "$record"
  dpkg -i /test/first.deb > /test/dpkg.log 2>&1 && fail "a version that cannot read a sandbox's record was installed"
  expect "the refusal" 1 "$(grep -c 'was made by a newer version (record 99' /test/dpkg.log)"
  cp /test/record.json "$record"
  expect "the installed version stays" 9.9.9-next "$(caisson version --daemon | sed -n 's/^caissond \([^ ]*\).*/\1/p')"
  expect "its sandboxes stay" 3 "$(caisson ls -q | wc -l)"
}

hang() {
  local pid
  pid=$(systemctl show -P MainPID caissond)
  kill -KILL "$pid"
  for _ in $(seq 100); do [ "$(systemctl show -P MainPID caissond)" != "$pid" ] && caisson ls > /dev/null 2>&1 && break; sleep 0.2; done
  expect "sandboxes after a killed daemon" 3 "$(caisson ls -q | wc -l)"
}

first_boot() {
  install_first || return
  unit_guards
  bad_upgrades
  upgrade
  downgrade
  hang
  caisson volume create kept > /dev/null || fail "volume"
  date +%s > /test/down
}

second_boot() {
  local began
  say "the reboot took $(($(date +%s) - $(cat /test/down))) s"
  for _ in $(seq 100); do caisson ls > /dev/null 2>&1 && break; sleep 0.2; done
  expect "sandboxes after a reboot" "" "$(caisson ls -q)"
  expect "the image" 1 "$(caisson image ls | grep -c '^base')"
  expect "the volume" 1 "$(caisson volume ls | grep -c kept)"
  expect "a run after a reboot" again "$(caisson run -- echo again 2>&1)"
  echo precious > /home/ann/work/file
  caisson create --name desk --workspace /home/ann/work > /dev/null || fail "create desk"
  grep -q ' /run/caisson/' /proc/self/mountinfo || fail "the workspace is not mounted"
  [ -n "$(processes)" ] || fail "no process is found before the removal"
  export CAISSON_SOCKET=/nonexistent/caisson.sock
  began=$(now)
  dpkg -r caisson > /test/dpkg.log 2>&1 || fail "dpkg -r: $(tail -n 5 /test/dpkg.log)"
  say "the removal took $(since "$began")"
  expect "the workspace's file" precious "$(cat /home/ann/work/file)"
  expect "processes" "" "$(processes)"
  expect "left by removal" "/etc/caisson
/etc/systemd/system/multi-user.target.wants/caissond.service
/var/lib/caisson" "$(left | sort)"
  dpkg -P caisson > /test/dpkg.log 2>&1 || fail "dpkg -P: $(tail -n 5 /test/dpkg.log)"
  expect "left by purge" "" "$(left)"
  expect "the workspace's file" precious "$(cat /home/ann/work/file)"
}

boot=$(cat /test/boot 2>/dev/null || echo 1)
echo $((boot + 1)) > /test/boot
say "boot $boot"
case $boot in
  1) first_boot ;;
  2) second_boot ;;
esac
say "done"
sync
systemctl --no-block reboot # qemu ends where a machine would boot again
