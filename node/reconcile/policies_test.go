package reconcile

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/yaml"

	"github.com/caisson-run/caisson/node/agentsandbox"
)

// The pod of withPort as it is published.
const (
	anybody = "10.0.0.1:8080:8080"
	nobody  = anybody + "@0.0.0.0/32"
)

func withPort(p *corev1.Pod) {
	p.Labels = map[string]string{"app": "web"}
	p.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}}
}

func policyOf(name, spec string) *networkingv1.NetworkPolicy {
	np := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns"}}
	if err := yaml.UnmarshalStrict([]byte(spec), &np.Spec); err != nil {
		panic(err)
	}
	return np
}

const (
	denyAll = `{podSelector: {}}`
	byBlock = `{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 192.0.2.0/24}}]}]}`
	byPods  = `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}]}]}`
)

func (w *world) apply(t *testing.T, np *networkingv1.NetworkPolicy) {
	t.Helper()
	all := w.client.NetworkingV1().NetworkPolicies("ns")
	_, err := all.Update(t.Context(), np, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = all.Create(t.Context(), np, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) withdraw(t *testing.T, name string) {
	t.Helper()
	if err := w.client.NetworkingV1().NetworkPolicies("ns").Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// publishes waits until the first sandbox publishes its port so.
func (w *world) publishes(t *testing.T, want string) {
	t.Helper()
	got := func() string {
		w.mu.Lock()
		defer w.mu.Unlock()
		if b := w.boxes[box1]; b != nil && len(b.Ports) == 1 {
			return publishOf(b.Ports[0])
		}
		return "no sandbox"
	}
	for range 500 {
		if got() == want {
			return
		}
		time.Sleep(10 * time.Millisecond) // the fake announces nothing
	}
	t.Fatalf("published is %s, never %s", got(), want)
}

// created are the ports with which sandboxes were made, and updated how often they changed.
func (w *world) created() (publish [][]string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.specs {
		publish = append(publish, s.Publish)
	}
	return publish
}

func (w *world) updated() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.updates)
}

// events returns those with a reason that were told so far.
func (w *world) events(reason string) (all []string) {
	for {
		select {
		case e := <-w.config.Events.(*record.FakeRecorder).Events:
			if strings.Contains(e, " "+reason+" ") {
				all = append(all, e)
			}
		default:
			return all
		}
	}
}

// refuse forbids a resource until the function that it returns is called.
func (w *world) refuse(resource string) (permit func()) {
	var permitted atomic.Bool
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New("no right"))
	w.client.PrependReactor("list", resource, func(a k8stesting.Action) (bool, runtime.Object, error) {
		mine := a.(k8stesting.ListAction).GetListRestrictions().Fields.String() != "" // pods of the node
		return !mine && !permitted.Load(), nil, forbidden
	})
	return func() { permitted.Store(true) }
}

// TestClientsFromTheStart: no sandbox is there for a moment with other clients.
func TestClientsFromTheStart(t *testing.T) {
	for spec, want := range map[string]string{
		`{podSelector: {matchLabels: {app: other}}}`: anybody,
		denyAll: nobody,
		byBlock: anybody + "@192.0.2.0/24",
		byPods:  nobody,
		`{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 192.0.2.0/24}}], ports: [{port: http}]}]}`: anybody + "@192.0.2.0/24",
	} {
		w := newWorld(t, newPod(withPort), policyOf("one", spec))
		w.run(t)
		w.phase(t, corev1.PodRunning)
		if got := w.created(); len(got) != 1 || !slices.Equal(got[0], []string{want}) || w.updated() > 0 {
			t.Errorf("%s: made with %v, %d updates", spec, got, w.updated())
		}
	}
}

func TestClientsFollowPolicies(t *testing.T) {
	w := newWorld(t, newPod(withPort))
	w.run(t)
	w.phase(t, corev1.PodRunning)
	w.publishes(t, anybody)
	w.apply(t, policyOf("one", denyAll))
	w.publishes(t, nobody)
	w.apply(t, policyOf("one", byBlock))
	w.publishes(t, anybody+"@192.0.2.0/24")
	w.apply(t, policyOf("two", `{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 198.51.100.0/24}}]}]}`))
	w.publishes(t, anybody+"@192.0.2.0/24+198.51.100.0/24")
	w.withdraw(t, "two")
	w.withdraw(t, "one")
	w.publishes(t, anybody)
}

