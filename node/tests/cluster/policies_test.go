package cluster

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-run/caisson/node/address"
)

// Clients of pods, at addresses of this host.
const clientA, clientB = "198.51.100.1", "198.51.100.2"

// prompt is how long a change of a policy may take to be in force.
const prompt = 5 * time.Second

// within waits until f succeeds, and no longer.
func within(t *testing.T, most time.Duration, what string, f func() error) {
	t.Helper()
	err := f()
	for begin := time.Now(); err != nil && time.Since(begin) < most; err = f() {
		time.Sleep(20 * time.Millisecond) // nothing announces it
	}
	if err != nil {
		t.Fatalf("not within %s: %s: %v", most, what, err)
	}
}

func clients(t *testing.T) {
	t.Helper()
	for _, text := range []string{clientA, clientB} {
		a := netip.MustParseAddr(text)
		if err := (address.Loopback{}).Add(a); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := (address.Loopback{}).Remove(a); err != nil {
				t.Error(err)
			}
		})
	}
}

// dial connects from an address, or from that which the kernel picks.
func dial(from, to string) (net.Conn, error) {
	d := &net.Dialer{Timeout: prompt}
	if from != "" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
	}
	c, err := d.Dial("tcp", to)
	if err != nil {
		return nil, err
	}
	return c, c.SetDeadline(time.Now().Add(prompt))
}

// reaches asks for a page, of which the first line says how it was answered.
func reaches(from, to string) error {
	c, err := dial(from, to)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := io.WriteString(c, "GET / HTTP/1.0\r\n\r\n"); err != nil {
		return err
	}
	text, err := io.ReadAll(c)
	if err == nil && !strings.Contains(string(text), "200 OK") {
		err = fmt.Errorf("%q", text)
	}
	return err
}

// refused says that a client is reset. One that gets no answer is another matter.
func refused(from, to string) error {
	switch err := reaches(from, to); {
	case err == nil:
		return errors.New("it was answered")
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return nil
	default:
		return err
	}
}

// policyText is a policy of all pods of the namespace with these rules.
func policyText(name, ingress string) string {
	return fmt.Sprintf("apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: %s}\nspec: {podSelector: {}, policyTypes: [Ingress], ingress: [%s]}\n", name, ingress)
}

func setPolicy(t *testing.T, ingress string) {
	t.Helper()
	must(t, policyText("tested", ingress))
}

// serves runs a pod that serves a page at its address, and returns that with the port.
func serves(t *testing.T, name string, n *node) string {
	t.Helper()
	apply(t, name, fmt.Sprintf(`{nodeName: %s, terminationGracePeriodSeconds: 1, containers: [{name: c, image: base,
  ports: [{name: web, containerPort: 8080}], command: [sh, -c, "echo page > /tmp/index.html; exec httpd -f -p 8080 -h /tmp"],
  readinessProbe: {httpGet: {port: web}, periodSeconds: 1}}]}`, n.name))
	eventually(t, name, ".status.containerStatuses[0].ready", "true")
	return kubectl(t, "get", "pod", name, "-o", "jsonpath={.status.podIP}") + ":8080"
}

// TestNetworkPolicy follows a policy from one that denies all to its end.
func TestNetworkPolicy(t *testing.T) {
	clients(t)
	n := site.nodes[1]
	served := serves(t, "served", n)
	runtime := runtimePod(t, "guarded", "python") + ":8888"
	t.Cleanup(func() { kubectl(t, "delete", "networkpolicy", "--all") })
	for _, from := range []string{clientA, clientB, ""} {
		if err := errors.Join(reaches(from, served), reaches(from, runtime)); err != nil {
			t.Fatalf("%q is not answered without a policy: %v", from, err)
		}
	}
	own, err := dial("", served)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "the address of a client of the same host", own.LocalAddr().(*net.TCPAddr).IP.String()+":8080", served)
	_ = own.Close()
	open, err := dial(clientA, served)
	if err == nil {
		_, err = io.WriteString(open, "GET / HTTP/1.0\r\n") // the server waits for more
	}
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()

	setPolicy(t, "")
	within(t, prompt, "nobody is answered", func() error {
		return errors.Join(refused(clientA, served), refused("", served), refused(clientA, runtime))
	})
	if _, err := io.ReadAll(open); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the open connection ended by %v", err)
	}
	if err := reaches("", forward(t, "served", 8080)); err != nil {
		t.Errorf("port-forward: %v", err)
	}

	setPolicy(t, fmt.Sprintf("{from: [{ipBlock: {cidr: 198.51.100.0/24, except: [%s/32]}}]}", clientB))
	within(t, prompt, "the one client is answered", func() error {
		return errors.Join(reaches(clientA, served), reaches(clientA, runtime), refused(clientB, served), refused(clientB, runtime))
	})
	setPolicy(t, "{ports: [{port: web}]}")
	within(t, prompt, "all clients of the port", func() error { return errors.Join(reaches(clientB, served), refused(clientB, runtime)) })
	equal(t, "ready", kubectl(t, "get", "pod", "served", "-o", "jsonpath={.status.containerStatuses[0].ready}"), "true")

	kubectl(t, "delete", "networkpolicy", "tested")
	within(t, prompt, "all are answered", func() error { return errors.Join(reaches(clientB, served), reaches(clientB, runtime)) })

	if err := n.program.signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	setPolicy(t, "")
	if err := reaches(clientB, served); err != nil {
		t.Errorf("what the sandbox has does not go on without the program: %v", err)
	}
	if err := n.program.start(); err != nil {
		t.Fatal(err)
	}
	within(t, deadline, "the policy counts after the restart", func() error { return refused(clientB, served) })
	kubectl(t, "delete", "networkpolicy", "tested")
	within(t, prompt, "all are answered again", func() error { return reaches(clientB, served) })
}

