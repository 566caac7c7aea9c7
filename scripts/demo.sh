#!/usr/bin/env bash
# Real work and real attacks, each in a sandbox of its own, with a daemon of its
# own: nothing of an installed caisson is touched and nothing is left. Every step
# says what must happen; the script fails if something else does.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "$(id -u)" != 0 ]; then
  echo 'make demo needs root: it makes namespaces, mounts and cgroups' >&2
  echo 'as root it installs what it needs, or says which packages to install: sudo make demo' >&2
  exit 1
fi

# --- a daemon of our own ----------------------------------------------------------

scratch=$(mktemp -d /var/tmp/caisson-demo.XXXXXX)
state=$(mktemp -d /run/caisson-demo.XXX) # short: sockets lie below it
readonly scratch state root=$scratch/root prefix=$scratch/installed work=$scratch/work
readonly caisson=$prefix/bin/caisson
export CAISSON_SOCKET=$state/caisson.sock
daemon='' site='' instance='' steps=0 failures=()

bold='' green='' red='' dim='' plain=''
if [ -t 1 ]; then bold=$'\e[1m' green=$'\e[32m' red=$'\e[31m' dim=$'\e[2m' plain=$'\e[0m'; fi

now() { echo $((${EPOCHREALTIME/[.,]/} / 1000)); } # ms

stop_daemon() {
  [ -n "$daemon" ] || return 0
  kill -TERM "$daemon" 2>/dev/null || true # it may have ended by itself
  wait "$daemon" || echo "the daemon ended with exit code $?" >&2
  daemon=''
}

# leftovers lists what of the daemon is still on the host: processes, mounts,
# cgroups, directories of sandboxes.
leftovers() {
  local p
  for p in /proc/[0-9]*; do
    if tr '\0' ' ' 2>/dev/null <"$p/cmdline" | grep -qF -e "$scratch/" -e "$state/"; then echo "process ${p#/proc/}"; fi
  done
  grep -F -e "$scratch" -e "$state" /proc/self/mountinfo || true
  compgen -G "/sys/fs/cgroup/$instance" || true
  compgen -G "/sys/fs/cgroup/*/$instance" || true
  find "$state/sandboxes" "$state/ids" "$root/output" "$root/spool" -mindepth 1 2>/dev/null || true
}

# serve_site serves one page on the host's loopback device, and tells the daemon
# that it is the host site.example.
serve_site() {
  mkdir "$scratch/site"
  echo 'this page is on the host' >"$scratch/site/index.html"
  local port
  for port in $(shuf -i 20000-30000 -n 20); do
    busybox httpd -f -p "127.0.0.1:$port" -h "$scratch/site" &
    site=$!
    until busybox wget -qO /dev/null "http://127.0.0.1:$port/" 2>/dev/null; do
      kill -0 "$site" 2>/dev/null || continue 2 # the port is taken
      sleep 0.05
    done
    printf 'network: {map: {site.example: "127.0.0.1:%s"}}\nworkspaces: {allowed_roots: ["%s", "%s"]}\n' "$port" "$PWD" "$scratch" >"$scratch/config.yaml"
    return
  done
  echo 'no port is free for a page' >&2
  exit 1
}

stop_site() {
  [ -n "$site" ] || return 0
  kill -TERM "$site" 2>/dev/null || true # it may have ended by itself
  wait "$site" 2>/dev/null || true
  site=''
}