// TestClientsFollowLabels of the pod itself, of peers and of namespaces.
func TestClientsFollowLabels(t *testing.T) {
	client := func(namespace, name, app, ip string) *corev1.Pod {
		return newPod(func(p *corev1.Pod) {
			p.Namespace, p.Name, p.UID, p.Spec.NodeName = namespace, name, "", "elsewhere"
			p.Labels = map[string]string{"app": app}
			p.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{{IP: ip}}}
		})
	}
	far := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "far"}}
	one, two := client("ns", "one", "other", "10.9.0.1"), client("far", "two", "client", "10.9.0.2")
	w := newWorld(t, newPod(withPort), far, two)
	w.run(t)
	w.phase(t, corev1.PodRunning)
	w.publishes(t, anybody)
	if n := w.listed("pods", false); n != 0 {
		t.Errorf("the pods of the cluster were read %d times without a selector", n)
	}
	w.apply(t, policyOf("one", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [
  {podSelector: {matchLabels: {app: client}}}, {namespaceSelector: {matchLabels: {team: red}}}]}]}`))
	w.publishes(t, nobody)
	pods := w.client.CoreV1().Pods("ns")
	if _, err := pods.Create(t.Context(), one, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	one.Labels["app"] = "client"
	if _, err := pods.Update(t.Context(), one, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.publishes(t, anybody+"@10.9.0.1/32")
	far.Labels = map[string]string{"team": "red"}
	if _, err := w.client.CoreV1().Namespaces().Update(t.Context(), far, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.publishes(t, anybody+"@10.9.0.1/32+10.9.0.2/32")
	one.Status.Phase = corev1.PodSucceeded
	if _, err := pods.UpdateStatus(t.Context(), one, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.publishes(t, anybody+"@10.9.0.2/32")
	self := w.pod(t)
	self.Labels = nil
	if _, err := pods.Update(t.Context(), self, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.publishes(t, anybody)
}

// listed counts the lists of a resource that were asked for, of the node alone or of the cluster.
func (w *world) listed(resource string, mine bool) (n int) {
	for _, a := range w.client.Actions() {
		if l, ok := a.(k8stesting.ListAction); ok && a.GetResource().Resource == resource && mine == (l.GetListRestrictions().Fields.String() != "") {
			n++
		}
	}
	return n
}

// TestChangesAreCollected: many changes are few updates, and those that change nothing are none.
func TestChangesAreCollected(t *testing.T) {
	w := newWorld(t, newPod(withPort), policyOf("one", byBlock))
	w.run(t)
	w.phase(t, corev1.PodRunning)
	w.publishes(t, anybody+"@192.0.2.0/24")
	for i := range 200 {
		w.apply(t, policyOf(fmt.Sprint("many", i), byBlock))
	}
	w.apply(t, policyOf("last", `{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 192.0.0.0/8}}]}]}`))
	w.publishes(t, anybody+"@192.0.0.0/8")
	if n := w.updated(); n != 1 {
		t.Errorf("%d updates", n)
	}
	begin := time.Now()
	for i := range 200 {
		w.apply(t, policyOf(fmt.Sprint("more", i), fmt.Sprintf(`{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 198.51.100.%d/32}}]}]}`, i)))
	}
	eventually(t, "all of them", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return strings.Contains(publishOf(w.boxes[box1].Ports[0]), "198.51.100.199/32")
	})
	if n, most := w.updated(), 2+int(time.Since(begin)/settle); n > most {
		t.Errorf("%d updates for 200 policies, not %d at most", n, most)
	}
}

func TestLostUpdateIsTriedAgain(t *testing.T) {
	w := newWorld(t, newPod(withPort))
	w.run(t)
	w.phase(t, corev1.PodRunning)
	w.mu.Lock()
	w.lose = true
	w.mu.Unlock()
	w.apply(t, policyOf("one", denyAll))
	time.Sleep(2 * settle) // the first try fails
	w.publishes(t, anybody)
	w.mu.Lock()
	w.lose = false
	w.mu.Unlock()
	w.publishes(t, nobody)
}

// TestPoliciesThatCannotBeRead admit nobody until they can, and one event says so.
func TestPoliciesThatCannotBeRead(t *testing.T) {
	w := newWorld(t, newPod(withPort), policyOf("one", byBlock))
	permit := w.refuse("networkpolicies")
	w.run(t)
	w.phase(t, corev1.PodRunning)
	if got := w.created(); !slices.Equal(got[0], []string{nobody}) {
		t.Errorf("made with %v", got)
	}
	time.Sleep(2 * settle) // more looks at the pod
	if told := w.events("NetworkPolicyUnreadable"); len(told) != 1 || !strings.Contains(told[0], "caisson-policies") || !strings.Contains(told[0], "--network-policies=ignore") {
		t.Errorf("the events are %q", told)
	}
	permit()
	w.publishes(t, anybody+"@192.0.2.0/24")
}

// TestPoliciesIgnored: an operator may say so, also where there were some.
func TestPoliciesIgnored(t *testing.T) {
	w := newWorld(t, newPod(withPort), policyOf("one", denyAll))
	_, stop := w.run(t)
	w.phase(t, corev1.PodRunning)
	w.publishes(t, nobody)
	stop()
	w.config.IgnorePolicies = true
	w.client.ClearActions()
	w.run(t)
	w.publishes(t, anybody)
	if n := w.listed("networkpolicies", false); n > 0 {
		t.Errorf("they were read %d times", n)
	}
}

// TestPeersThatCannotBeRead admit nobody. Addresses count all the same.
func TestPeersThatCannotBeRead(t *testing.T) {
	w := newWorld(t, newPod(withPort), policyOf("one", byPods), policyOf("two", byBlock))
	permit := w.refuse("pods")
	w.run(t)
	w.phase(t, corev1.PodRunning)
	if got := w.created(); !slices.Equal(got[0], []string{anybody + "@192.0.2.0/24"}) {
		t.Errorf("made with %v", got)
	}
	if told := w.events("NetworkPolicyPeersUnreadable"); len(told) != 1 || !strings.Contains(told[0], "caisson-policy-peers") {
		t.Errorf("the events are %q", told)
	}
	client := newPod(func(p *corev1.Pod) {
		p.Name, p.UID, p.Spec.NodeName, p.Labels = "client", "", "elsewhere", map[string]string{"app": "client"}
		p.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{{IP: "10.9.0.1"}}}
	})
	if _, err := w.client.CoreV1().Pods("ns").Create(t.Context(), client, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	permit()
	w.publishes(t, anybody+"@10.9.0.1/32+192.0.2.0/24")
}

func TestTooManyClients(t *testing.T) {
	var from []string
	for i := range 300 {
		from = append(from, fmt.Sprintf("{ipBlock: {cidr: 10.%d.0.%d/32}}", i/100, i%100))
	}
	w := newWorld(t, newPod(withPort), policyOf("one", `{podSelector: {}, ingress: [{from: [`+strings.Join(from, ", ")+`]}]}`))
	w.run(t)
	w.phase(t, corev1.PodRunning)
	if got := w.created(); len(got) != 1 || strings.Count(got[0][0], "+") != 255 {
		t.Errorf("made with %v", got)
	}
	if told := w.events("NetworkPolicyTooLong"); len(told) != 1 || !strings.Contains(told[0], "the port 8080") {
		t.Errorf("the events are %q", told)
	}
}

// TestPolicyThatChangedMeanwhile: a program that starts compares with what the sandbox has, and
// leaves it alone where nothing differs.
func TestPolicyThatChangedMeanwhile(t *testing.T) {
	w := newWorld(t, newPod(withPort), policyOf("one", byBlock))
	_, stop := w.run(t)
	w.phase(t, corev1.PodRunning)
	stop()
	_, stop = w.run(t)
	time.Sleep(3 * settle) // looks that change nothing
	if n := w.updated(); n != 0 {
		t.Errorf("%d updates without a change", n)
	}
	stop()
	w.apply(t, policyOf("one", denyAll))
	w.run(t)
	w.publishes(t, nobody)
	if n := w.updated(); n != 1 {
		t.Errorf("%d updates", n)
	}
}

// TestDeletedPodIsGuarded: policies count until its command has ended.
func TestDeletedPodIsGuarded(t *testing.T) {
	w := newWorld(t, newPod(withPort))
	w.slow = make(chan struct{})
	w.run(t)
	w.phase(t, corev1.PodRunning)
	w.deleted(t, time.Minute)
	eventually(t, "it is being stopped", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.graces) > 0
	})
	w.apply(t, policyOf("one", denyAll))
	w.publishes(t, nobody)
	close(w.slow)
}

// TestRuntimeIsGuarded: the ports at which the node itself listens have the same clients, and none
// before the policies are known.
func TestRuntimeIsGuarded(t *testing.T) {
	const at = "127.82.0.4"
	w := newWorld(t, newPod(withRuntime))
	w.ips.of[uid1] = at
	_, stop := w.run(t)
	w.phase(t, corev1.PodRunning)
	if !listens(at) {
		t.Fatal("it does not answer without a policy")
	}
	open, err := net.Dial("tcp", at+":8888")
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	w.apply(t, policyOf("one", denyAll))
	eventually(t, "nobody is answered", func() bool { return !listens(at) })
	_ = open.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := open.Read(make([]byte, 1)); err == nil || errors.Is(err, net.ErrClosed) || isTimeout(err) {
		t.Errorf("the open connection ended by %v", err)
	}
	w.apply(t, policyOf("one", `{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 127.0.0.0/8}}], ports: [{port: 8888}]}]}`))
	eventually(t, "its client is answered", func() bool { return listens(at) })
	stop()
	w.config.Runtimes.Close()
	w.config.Runtimes = agentsandbox.New(inside{})
	r := New(w.config)
	if err := r.adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := net.Dial("tcp", at+":8888"); errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("it does not listen: %v", err)
	}
	if listens(at) {
		t.Error("it answers before policies are known")
	}
	w.run(t)
	eventually(t, "it answers again", func() bool { return listens(at) })
}

func isTimeout(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}