// TestNetworkPolicyPeers: selectors count once the node may read the pods of the cluster.
func TestNetworkPolicyPeers(t *testing.T) {
	clients(t)
	served := serves(t, "served", site.nodes[1])
	t.Cleanup(func() { kubectl(t, "delete", "networkpolicy", "--all") })
	apply(t, "client", fmt.Sprintf(`{nodeName: %s, containers: [{name: c, image: base, command: [sleep, "1000"], ports: [{containerPort: 9000}]}]}`, site.nodes[0].name))
	phase(t, "client", "Running")
	kubectl(t, "label", "pod", "client", "role=client")
	client := kubectl(t, "get", "pod", "client", "-o", "jsonpath={.status.podIP}")
	if err := reaches(client, served); err != nil {
		t.Fatalf("the client is not answered without a policy: %v", err)
	}
	must(t, fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: inside, labels: {role: client}, annotations: {caisson.run/allow: "%s,private"}}
spec: {nodeName: %s, containers: [{name: c, image: base, command: [sleep, "1000"]}]}
`, served, site.nodes[1].name))
	t.Cleanup(func() { kubectl(t, "delete", "pod", "inside", "--grace-period=1") })
	phase(t, "inside", "Running")
	inside := func() error { // a sandbox of the same host
		if r := try("", "exec", "inside", "--", "wget", "-qO-", "-T5", "http://"+served+"/"); r.out != "page\n" {
			return fmt.Errorf("%s%s", r.out, r.errs)
		}
		return nil
	}
	within(t, prompt, "a sandbox is answered without a policy", inside)
	setPolicy(t, "{from: [{podSelector: {matchLabels: {role: client}}}, {podSelector: {matchLabels: {readable: no-pod}}}]}")
	within(t, prompt, "nobody is answered", func() error { return refused(client, served) })
	within(t, deadline, "an event", func() error {
		if out := events(t, "served"); !strings.Contains(out, "NetworkPolicyPeersUnreadable") || !strings.Contains(out, "bind the ClusterRole caisson-policy-peers") {
			return errors.New(out)
		}
		return nil
	})
	permitted(t, "caisson-policy-peers")
	within(t, deadline, "the pod is answered", func() error { return reaches(client, served) })
	if err := errors.Join(refused(clientA, served), refused("", served)); err != nil {
		t.Errorf("others: %v", err)
	}
	if inside() == nil {
		t.Error("a sandbox is taken for the pod that it is: it connects from its host")
	}
	kubectl(t, "label", "pod", "client", "role-")
	within(t, prompt, "without its label it is not", func() error { return refused(client, served) })
	setPolicy(t, `{from: [{namespaceSelector: {matchLabels: {"kubernetes.io/metadata.name": default}}, podSelector: {}}]}`)
	within(t, prompt, "pods of the namespace are answered, the host is not", func() error {
		return errors.Join(reaches(client, served), refused("", served))
	})
	setPolicy(t, fmt.Sprintf("{from: [{ipBlock: {cidr: %s/32}}]}", strings.TrimSuffix(served, ":8080")))
	within(t, prompt, "what runs on the host is answered by the pod's own address", func() error { return errors.Join(reaches("", served), inside()) })
}

// TestNetworkPolicyUnreadable: a node without the right lets nobody in.
func TestNetworkPolicyUnreadable(t *testing.T) {
	clients(t)
	n := site.nodes[1]
	restart := func() {
		t.Helper()
		if err := n.program.signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(n.program.start(), site.joined(n)); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(restart)
	t.Cleanup(func() { kubectl(t, "apply", "-f", manifest) })
	served := serves(t, "served", n)
	if err := reaches(clientA, served); err != nil {
		t.Fatal(err)
	}
	kubectl(t, "delete", "clusterrolebinding", "caisson-policies")
	restart()
	within(t, deadline, "nobody is answered", func() error { return refused(clientA, served) })
	if err := refused(clientA, serves(t, "new", n)); err != nil {
		t.Errorf("a pod that starts now: %v", err)
	}
	within(t, deadline, "an event", func() error {
		if out := events(t, "new"); !strings.Contains(out, "NetworkPolicyUnreadable") || !strings.Contains(out, "--network-policies=ignore") {
			return errors.New(out)
		}
		return nil
	})
	kubectl(t, "apply", "-f", manifest)
	within(t, deadline, "all are answered with the right", func() error { return reaches(clientA, served) })
}
