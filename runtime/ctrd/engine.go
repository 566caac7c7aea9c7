package ctrd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/defaults"
	"github.com/containerd/containerd/v2/pkg/dialer"
	"github.com/containerd/containerd/v2/pkg/identifiers"
	"github.com/opencontainers/go-digest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/images"
)

var (
	_ runtime.Engine = (*Engine)(nil)
	_ images.Store   = (*Engine)(nil)
)

const (
	// downTimeout is how long a call waits for a server that is starting again.
	downTimeout = 15 * time.Second
)

// EngineConfig says which containerd to use and how.
type EngineConfig struct {
	Address   string // the server's socket, absolute
	Namespace string // of everything that the Engine makes
	Shim      string // absolute path of the shim; empty lets the server find io.containerd.runc.v2
	Runc      string // absolute path of the OCI runtime that the shim runs
	RuncRoot  string // absolute directory of that runtime's state
	Sockets   string // absolute directory of the shims' sockets; empty leaves it to the server
	// Bundles are the absolute directories in which the server keeps something of each
	// container; none leaves them to the server.
	Bundles []string
	// CallTimeout bounds every call whose work does not grow with an image. 0 is a minute.
	CallTimeout time.Duration
	// Attempts is how often a call is made that finds the server away. 0 is 4.
	Attempts int
	// Backoff is the pause before the second attempt, and doubles. 0 is 50 ms.
	Backoff time.Duration
}

// Engine makes containers and keeps images in one namespace of a containerd. Its
// methods may be called at the same time. Until Open has succeeded, and while the
// server is away, they wait a while, then fail with sbxerr.EngineDown.
type Engine struct {
	cfg    EngineConfig
	client *containerd.Client
	conn   *grpc.ClientConn
	opened chan struct{} // closed by Open
	gate   *shimGate
	names  imageNames
	runc   askedVersion
	warmer cgroupWarmer

	mu      sync.Mutex
	uploads map[digest.Digest][]string // leases that keep a blob until its image is committed
	docs    map[digest.Digest]documents
	views   map[string]layers // by chain ID
	unpack  sync.Mutex        // one at a time: the disk is the bottleneck
	repair  sync.Mutex        // of layers, one image at a time; unpack may be locked meanwhile
	tainted map[string]bool   // sockets of shims that may remember a container that nobody else knows of
}

// New returns an Engine that is still to be opened. The server need not run yet.
func New(cfg EngineConfig) (*Engine, error) {
	const op = "ctrd.new"
	if err := cfg.check(); err != nil {
		return nil, sbxerr.Wrap(sbxerr.DaemonConf, op, err)
	}
	conn, err := dial(cfg.Address)
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.EngineDown, op, err)
	}
	client, err := containerd.NewWithConn(conn)
	if err != nil {
		conn.Close()
		return nil, sbxerr.Wrap(sbxerr.Internal, op, err)
	}
	cfg.CallTimeout, cfg.Attempts, cfg.Backoff = cmp.Or(cfg.CallTimeout, time.Minute), cmp.Or(cfg.Attempts, 4), cmp.Or(cfg.Backoff, 50*time.Millisecond)
	return &Engine{
		cfg: cfg, client: client, conn: conn, opened: make(chan struct{}), gate: newShimGate(), uploads: map[digest.Digest][]string{},
		docs: map[digest.Digest]documents{}, views: map[string]layers{}, tainted: map[string]bool{},
	}, nil
}

// Open lets calls go to the server once it answers and is of a version that can
// be used, 1.7 or newer, and once what an earlier daemon could not see to the end
// of is ended: imports and shims. It is called until it succeeds once.
func (e *Engine) Open(ctx context.Context) error {
	const op = "ctrd.open"
	var version string
	err := e.callUnopened(ctx, op, "read version of", e.cfg.Address, func(ctx context.Context) error {
		r, err := e.client.VersionService().Version(ctx, &emptypb.Empty{})
		version = r.GetVersion()
		return err
	})
	if err != nil {
		return err
	}
	if f := CheckContainerd(version); f.Severity == Refused {
		return sbxerr.New(sbxerr.EngineVersion, op, "use containerd %q at %q: %s", version, e.cfg.Address, f.Reason)
	}
	if err := e.callUnopened(ctx, op, "end old imports of", e.cfg.Namespace, func(ctx context.Context) error {
		return e.dropLeases(ctx, func(leases.Lease) bool { return true })
	}); err != nil && !diskFull(err) { // then they stay until a cleanup finds room
		return err
	}
	if err := e.callUnopened(ctx, op, "end orphans of", e.cfg.Namespace, e.adoptShims); err != nil {
		return err
	}
	close(e.opened)
	return nil
}

// Close ends the connection. What was made stays.
func (e *Engine) Close() error { return e.conn.Close() }

func (c EngineConfig) check() error {
	errs := []error{checkPath("address", c.Address), checkPath("runc", c.Runc), checkPath("runc root", c.RuncRoot)}
	if c.Shim != "" {
		errs = append(errs, checkPath("shim", c.Shim))
	}
	if c.Sockets != "" {
		errs = append(errs, checkPath("sockets", c.Sockets))
	}
	for _, dir := range c.Bundles {
		errs = append(errs, checkPath("bundles", dir))
	}
	if err := identifiers.Validate(c.Namespace); err != nil {
		errs = append(errs, fmt.Errorf("use namespace %q: %w", c.Namespace, err))
	}
	return errors.Join(errs...)
}

// dial connects lazily, and again by itself whenever the connection is lost.
// gRPC's own backoff is made for networks: on a local socket, a server that is
// back should be noticed at once.
func dial(address string) (*grpc.ClientConn, error) {
	return grpc.NewClient(dialer.DialAddress(address),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(dialer.ContextDialer),
		grpc.WithIdleTimeout(0),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1.5, Jitter: 0.1, MaxDelay: 250 * time.Millisecond},
			MinConnectTimeout: 5 * time.Second,
		}),
		grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(defaults.DefaultMaxRecvMsgSize),
			grpc.MaxCallSendMsgSize(defaults.DefaultMaxSendMsgSize)),
	)
}

// awaitServing returns once the server at address says that it serves.
func awaitServing(ctx context.Context, address string) error {
	conn, err := dial(address)
	if err != nil {
		return err
	}
	defer conn.Close()
	return checkServing(ctx, conn)
}

// checkServing waits for the server's word that it serves.
func checkServing(ctx context.Context, conn *grpc.ClientConn) error {
	r, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{}, grpc.WaitForReady(true))
	if err != nil {
		return withCause(ctx, err)
	}
	if r.Status != healthpb.HealthCheckResponse_SERVING {
		return fmt.Errorf("check health at %q: %s", conn.Target(), r.Status)
	}
	return nil
}

// awaitOpen waits for Open, at most downTimeout.
func (e *Engine) awaitOpen(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, downTimeout, errDown)
	defer cancel()
	select {
	case <-e.opened:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// ready waits until the connection is up, at most downTimeout.
func (e *Engine) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, downTimeout, errDown)
	defer cancel()
	for {
		state := e.conn.GetState()
		switch state {
		case connectivity.Ready:
			return nil
		case connectivity.Shutdown:
			return errDown
		case connectivity.Idle:
			e.conn.Connect()
		}
		if !e.conn.WaitForStateChange(ctx, state) {
			return context.Cause(ctx)
		}
	}
}
