#!/usr/bin/env bash
# cluster.sh DIR: certificates and a control plane on loopback in DIR, until it is stopped.
# KUBE names the binary of tools/kubernetes. DIR/admin.conf is for kubectl, and DIR/NAME.conf
# for each node that NODES names as NAME=ADDRESS.
set -euo pipefail
dir=$1 here=$PWD
mkdir -p "$dir"
cd "$dir"
log() { exec >"$1.log" 2>&1; }

issue() { # NAME SUBJECT [SAN]
  openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$1.key" -out "$1.csr" -subj "$2" 2>/dev/null
  openssl x509 -req -in "$1.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -days 30 -out "$1.crt" \
    -extfile <(printf 'extendedKeyUsage=serverAuth,clientAuth\n%s' "${3:+subjectAltName=$3}") 2>/dev/null
}

kubeconfig() { # NAME
  cat >"$1.conf" <<CONF
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://127.0.0.1:26443", certificate-authority: $PWD/ca.crt}}]
users: [{name: u, user: {client-certificate: $PWD/$1.crt, client-key: $PWD/$1.key}}]
CONF
}

openssl req -x509 -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.crt -subj /CN=ca -days 30 2>/dev/null
openssl genrsa -out sa.key 2048 2>/dev/null
openssl rsa -in sa.key -pubout -out sa.pub 2>/dev/null
issue apiserver /CN=apiserver IP:127.0.0.1,IP:10.96.0.1,DNS:kubernetes.default.svc
issue kubelet-client /O=system:masters/CN=kubelet-client
issue front-proxy /CN=front-proxy-client
issue admin /O=system:masters/CN=admin
issue scheduler /CN=system:kube-scheduler
issue manager /O=system:masters/CN=system:kube-controller-manager
issue nobody /CN=nobody
issue bootstrap /O=system:bootstrappers/CN=bootstrap
for name in admin scheduler manager nobody bootstrap; do kubeconfig $name; done
for node in ${NODES:-}; do
  issue "${node%%=*}" "/O=system:nodes/CN=system:node:${node%%=*}"
  issue "${node%%=*}-serving" "/O=system:nodes/CN=system:node:${node%%=*}" "IP:${node#*=}"
  kubeconfig "${node%%=*}"
done

trap 'kill -KILL $(jobs -p) 2>/dev/null; wait' EXIT
# With the death signal nothing outlives this shell.
again() { exec setpriv --pdeathsig KILL bash "$here/again.sh" "$@"; }
(log etcd; again etcd --data-dir etcd --unsafe-no-fsync \
  --listen-client-urls http://127.0.0.1:22379 --advertise-client-urls http://127.0.0.1:22379 \
  --listen-peer-urls http://127.0.0.1:22380 --initial-advertise-peer-urls http://127.0.0.1:22380 \
  --initial-cluster default=http://127.0.0.1:22380) &
(log apiserver; again apiserver --etcd-servers=http://127.0.0.1:22379 \
  --bind-address=127.0.0.1 --advertise-address=192.0.2.254 --secure-port=26443 --endpoint-reconciler-type=none \
  --tls-cert-file=apiserver.crt --tls-private-key-file=apiserver.key --client-ca-file=ca.crt \
  --kubelet-client-certificate=kubelet-client.crt --kubelet-client-key=kubelet-client.key \
  --kubelet-certificate-authority=ca.crt --kubelet-preferred-address-types=InternalIP \
  --service-account-key-file=sa.pub --service-account-signing-key-file=sa.key \
  --service-account-issuer=https://kubernetes.default.svc --service-cluster-ip-range=10.96.0.0/24 \
  --enable-aggregator-routing --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction \
  --requestheader-client-ca-file=ca.crt --requestheader-allowed-names=front-proxy-client \
  --requestheader-extra-headers-prefix=X-Remote-Extra- --requestheader-group-headers=X-Remote-Group \
  --requestheader-username-headers=X-Remote-User \
  --proxy-client-cert-file=front-proxy.crt --proxy-client-key-file=front-proxy.key) &
until "$KUBE" kubectl --kubeconfig=admin.conf get --raw=/readyz &>/dev/null; do sleep 0.1; done
(log scheduler; exec setpriv --pdeathsig KILL "$KUBE" scheduler --kubeconfig=scheduler.conf --authentication-kubeconfig=scheduler.conf \
  --authorization-kubeconfig=scheduler.conf --leader-elect=false --bind-address=127.0.0.1 --secure-port=20259 --kube-api-qps=500 --kube-api-burst=1000) &
(log manager; exec setpriv --pdeathsig KILL "$KUBE" controller-manager --kubeconfig=manager.conf --authentication-kubeconfig=manager.conf \
  --authorization-kubeconfig=manager.conf --leader-elect=false --bind-address=127.0.0.1 --secure-port=20257 \
  --service-account-private-key-file=sa.key --root-ca-file=ca.crt --cluster-signing-cert-file=ca.crt \
  --cluster-signing-key-file=ca.key --use-service-account-credentials=true --kube-api-qps=500 --kube-api-burst=1000) &
(log metrics; exec setpriv --pdeathsig KILL "$KUBE" metrics-server --kubeconfig=admin.conf --authentication-kubeconfig=admin.conf \
  --authorization-kubeconfig=admin.conf --bind-address=192.0.2.253 --secure-port=4443 --cert-dir=metrics \
  --kubelet-use-node-status-port --kubelet-preferred-address-types=InternalIP --kubelet-certificate-authority=ca.crt \
  --metric-resolution=10s --kubelet-request-timeout=5s) &
wait