clean_up() {
  local code=$?
  trap - EXIT
  stop_daemon
  stop_site
  if grep -qF -e "$scratch" -e "$state" /proc/self/mountinfo; then # what is mounted below is not ours to delete
    echo "mounts are left below $scratch or $state; nothing was deleted there" >&2
    exit 1
  fi
  rm -rf --one-file-system "$scratch" "$state"
  exit "$code"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

start_daemon() {
  local begin
  begin=$(now)
  # From elsewhere and in a session of its own, with nothing of our environment.
  (cd / && exec env -i PATH="$PATH" setsid "$prefix/bin/caissond" --config "$scratch/config.yaml" --root "$root" --state "$state" --keep-on-exit=false >"$scratch/log" 2>&1) &
  daemon=$!
  until "$caisson" ls >/dev/null 2>&1; do
    kill -0 "$daemon" 2>/dev/null && [ $(($(now) - begin)) -lt 60000 ] || { echo 'the daemon does not start:' >&2; cat "$scratch/log" >&2; exit 1; }
    sleep 0.05
  done
  instance=$("$caisson" version --daemon -o json | sed -n 's/.*"instance": "\(.*\)".*/\1/p')
  [ -n "$instance" ]
  echo "a daemon of our own, with its own containerd, is ready after $(($(now) - begin)) ms"
}

# --- steps ------------------------------------------------------------------------

section() { printf '\n%s%s%s\n' "$bold" "$1" "$plain"; }

skip() { printf '\n %s· %s: skipped, %s%s\n' "$dim" "$1" "$2" "$plain"; }

# shown prints a command as one would type it.
shown() {
  local word
  printf 'caisson'
  for word in "$@"; do
    if [[ $word =~ ^[A-Za-z0-9_./:=,+@%-]+$ ]]; then printf ' %s' "$word"; else printf " '%s'" "${word//\'/\'\\\'\'}"; fi
  done
}

# try runs caisson and checks what happens:
#   try TITLE [code=N] [says=REGEX]... [within=MS] [lines=REGEX] [input=FILE] -- ARG...
# code is 0 unless given; says must match the output; lines chooses what is shown.
try() {
  local title=$1 code=0 within=120000 lines='' input=/dev/null says=() wrong=() got begin took regex
  shift
  while [ "$1" != -- ]; do
    case $1 in
      code=*) code=${1#*=} ;;
      says=*) says+=("${1#*=}") ;;
      within=*) within=${1#*=} ;;
      lines=*) lines=${1#*=} ;;
      input=*) input=${1#*=} ;;
      *) echo "unknown check $1" >&2; exit 2 ;;
    esac
    shift
  done
  shift
  steps=$((steps + 1))
  printf '\n%2d %s%s%s\n' "$steps" "$bold" "$title" "$plain"
  { printf '$ '; shown "$@"; if [ "$input" != /dev/null ]; then printf " <<'EOF'\n%s\nEOF" "$(<"$input")"; fi; echo; } | sed "s/^/   $dim/; s/\$/$plain/"
  begin=$(now) got=0
  "$caisson" "$@" <"$input" >"$scratch/said" 2>&1 || got=$?
  took=$(($(now) - begin))
  { grep -E -- "$lines" "$scratch/said" || true; } | head -n 12 | cut -c 1-140 | sed 's/^/   | /'
  [ "$got" = "$code" ] || wrong+=("exit code $got instead of $code")
  [ "$took" -le "$within" ] || wrong+=("more than $within ms")
  for regex in "${says[@]}"; do
    grep -qE -- "$regex" "$scratch/said" || wrong+=("nothing in the output matches: $regex")
  done
  verdict "exit code $got, $took ms" "${wrong[@]}"
}

