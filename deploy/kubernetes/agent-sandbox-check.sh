#!/usr/bin/env bash
# Checks agent-sandbox in the cluster that KUBECONFIG names: a Sandbox, suspend and resume, expiry, and
# claims of a warm pool, each with one command in its pod. It works in a namespace of its own, prints
# figures as one line of JSON, and deletes what it made. It needs curl, and an API server that reaches
# addresses of pods.
set -euo pipefail
namespace=${NAMESPACE:-agent-sandbox-check}
image=${IMAGE:-base} class=${RUNTIME_CLASS:-caisson}
storage=${STORAGE_CLASS:-}             # with a class, the Sandbox keeps a file while it is suspended
pool=${POOL:-20} claims=${CLAIMS:-200} # as many claims at a time as the pool has members
timeout=${TIMEOUT:-120}                # seconds for a step
read -ra program <<<"${KUBECTL:-kubectl}"
started=()

kube() { "${program[@]}" -n "$namespace" "$@"; }
die() { echo "agent-sandbox-check: $*" >&2; exit 1; }
now() { echo $((${EPOCHREALTIME/[.,]/} / 1000)); } # milliseconds

finish() {
  local code=$? pid
  trap - EXIT
  for pid in "${started[@]}"; do kill "$pid" 2>/dev/null || true; done
  # Claims and pools go first, so that nothing is made again.
  kube delete sandboxclaims,sandboxwarmpools,sandboxes --all --timeout="${timeout}s" >/dev/null || code=1
  "${program[@]}" delete namespace "$namespace" --timeout="${timeout}s" >/dev/null || code=1
  rm -rf "$work"
  exit "$code"
}

# await WHAT COMMAND...: until the command succeeds.
await() {
  local what=$1 end=$((SECONDS + timeout))
  shift
  until "$@"; do
    ((SECONDS < end)) || die "not within $timeout s: $what"
    sleep 0.05
  done
}

# follow FILE KIND COLUMNS: a line with its time for each change of an object.
follow() {
  local line
  : >"$work/$1"
  "${program[@]}" -n "$namespace" get "$2" -w --no-headers -o "custom-columns=$3" > >(
    while read -r line; do echo "$((${EPOCHREALTIME/[.,]/} / 1000)) $line"; done >>"$work/$1"
  ) &
  started+=($!)
}

ready() { kube wait "sandbox/$1" --for=condition=Ready --timeout="${timeout}s" >/dev/null; }
set_mode() { kube patch sandbox one --type=merge -p "{\"spec\": {\"operatingMode\": \"$1\"}}" >/dev/null; }

# pod_template MORE: that of all Sandboxes here, with further fields of the container.
pod_template() {
  cat <<YAML
  podTemplate:
    metadata: {annotations: {caisson.run/runtime: python}}
    spec:
      runtimeClassName: $class
      terminationGracePeriodSeconds: 1
      containers:
      - {name: c, image: $image, command: [sleep, "100000"], resources: {requests: {cpu: 1m, memory: 32Mi}}$1}
YAML
}

check_sandbox() {
  local begin at when mount="" volume=""
  if [ -n "$storage" ]; then
    mount=', volumeMounts: [{name: data, mountPath: /data}]'
    volume="  volumeClaimTemplates: [{metadata: {name: data}, spec: {storageClassName: $storage, accessModes: [ReadWriteOnce], resources: {requests: {storage: 64Mi}}}}]"
  fi
  begin=$(now)
  kube create -f - >/dev/null <<YAML
apiVersion: agents.x-k8s.io/v1beta1
kind: Sandbox
metadata: {name: one}
spec:
$(pod_template "$mount")
$volume
YAML
  ready one
  sandbox_ready=$(($(now) - begin))
  [ "$(kube exec one -- echo runs)" = runs ] || die "no command runs in the Sandbox's pod"
  [ -z "$storage" ] || kube exec one -- sh -c 'echo kept >/data/file'

  begin=$(now)
  set_mode Suspended
  kube wait sandbox/one --for=condition=Suspended --timeout="${timeout}s" >/dev/null
  suspended=$(($(now) - begin))
  [ -z "$(kube get pods -o name)" ] || die "a suspended Sandbox has a pod"
  begin=$(now)
  set_mode Running
  ready one
  resumed=$(($(now) - begin))
  [ -z "$storage" ] || [ "$(kube exec one -- cat /data/file)" = kept ] || die "its file is gone after it was suspended"

  at=$((EPOCHSECONDS + 2))
  TZ=UTC0 printf -v when '%(%FT%TZ)T' "$at"
  kube patch sandbox one --type=merge -p "{\"spec\": {\"shutdownPolicy\": \"Delete\", \"shutdownTime\": \"$when\"}}" >/dev/null
  kube wait sandbox/one --for=delete --timeout="${timeout}s" >/dev/null
  expired=$(($(now) - at * 1000))
  ((expired >= 0)) || die "it expired too early"
  kube wait pod/one --for=delete --timeout="${timeout}s" >/dev/null
}

