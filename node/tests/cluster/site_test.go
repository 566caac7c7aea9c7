package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/node/address"
)

// cluster is a control plane with its nodes.
type cluster struct {
	dir    string
	plane  process
	nodes  []*node
	client kubernetes.Interface
}

// node is a daemon with its node program.
type node struct {
	name, address, root, state, files string
	pods                              *net.IPNet
	daemon, program                   process
	caisson                           *api.Client
	instance                          string
}

// deadline is what a step may take on a busy machine.
const deadline = 90 * time.Second

// settings let a daemon run so many pods, with some kept ready.
const settings = "ids: {blocks: %[1]d}\nsandboxes: {max: %[1]d}\npools: [{size: 8, max: 40}]\nworkspaces: {allowed_roots: [%[2]q]}\n"

// room is how many sandboxes a daemon may have: those of the tests, and some that are kept ready.
func room() int {
	n, _ := strconv.Atoi(os.Getenv("CAISSON_TEST_PODS")) // the test that wants them says what is wrong with it
	return max(n, 250) + 100
}

func start() (*cluster, error) {
	c := &cluster{}
	var err error
	if c.dir, err = os.MkdirTemp("/var/tmp", "caisson-k8s-"); err != nil {
		return c, err
	}
	if err := up(); err != nil {
		return c, err
	}
	for i, name := range []string{"caisson-a", "caisson-b"} {
		n, err := c.newNode(name, i+1)
		if err != nil {
			return c, err
		}
		c.nodes = append(c.nodes, n)
	}
	if err := c.startPlane(); err != nil {
		return c, err
	}
	if err := errors.Join(c.answers(), c.prepare()); err != nil {
		return c, err
	}
	for _, n := range c.nodes {
		if err := errors.Join(n.daemon.start(), n.program.start()); err != nil {
			return c, err
		}
	}
	return c, c.ready()
}

// up makes the namespace's own loopback usable.
func up() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return err
	}
	return (address.Loopback{}).Add(netip.MustParseAddr("192.0.2.253")) // of metrics-server
}

// newNode prepares a node. Without flags of its identity it has files that cluster.sh made.
func (c *cluster) newNode(name string, number int, identity ...string) (*node, error) {
	state, err := os.MkdirTemp("/run", "caisson-k")
	if err != nil {
		return nil, err
	}
	n := &node{
		name: name, address: fmt.Sprintf("192.0.2.%d", number), state: state,
		pods: &net.IPNet{IP: net.IPv4(10, 244, byte(4*number), 0).To4(), Mask: net.CIDRMask(22, 32)}, root: filepath.Join(c.dir, name), files: filepath.Join(c.dir, name+"-files"),
	}
	if err := (address.Loopback{}).Add(netip.MustParseAddr(n.address)); err != nil {
		return nil, err
	}
	if err := errors.Join(os.Mkdir(n.root, 0o711), os.Mkdir(n.files, 0o700)); err != nil {
		return nil, err
	}
	config := n.root + ".yaml"
	if err := os.WriteFile(config, fmt.Appendf(nil, settings, room(), n.files), 0o600); err != nil {
		return nil, err
	}
	n.daemon = process{log: n.root + "-daemon.log", line: []string{
		program("CAISSON_BIN_DIR", "caissond"), "--config", config, "--root", n.root, "--state", n.state}}
	plane := filepath.Join(c.dir, "plane")
	if len(identity) == 0 {
		identity = []string{"--kubeconfig", filepath.Join(plane, name+".conf"),
			"--tls-cert-file", filepath.Join(plane, name+"-serving.crt"), "--tls-private-key-file", filepath.Join(plane, name+"-serving.key")}
	}
	n.program = process{log: n.root + "-node.log", line: append([]string{
		program("CAISSON_KUBERNETES", "caisson-node"), "--node-name", name, "--address", n.address, "--socket", filepath.Join(n.state, "caisson.sock"),
		"--pod-cidr", n.pods.String(), "--files", n.files,
		"--client-ca-file", filepath.Join(plane, "ca.crt"), "--default-memory", "33554432", "--refresh-files", "1s", "--allow-egress"}, identity...)}
	n.caisson = api.Dial(filepath.Join(n.state, "caisson.sock"))
	return n, nil
}

func (c *cluster) startPlane() error {
	var names []string
	for _, n := range c.nodes {
		names = append(names, n.name+"="+n.address)
	}
	c.plane = process{
		line: []string{"bash", "cluster.sh", filepath.Join(c.dir, "plane")}, log: filepath.Join(c.dir, "plane.log"),
		env: []string{"KUBE=" + program("CAISSON_KUBERNETES", "kubernetes"), "NODES=" + strings.Join(names, " ")},
	}
	return c.plane.start()
}

func (c *cluster) answers() error {
	return until("the API server answers", func() error {
		config, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig("admin"))
		if err != nil {
			return err
		}
		config.QPS, config.Burst = 1000, 2000
		if c.client, err = kubernetes.NewForConfig(config); err != nil {
			return err
		}
		return c.client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(context.Background()).Error()
	})
}

// manifest is what operators apply.
const manifest = "../../../deploy/kubernetes/nodes.yaml"