# verdict closes a step: RESULT, and what was wrong about it.
verdict() {
  local result=$1
  shift
  if [ $# = 0 ]; then
    printf '   %s✓ %s%s\n' "$green" "$result" "$plain"
    return
  fi
  failures+=("step $steps: $result, $(printf '%s; ' "$@")")
  printf '   %s✗ %s%s\n' "$red" "$result" "$plain"
  printf "     $red%s$plain\n" "$@"
  head -n 40 "$scratch/said" | sed 's/^/     all output: /'
}

# check_owner is a step of its own: who owns what was made in the workspace.
check_owner() {
  local owner wrong=()
  steps=$((steps + 1))
  printf '\n%2d %s%s%s\n' "$steps" "$bold" "What was made there belongs to the workspace's owner, outside" "$plain"
  owner=$(stat -c %u:%g "$work/primes" 2>&1) || true
  ls -ln "$work" | sed 's/^/   | /'
  [ "$owner" = 4242:4343 ] || wrong+=("it belongs to $owner")
  verdict "owner $owner" "${wrong[@]}"
}

# check_nothing_left stops the daemon and looks for what it left.
check_nothing_left() {
  local left end wrong=()
  steps=$((steps + 1))
  printf '\n%2d %s%s%s\n' "$steps" "$bold" 'The daemon stops; no process, mount, cgroup or directory of a sandbox is left' "$plain"
  stop_daemon
  stop_site
  end=$(($(now) + 10000)) # the kernel takes its time with cgroups
  while left=$(leftovers) && [ -n "$left" ] && [ "$(now)" -lt $end ]; do sleep 0.1; done
  [ -z "$left" ] || wrong+=("$left")
  verdict 'nothing' "${wrong[@]}"
}

# kill_daemon is a step of its own: the daemon dies at work, and another comes.
kill_daemon() {
  steps=$((steps + 1))
  printf '\n%2d %s%s%s\n' "$steps" "$bold" 'The daemon is killed, and started again' "$plain"
  kill -KILL "$daemon"
  wait "$daemon" 2>/dev/null || true
  start_daemon >"$scratch/said"
  sed 's/^/   | /' "$scratch/said"
  verdict 'it is back'
}

has() { [[ " ${tools[*]} " == *" $1 "* ]]; }

# dev_tools chooses what goes into the image: only what is installed here.
dev_tools() {
  local package
  for package in git python3 perl gcc libc6-dev; do
    if [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)" = installed ]; then
      tools+=("$package") image_args+=(--package "$package")
    fi
  done
  goroot=$(go env GOROOT)
  # The daemon copies nothing that a plain user of the host could not read.
  if setpriv --reuid 65534 --regid 65534 --clear-groups test -x "$goroot/bin/go" 2>/dev/null; then
    tools+=(go) image_args+=(--path "$goroot")
  fi
}

# --- the show ---------------------------------------------------------------------

echo 'installing what was built into a scratch directory'
make -s install PREFIX="$prefix"
began=$(now)
serve_site
start_daemon
tools=() image_args=() goroot=''
dev_tools

section 'Work'

try "An image of tools that this host has, copied (${tools[*]}): no registry, no network" \
  says='[0-9]+ entries' lines='entries|sha256' -- image from-host dev "${image_args[@]}"

cat >"$scratch/script" <<'EOF'
set -eu
echo "$(id -un) on $(nproc) CPU, $(ls /proc | grep -c '^[0-9]') processes, in $PWD"
find . -name '*.go' ! -path './build/*' -exec cat {} + | awk '
  /^func Test/ { tests++ }
  /^func /     { functions++ }
  END { print NR " lines of Go, " functions " functions, " tests " of them tests" }'
EOF
try 'A script of several lines, over this checkout, in the embedded image' \
  says='lines of Go, [0-9]+ functions' input="$scratch/script" -- run -i --workspace .:ro -- sh -s

if ! has git; then
  skip 'git' 'it is not installed'
elif [ ! -d .git ]; then
  skip 'git' 'this is no git checkout of its own'
else
  try 'The history of this checkout' says='^[0-9a-f]{7,} ' -- run --image dev --workspace .:ro -- git log --oneline -4
fi

if has go; then
  # Their own packages and the standard library only: there is no network for more.
  try 'Unit tests of this checkout, compiled from nothing' says='^ok .*/sbxerr' says='^ok .*/initproto/files' lines='^(ok|FAIL|---)' -- \
    run --image dev --workspace .:ro -m 2G --cpus 2 --pids 1024 --tmpfs 768M --timeout 5m \
    -e GOCACHE=/tmp/cache -e GOPATH=/tmp/go -e GOPROXY=off -e GOTOOLCHAIN=local -e GOFLAGS=-buildvcs=false -e GOWORK=off -- \
    sh -c 'go -C api test ./sbxerr && go test ./initproto ./initproto/files'
else
  skip 'go test' 'users of this host cannot read its Go'
fi

if has python3; then
  cat >"$scratch/script" <<'EOF'
import pathlib, sqlite3
db = sqlite3.connect("/tmp/code.db")
db.execute("create table file (folder, lines)")
for path in pathlib.Path(".").rglob("*.go"):
    if path.parts[0] != "build":
        db.execute("insert into file values (?, ?)", (path.parts[0], len(path.read_bytes().splitlines())))
for row in db.execute("select folder, count(*), sum(lines) from file group by 1 order by 3 desc limit 4"):
    print("%-10s %4d files %6d lines" % row)
EOF
  try 'Python puts the sources into a database and asks it' says='files +[0-9]+ lines' input="$scratch/script" -- \
    run -i --image dev --workspace .:ro -- python3 -
elif has perl; then
  cat >"$scratch/script" <<'EOF'
while (<>) { $n{$1}++ while /\b(\w{6,})\b/g }
printf "%-12s %d\n", $_, $n{$_} for (sort { $n{$b} <=> $n{$a} || $a cmp $b } keys %n)[0 .. 3];
EOF
  try 'Perl counts the words of the documentation' says='^[a-z]+ +[0-9]+$' -- \
    run --image dev --workspace .:ro -- perl -e "$(<"$scratch/script")" README.md docs/architecture.md
fi

mkdir "$work"
chown 4242:4343 "$work"
if has gcc && has libc6-dev; then
  cat >"$work/primes.c" <<'EOF'
#include <stdio.h>
int main(void) {
    int n = 0;
    for (int i = 2; i < 200000; i++) {
        int j = 2;
        while (j * j <= i && i % j) j++;
        n += j * j > i;
    }
    printf("%d primes below 200000\n", n);
}
EOF
  chown 4242:4343 "$work/primes.c"
  try 'A C program, compiled into a writable workspace and run there' says='^17984 primes' -- \
    run --image dev --workspace "$work" -- sh -c 'cc -O2 -o primes primes.c && ./primes'
else
  try 'A file, made in a writable workspace' -- run --workspace "$work" -- sh -c 'date > primes'
fi
check_owner

section 'A session that outlives the daemon'

try 'A sandbox that stays' says='^[a-z0-9]+$' -- create --name agent --idle-timeout 10m -m 256M
try 'Commands in it see what earlier ones did' -- exec agent -- sh -c 'echo $((6*7)) > /tmp/answer'
try 'and start in a few milliseconds' says='^42$' -- exec agent -- cat /tmp/answer
try 'A command in the background counts' says='^[0-9]+$' -- \
  exec -d agent -- sh -c 'i=0; while [ $i -lt 40 ]; do echo "count $i"; i=$((i+1)); sleep 0.1; done; exit 7'
job=$(<"$scratch/said")
readonly job
kill_daemon
try 'It ran on, no line of it is lost, and neither is its exit code' code=7 says='count 0$' says='count 39$' lines='count (0|19|39)$' -- attach agent "$job"
try 'Files go in and out through the sandbox itself' -- cp README.md agent:/tmp/copy.md
try 'The end of the session' -- rm --force agent

section 'A network of one name'

try 'What is named is reached, by its name' says='^this page is on the host$' -- run --allow site.example -- wget -qO- http://site.example/
try 'Nothing else is: no other name, no address, no cloud' code=1 says='elsewhere.example' says='1.1.1.1' says='169.254.169.254' -- \
  run --allow site.example -- sh -c 'for host in elsewhere.example 1.1.1.1 169.254.169.254; do wget -O- "http://$host/" && exit 0; done; exit 1'
try 'The decision, and what would change it' code=1 says='SBX-701' says='--allow elsewhere.example' -- policy check --allow site.example http://elsewhere.example/

section 'What must not work'

try 'Changing the checkout' code=1 says='Read-only file system' -- run --workspace .:ro -- touch README.md
try 'Changing the root file system' code=1 says='/etc/passwd: Read-only' says='/bin/ls.: Read-only' -- \
  run -- sh -c 'rm /bin/ls; echo me::0:0 >> /etc/passwd'
try "Reading the host's secrets" code=1 says="/etc/shadow.: No such file" says="/root.: Permission denied" -- \
  run -- sh -c 'cat /etc/shadow; ls /root'
try 'Mounting, a new user namespace, a device, another root' code=1 \
  says='mount: permission denied' says='unshare.*not permitted' says='mknod.*not permitted' says='chroot.*not permitted' -- \
  run -- sh -c 'mount -t tmpfs none /tmp; unshare -r true; mknod /tmp/disk b 8 0; chroot /tmp true; exit 1'
try 'Reaching the network: there is none, and that is known at once' code=1 says='Network is unreachable' within=5000 -- \
  run -- nc -w 60 1.1.1.1 443
try 'Using more memory than allowed' code=137 says='"oom_killed": true' says='"reason": "oom"' lines='exit_code|oom_killed|reason|peak_memory' -- \
  run --json -m 64M -- tail /dev/zero
try 'Forking without end' code=124 says='"pids_limit_hit": true' says='"timed_out": true' lines='exit_code|pids_limit|reason|peak_memory' -- \
  run --json --pids 64 --timeout 2s -- sh -c '(bomb() { bomb | bomb & }; bomb); exec sleep 1000'
try 'Running for longer than allowed, in the background too' code=124 within=10000 -- \
  run --timeout 1s -- sh -c 'sleep 1000 & sleep 1000'
try 'Asking for no limit at all' code=125 says='SBX-102' -- run -m 0 -- true

section 'Nothing is left'
check_nothing_left

echo
if [ ${#failures[@]} != 0 ]; then
  echo "${red}${#failures[@]} of $steps steps did not go as they must${plain}"
  printf ' %s\n' "${failures[@]}"
  exit 1
fi
echo "${green}all $steps steps went as they must${plain}, in $((($(now) - began) / 1000)) s"