since() { tail -n "+$(($2 + 1))" "$work/$1"; } # FILE LINES
# full LINES: the pool has been short since a line of its file, and is whole now.
full() { since pool "$1" | awk -v want="$pool" '$2 + 0 < want { short = 1 } { last = $2 + 0 } END { exit !(short && last == want) }'; }
changed() { tail -n 1 "$work/pool" | cut -d' ' -f1; } # when the pool last changed
# bound WAVE: Ready claims and their Sandboxes.
bound() { awk -v wave="^claim-$1-" '$2 ~ wave && $3 == "True" { print $2, $4 }' "$work/claims" | sort -u; }
all_bound() { [ "$(bound "$1" | wc -l)" -eq "$2" ]; }

# wave NUMBER COUNT: claims become Ready, run a command each, and are deleted once the pool is whole.
wave() {
  local lines claim sandbox
  lines=$(wc -l <"$work/pool")
  for ((i = 0; i < $2; i++)); do
    printf -- '---\n{apiVersion: extensions.agents.x-k8s.io/v1beta1, kind: SandboxClaim, metadata: {name: %s}, spec: {warmPoolRef: {name: pool}}}\n' "claim-$1-$i"
  done | kube create -f - >/dev/null
  await "$2 claims are Ready" all_bound "$1" "$2"
  bound "$1" | while read -r claim sandbox; do
    printf 'next\nfail\nurl = "http://127.0.0.1:%s/api/v1/namespaces/%s/pods/%s:8888/proxy/execute"\n' "$port" "$namespace" "$sandbox"
    printf 'header = "Content-Type: application/json"\ndata = "{\\"command\\": \\"echo %s\\"}"\n' "$claim"
  done | sed 1d >"$work/requests"
  curl --no-progress-meter --parallel --config "$work/requests" >"$work/answers" || die "commands of claims: curl ends with $?"
  bound "$1" | while read -r claim sandbox; do
    grep -qF "\"stdout\":\"$claim\\n\"" "$work/answers" || die "the command of $claim gave nothing: $(cat "$work/answers")"
  done
  await "the pool is whole again" full "$lines"
  echo $(($(changed) - $(since pool "$lines" | head -n 1 | cut -d' ' -f1))) >>"$work/refills" # since a claim took a member
  kube delete sandboxclaims --all --wait=false >/dev/null
}

check_pool() {
  local begin n
  kube create -f - >/dev/null <<YAML
apiVersion: extensions.agents.x-k8s.io/v1beta1
kind: SandboxTemplate
metadata: {name: template}
spec:
  networkPolicyManagement: Unmanaged # else the API server may not connect to pods
$(pod_template "")
YAML
  follow pool sandboxwarmpools READY:.status.readyReplicas
  follow claims sandboxclaims 'NAME:.metadata.name,READY:.status.conditions[?(@.type=="Ready")].status,SANDBOX:.status.sandbox.name'
  # Its own pattern of what it rejects would reject /execute, too.
  "${program[@]}" proxy --port=0 --reject-paths='/pods/[^/]+/(exec|attach)' >"$work/proxy" &
  started+=($!)
  await "kubectl proxy listens" grep -q 127.0.0.1: "$work/proxy"
  port=$(grep -o '127\.0\.0\.1:[0-9]*' "$work/proxy" | cut -d: -f2)
  begin=$(now)
  echo "{apiVersion: extensions.agents.x-k8s.io/v1beta1, kind: SandboxWarmPool, metadata: {name: pool}, spec: {replicas: $pool, sandboxTemplateRef: {name: template}}}" |
    kube create -f - >/dev/null
  await "the pool is whole" full 0
  pool_ready=$(($(changed) - begin))
  for ((n = 0; n * pool < claims; n++)); do
    wave "$n" "$((claims - n * pool < pool ? claims - n * pool : pool))"
  done
}

# percentile SHARE: of numbers, one a line.
percentile() { sort -n | awk -v share="$1" '{ v[NR] = $1 } END { i = int(NR * share / 100) + 1; if (i > NR) i = NR; print v[i] }'; }

"${program[@]}" create namespace "$namespace" >/dev/null
work=$(mktemp -d)
trap finish EXIT
await "the service account is there" eval 'kube get serviceaccount default >/dev/null 2>&1'
check_sandbox
check_pool
# From when the watch shows a claim to when it shows it Ready.
awk '!($2 in at) { at[$2] = $1 } $3 == "True" && !($2 in done) { done[$2] = 1; print $1 - at[$2] }' "$work/claims" >"$work/took"
printf '{"sandbox_ready_ms": %d, "suspended_ms": %d, "resumed_ms": %d, "expired_ms": %d, "pool": %d, "pool_ready_ms": %d, ' \
  "$sandbox_ready" "$suspended" "$resumed" "$expired" "$pool" "$pool_ready"
printf '"claims": %d, "claim_ready_p50_ms": %d, "claim_ready_p99_ms": %d, "refill_p50_ms": %d, "refill_max_ms": %d}\n' \
  "$(wc -l <"$work/took")" "$(percentile 50 <"$work/took")" "$(percentile 99 <"$work/took")" \
  "$(percentile 50 <"$work/refills")" "$(percentile 100 <"$work/refills")"