// prepare applies the manifest.
func (c *cluster) prepare() error {
	out, err := exec.Command(program("CAISSON_KUBERNETES", "kubernetes"), "kubectl", "--kubeconfig", c.kubeconfig("admin"), "apply", "-f", manifest).CombinedOutput()
	if err != nil {
		return fmt.Errorf("apply %s: %w: %s", manifest, err, out)
	}
	return nil
}

// ready waits until both nodes are, and pods are taken.
func (c *cluster) ready() error {
	if err := until("the service account default is there", func() error {
		_, err := c.client.CoreV1().ServiceAccounts("default").Get(context.Background(), "default", metav1.GetOptions{})
		return err
	}); err != nil {
		return err
	}
	for _, n := range c.nodes {
		if err := c.joined(n); err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) joined(n *node) error {
	if err := until(n.name+" is ready", func() error { return c.nodeReady(n, corev1.ConditionTrue) }); err != nil {
		return err
	}
	v, err := n.caisson.Version(context.Background(), &caissonv1.VersionRequest{})
	n.instance = v.GetInstance()
	return err
}

func (c *cluster) nodeReady(n *node, want corev1.ConditionStatus) error {
	o, err := c.client.CoreV1().Nodes().Get(context.Background(), n.name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, condition := range o.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status == want {
			return nil
		}
	}
	return fmt.Errorf("conditions %+v", o.Status.Conditions)
}

func (c *cluster) kubeconfig(name string) string { return filepath.Join(c.dir, "plane", name+".conf") }

// until tries again until f succeeds.
func until(what string, f func() error) error {
	var err error
	for begin := time.Now(); time.Since(begin) < deadline; time.Sleep(50 * time.Millisecond) {
		if err = f(); err == nil {
			return nil
		}
	}
	return fmt.Errorf("never: %s: %w", what, err)
}

// end stops all and says what was left: sandboxes, volumes and files of pods, addresses.
func (c *cluster) end() error {
	var errs []error
	if c.client != nil {
		errs = append(errs, c.emptied())
	}
	for _, n := range c.nodes {
		errs = append(errs, n.end())
	}
	errs = append(errs, c.plane.signal(syscall.SIGTERM))
	err := errors.Join(errs...)
	if err != nil || os.Getenv("CAISSON_TEST_LOGS") != "" {
		for _, n := range c.nodes {
			fmt.Println(n.program.tail(), n.daemon.tail())
		}
		fmt.Println(c.plane.tail())
	}
	return errors.Join(err, os.RemoveAll(c.dir))
}

// end stops a node, and says what it leaves.
func (n *node) end() error {
	return errors.Join(n.program.signal(syscall.SIGTERM), n.daemon.stopAll(), n.left(), os.RemoveAll(n.state))
}

// stopAll ends the daemon with its sandboxes.
func (p *process) stopAll() error {
	if p.cmd == nil {
		return nil
	}
	err := p.signal(syscall.SIGTERM)
	all := &process{line: append(append([]string{}, p.line...), "--stop-all"), log: p.log}
	if err := all.start(); err != nil {
		return err
	}
	<-all.ended
	return err
}

// emptied deletes all pods, and says what stays of them.
func (c *cluster) emptied() error {
	ctx := context.Background()
	if err := c.client.CoreV1().Pods("default").DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		return err
	}
	return until("nothing is left of pods", func() error {
		for _, n := range c.nodes {
			if err := n.emptied(ctx); err != nil {
				return fmt.Errorf("%s: %w", n.name, err)
			}
		}
		return nil
	})
}

func (n *node) emptied(ctx context.Context) error {
	boxes, err := n.caisson.List(ctx, &caissonv1.ListRequest{Labels: map[string]string{"k8s-node": n.name}})
	if err != nil || len(boxes.Sandboxes) > 0 {
		return fmt.Errorf("%d sandboxes are left, %v", len(boxes.GetSandboxes()), err)
	}
	volumes, err := n.caisson.ListVolumes(ctx, &caissonv1.ListVolumesRequest{})
	if err != nil || len(volumes.Volumes) > 0 {
		return fmt.Errorf("%d volumes are left, %v", len(volumes.GetVolumes()), err)
	}
	files, err := os.ReadDir(n.files)
	if err != nil || len(files) > 0 {
		return fmt.Errorf("%d directories are left, %v", len(files), err)
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	addresses, err := netlink.AddrList(lo, netlink.FAMILY_V4)
	for _, a := range addresses {
		if n.pods.Contains(a.IP) {
			return fmt.Errorf("the address %s is left", a.IP)
		}
	}
	return err
}

// left says what a stopped node leaves on the host.
func (n *node) left() error {
	if n.instance == "" {
		return nil
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, n.root+"/") || strings.Contains(line, n.state+"/") {
			return fmt.Errorf("a mount is left: %s", line)
		}
	}
	groups, err := filepath.Glob("/sys/fs/cgroup/*/" + n.instance)
	if err != nil || len(groups) > 0 {
		return fmt.Errorf("control groups are left: %q, %v", groups, err)
	}
	return os.Remove("/run/lock/caisson-node-" + n.instance + ".lock")
}
