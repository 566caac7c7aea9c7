package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	corev1 "k8s.io/api/core/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/record"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/node/address"
	"github.com/caisson-run/caisson/node/agentsandbox"
	"github.com/caisson-run/caisson/node/daemon"
	"github.com/caisson-run/caisson/node/identity"
	"github.com/caisson-run/caisson/node/kubelet"
	"github.com/caisson-run/caisson/node/provision"
	"github.com/caisson-run/caisson/node/reconcile"
	"github.com/caisson-run/caisson/node/register"
)

func run(ctx context.Context, o options) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	caisson := api.Dial(o.socket)
	runtimes := agentsandbox.New(caisson)
	defer runtimes.Close()
	d := daemon.Daemon{Client: caisson, Runtimes: runtimes}
	version, err := waitFor(ctx, d, log)
	if err != nil {
		return err
	}
	unlock, err := lock(version.Instance)
	if err != nil {
		return err
	}
	defer unlock()
	if err := os.MkdirAll(o.files, 0o700); err != nil {
		return err
	}
	own := identity.Config{Node: o.node, Dir: o.certDir, Log: log}
	client, err := connect(ctx, o, own)
	if err != nil {
		return err
	}
	registration := register.New(register.Config{
		Node: o.node, Address: o.address, Port: int32(o.port), PodCIDR: cidr(o), Client: client, Caisson: d, MaxPods: o.most(), Log: log,
		Machine: register.Machine(), Instance: version.Instance,
	})
	if err := registration.Claim(ctx); err != nil {
		return err
	}
	if err := registration.Learn(ctx); err != nil {
		return err
	}
	events, stop := recorder(client, o.node)
	defer stop()
	c := reconcile.Config{
		Node: o.node, HostIP: o.address, Client: client, Caisson: d, Events: events, Offer: o.offer, Files: o.files, Runtimes: runtimes,
		Allocatable: registration.Allocatable, Memory: o.memory, Workers: o.workers, Resync: 20 * time.Second, Refresh: o.refresh, Log: log,
		IgnorePolicies: o.ignorePolicies,
	}
	if o.podCIDR.IsValid() {
		c.Addresses = address.New(o.podCIDR, address.Loopback{})
	}
	pods := reconcile.New(c)
	served, err := serve(ctx, o, own, client, &kubelet.Server{Node: o.node, Pods: pods, Caisson: d})
	if err != nil {
		return err
	}
	go registration.Run(ctx)
	volumes := provision.New(provision.Config{Node: o.node, Client: client, Caisson: d, Events: events, Log: log})
	followed := make(chan error, 2)
	go func() { followed <- pods.Run(ctx) }()
	go func() { followed <- volumes.Run(ctx) }()
	select {
	case err = <-served:
	case err = <-followed:
	}
	return err
}

// waitFor waits until the daemon answers: either may start first.
func waitFor(ctx context.Context, d daemon.Daemon, log *slog.Logger) (*caissonv1.VersionResponse, error) {
	for {
		v, err := d.Version(ctx, &caissonv1.VersionRequest{})
		if err == nil || ctx.Err() != nil {
			return v, err
		}
		log.Warn("the daemon does not answer", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// lock keeps a second node program from the same daemon. It ends with the process.
func lock(instance string) (unlock func(), err error) {
	const dir = "/run/lock"
	f, err := os.OpenFile(filepath.Join(dir, "caisson-node-"+filepath.Base(instance)+".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(errors.New("another caisson-node serves this daemon: stop it first"), f.Close())
	}
	return func() { _ = f.Close() }, nil
}

func connect(ctx context.Context, o options, own identity.Config) (kubernetes.Interface, error) {
	file := o.kubeconfig
	if o.bootstrap != "" {
		file = o.bootstrap
	}
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err == nil && o.bootstrap != "" {
		config, err = own.Client(ctx, config)
	}
	if err != nil {
		return nil, err
	}
	config.QPS = -1 // no bound: the API server has its own fairness
	config.UserAgent = "caisson-node"
	config.ContentType, config.AcceptContentTypes = k8sruntime.ContentTypeProtobuf, k8sruntime.ContentTypeProtobuf+","+k8sruntime.ContentTypeJSON
	return kubernetes.NewForConfig(config)
}

func recorder(client kubernetes.Interface, node string) (events record.EventRecorder, stop func()) {
	b := record.NewBroadcaster()
	b.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	return b.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "caisson-node", Host: node}), b.Shutdown
}

func cidr(o options) string {
	if !o.podCIDR.IsValid() {
		return ""
	}
	return o.podCIDR.String()
}

// serve begins to serve the kubelet's API. The channel has the error that ends it.
func serve(ctx context.Context, o options, own identity.Config, client kubernetes.Interface, s *kubelet.Server) (<-chan error, error) {
	ca, err := dynamiccertificates.NewDynamicCAContentFromFile("clients", o.clientCA)
	if err != nil {
		return nil, err
	}
	auth, err := nodeutil.WebhookAuth(client, o.node, func(c *nodeutil.WebhookAuthConfig) error {
		c.AuthnConfig.ClientCertificateCAContentProvider = ca
		return nil
	})
	if err != nil {
		return nil, err
	}
	go ca.Run(ctx, 1)
	certificate, err := serving(o, own, client)
	if err != nil {
		return nil, fmt.Errorf("the serving certificate: %w", err)
	}
	server := &http.Server{
		Handler:           s.Handler(auth),
		ReadHeaderTimeout: 10 * time.Second,
		TLSConfig: &tls.Config{
			MinVersion: tls.VersionTLS12, ClientAuth: tls.RequestClientCert, GetCertificate: certificate,
		},
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){}, // SPDY needs HTTP/1.1
	}
	l, err := net.Listen("tcp", net.JoinHostPort(o.address, strconv.Itoa(o.port)))
	if err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- server.ServeTLS(l, "", "") }()
	context.AfterFunc(ctx, func() { _ = server.Close() })
	return ended, nil
}

// serving returns what gives the certificate of the kubelet's API: the cluster's, or that of files.
func serving(o options, own identity.Config, client kubernetes.Interface) (func(*tls.ClientHelloInfo) (*tls.Certificate, error), error) {
	if o.certDir != "" {
		return own.Serving(client, o.address)
	}
	load := func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		c, err := tls.LoadX509KeyPair(o.cert, o.key) // renewed files count at once
		return &c, err
	}
	_, err := load(nil)
	return load, err
}
