// Package kubelet serves what the API server asks of a node: exec, attach, logs, port-forward and
// statistics. Each request is authenticated, and the API server says whether it is allowed.
package kubelet

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/gorilla/mux"
	vk "github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	corev1 "k8s.io/api/core/v1"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/node/daemon"
)

// Pods finds sandboxes of pods.
type Pods interface {
	Find(ctx context.Context, namespace, pod, container string, previous bool) (sandbox string, err error)
	Live(context.Context) ([]*caissonv1.Sandbox, error)
	Pods() []*corev1.Pod
}

// Caisson is what is called of the daemon.
type Caisson interface {
	Exec(ctx context.Context, ref string, spec *caissonv1.ExecSpec, rio api.IO) (*caissonv1.Result, error)
	Execs(ctx context.Context, ref string) ([]*caissonv1.Exec, error)
	Attach(ctx context.Context, ref, exec string, o api.AttachOptions, rio api.IO) (*caissonv1.Result, error)
	Logs(ctx context.Context, req *caissonv1.LogsRequest, stdout, stderr io.Writer) error
	Forward(ctx context.Context, ref string, port uint16) (daemon.Stream, error)
	Stats(context.Context, *caissonv1.StatsRequest, func(*caissonv1.StatsResponse) error) error
}

// Server answers for the pods of one node.
type Server struct {
	Node    string
	Pods    Pods
	Caisson Caisson
}

// idle is how long a stream may be silent, as the kubelet's.
const idle = 4 * time.Hour

// Handler serves the kubelet's API to those whom auth admits.
func (s *Server) Handler(auth nodeutil.Auth) http.Handler {
	r := mux.NewRouter()
	r.StrictSlash(true)
	timeouts := []vk.ContainerExecHandlerOption{vk.WithExecStreamIdleTimeout(idle), vk.WithExecStreamCreationTimeout(30 * time.Second)}
	r.HandleFunc("/pods", vk.HandleRunningPods(s.listPods)).Methods(http.MethodGet)
	r.HandleFunc("/containerLogs/{namespace}/{pod}/{container}", s.logs).Methods(http.MethodGet)
	r.HandleFunc("/exec/{namespace}/{pod}/{container}", vk.HandleContainerExec(s.exec, timeouts...)).Methods(http.MethodPost, http.MethodGet)
	r.HandleFunc("/attach/{namespace}/{pod}/{container}", vk.HandleContainerAttach(s.attach, timeouts...)).Methods(http.MethodPost, http.MethodGet)
	r.HandleFunc("/portForward/{namespace}/{pod}", vk.HandlePortForward(s.portForward,
		vk.WithPortForwardStreamIdleTimeout(idle), vk.WithPortForwardCreationTimeout(30*time.Second))).Methods(http.MethodPost, http.MethodGet)
	r.HandleFunc("/stats/summary", vk.HandlePodStatsSummary(s.summary)).Methods(http.MethodGet)
	r.HandleFunc("/metrics/resource", s.metrics).Methods(http.MethodGet)
	r.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) }).Methods(http.MethodGet)
	return nodeutil.WithAuth(auth, r)
}

func (s *Server) listPods(context.Context) ([]*corev1.Pod, error) { return s.Pods.Pods(), nil }
