package policy

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// example serves HTTP at the port named web, and something at 9000.
func example() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", Labels: map[string]string{"app": "web", "tier": "front"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Ports: []corev1.ContainerPort{
			{Name: "web", ContainerPort: 8080}, {ContainerPort: 9000, Protocol: corev1.ProtocolTCP}, {Name: "dns", ContainerPort: 8080, Protocol: corev1.ProtocolUDP},
		}}}},
	}
}

func peer(namespace, app string, ips ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: app, Namespace: namespace, Labels: map[string]string{"app": app}}}
	for _, ip := range ips {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: ip})
	}
	return p
}

// cluster has pods of ns and of two others: other is of the team red.
func cluster() *Peers {
	host, over, none := peer("ns", "client", "192.0.2.1"), peer("ns", "client", "10.1.0.8"), peer("ns", "client")
	host.Spec.HostNetwork, over.Status.Phase = true, corev1.PodSucceeded
	pods := map[string][]*corev1.Pod{
		"ns":    {peer("ns", "client", "10.1.0.2", "fd00::2"), peer("ns", "web", "10.1.0.1"), peer("ns", "db", "10.1.0.3"), host, over, none},
		"other": {peer("other", "client", "10.2.0.2"), peer("other", "db", "10.2.0.3")},
		"third": {peer("third", "client", "10.3.0.2")},
	}
	return &Peers{
		Pods: func(namespace string) ([]*corev1.Pod, error) { return pods[namespace], nil },
		Namespaces: func() ([]*corev1.Namespace, error) {
			var all []*corev1.Namespace
			for _, name := range []string{"ns", "other", "third"} {
				n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/metadata.name": name}}}
				if name == "other" {
					n.Labels["team"] = "red"
				}
				all = append(all, n)
			}
			return all, nil
		},
	}
}

// parse reads specs of policies of the namespace ns.
func parse(t *testing.T, specs ...string) (all []*networkingv1.NetworkPolicy) {
	t.Helper()
	for i, text := range specs {
		np := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i), Namespace: "ns"}}
		if err := yaml.UnmarshalStrict([]byte(text), &np.Spec); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		all = append(all, np)
	}
	return all
}

// text is any, nobody, or prefixes.
func text(a Access) string {
	switch {
	case a.Any:
		return "any"
	case len(a.Clients) == 0:
		return "nobody"
	}
	return strings.Join(a.Texts(netip.IPv4Unspecified()), " ")
}

const own, own6 = "10.1.0.1", "fd00::1"

func TestAccess(t *testing.T) {
	const (
		block  = `{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 192.0.2.0/24}}]}]}`
		client = `{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}]}]}`
	)
	for name, c := range map[string]struct {
		policies []string
		at       string // the pod's address; empty is own
		web      string // who may connect to 8080
		other    string // who may connect to 9000; empty is as web
	}{
		"no policy":                              {web: "any"},
		"of other pods":                          {policies: []string{`{podSelector: {matchLabels: {app: db}}, ingress: []}`}, web: "any"},
		"by expression, of other pods":           {policies: []string{`{podSelector: {matchExpressions: [{key: tier, operator: NotIn, values: [front]}]}}`}, web: "any"},
		"by expression":                          {policies: []string{`{podSelector: {matchExpressions: [{key: tier, operator: Exists}]}}`}, web: "nobody"},
		"empty selector, no rule":                {policies: []string{`{podSelector: {}}`}, web: "nobody"},
		"Ingress, no rule":                       {policies: []string{`{podSelector: {}, policyTypes: [Ingress]}`}, web: "nobody"},
		"Egress alone":                           {policies: []string{`{podSelector: {}, policyTypes: [Egress]}`}, web: "any"},
		"both types":                             {policies: []string{`{podSelector: {}, policyTypes: [Egress, Ingress]}`}, web: "nobody"},
		"no types with egress rules":             {policies: []string{`{podSelector: {}, egress: [{}]}`}, web: "nobody"},
		"an empty rule":                          {policies: []string{`{podSelector: {}, ingress: [{}]}`}, web: "any"},
		"empty lists":                            {policies: []string{`{podSelector: {}, ingress: [{from: [], ports: []}]}`}, web: "any"},
		"a port by number":                       {policies: []string{`{podSelector: {}, ingress: [{ports: [{port: 8080}]}]}`}, web: "any", other: "nobody"},
		"a port by name":                         {policies: []string{`{podSelector: {}, ingress: [{ports: [{port: web}]}]}`}, web: "any", other: "nobody"},
		"a name of UDP":                          {policies: []string{`{podSelector: {}, ingress: [{ports: [{port: dns}]}]}`}, web: "nobody"},
		"a name of no port":                      {policies: []string{`{podSelector: {}, ingress: [{ports: [{port: admin}]}]}`}, web: "nobody"},
		"a range":                                {policies: []string{`{podSelector: {}, ingress: [{ports: [{port: 8081, endPort: 9000}]}]}`}, web: "nobody", other: "any"},
		"all ports of TCP":                       {policies: []string{`{podSelector: {}, ingress: [{ports: [{protocol: TCP}]}]}`}, web: "any"},
		"UDP":                                    {policies: []string{`{podSelector: {}, ingress: [{ports: [{protocol: UDP}, {protocol: SCTP, port: 8080}]}]}`}, web: "nobody"},
		"from and ports":                         {policies: []string{`{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 192.0.2.0/24}}], ports: [{port: web}]}]}`}, web: "192.0.2.0/24", other: "nobody"},
		"two rules":                              {policies: []string{`{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 192.0.2.0/24}}], ports: [{port: web}]}, {ports: [{port: 9000}]}]}`}, web: "192.0.2.0/24", other: "any"},
		"a union of policies":                    {policies: []string{block, `{podSelector: {}}`, client}, web: "10.1.0.2/32 192.0.2.0/24"},
		"a union with anybody":                   {policies: []string{block, `{podSelector: {}, ingress: [{}]}`}, web: "any"},
		"sorted and merged":                      {policies: []string{`{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 198.51.100.7/32}}, {ipBlock: {cidr: 10.1.0.0/16}}]}]}`, client}, web: "10.1.0.0/16 198.51.100.7/32"},
		"bits beyond":                            {policies: []string{`{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 192.0.2.77/24}}]}]}`}, web: "192.0.2.0/24"},
		"except":                                 {policies: []string{`{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/29, except: [10.0.0.1/32, 10.0.0.6/31]}}]}]}`}, web: "10.0.0.0/32 10.0.0.2/31 10.0.0.4/31"},
		"all but one half":                       {policies: []string{`{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 0.0.0.0/0, except: [0.0.0.0/1]}}]}]}`}, web: "128.0.0.0/1"},
		"all excepted":                           {policies: []string{`{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8, except: [10.0.0.0/8]}}]}]}`}, web: "nobody"},
		"an exception counts in its block alone": {policies: []string{`{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8, except: [10.9.0.0/16]}}, {ipBlock: {cidr: 10.9.0.0/24}}]}]}`, `{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8}}]}]}`}, web: "10.0.0.0/8"},
		"no CIDR":                                {policies: []string{`{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 010.0.0.0/8}}]}]}`}, web: "nobody"},
		"no CIDR excepted":                       {policies: []string{`{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8, except: [010.0.0.0/24]}}]}]}`}, web: "nobody"},
		"an IPv4 pod, IPv6 clients":              {policies: []string{`{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: "::/0"}}]}]}`}, web: "nobody"},
		"an IPv6 pod":                            {policies: []string{`{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: "fd00::/8", except: ["fd80::/9"]}}, {ipBlock: {cidr: 10.0.0.0/8}}]}]}`}, at: own6, web: "fd00::/9"},
		"pods of the namespace":                  {policies: []string{client}, web: "10.1.0.2/32"},
		"pods with IPv6":                         {policies: []string{client}, at: own6, web: "fd00::2/128"},
		"all pods of the namespace but the pod itself": {policies: []string{`{podSelector: {}, ingress: [{from: [{podSelector: {}}]}]}`}, web: "10.1.0.2/32 10.1.0.3/32"},
		"namespaces":            {policies: []string{`{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: red}}}]}]}`}, web: "10.2.0.2/32 10.2.0.3/32"},
		"all namespaces":        {policies: []string{`{podSelector: {}, ingress: [{from: [{namespaceSelector: {}}]}]}`}, web: "10.1.0.2/32 10.1.0.3/32 10.2.0.2/32 10.2.0.3/32 10.3.0.2/32"},
		"pods of namespaces":    {policies: []string{`{podSelector: {}, ingress: [{from: [{namespaceSelector: {}, podSelector: {matchLabels: {app: client}}}]}]}`}, web: "10.1.0.2/32 10.2.0.2/32 10.3.0.2/32"},
		"pods or namespaces":    {policies: []string{`{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: red}}}, {podSelector: {matchLabels: {app: db}}}]}]}`}, web: "10.1.0.3/32 10.2.0.2/32 10.2.0.3/32"},
		"a peer without a word": {policies: []string{`{podSelector: {}, ingress: [{from: [{}]}]}`}, web: "nobody"},
	} {
		t.Run(name, func(t *testing.T) {
			at := own
			if c.at != "" {
				at = c.at
			}
			in, err := Of(parse(t, c.policies...), example(), netip.MustParseAddr(at), cluster())
			if err != nil {
				t.Fatal(err)
			}
			other := c.other
			if other == "" {
				other = c.web
			}
			if got := text(in.Access(8080)); got != c.web {
				t.Errorf("8080 admits %s", got)
			}
			if got := text(in.Access(9000)); got != other {
				t.Errorf("9000 admits %s", got)
			}
		})
	}
}

func TestZeroAdmitsNobody(t *testing.T) {
	if got := text(Ingress{}.Access(8080)); got != "nobody" {
		t.Errorf("the zero Ingress admits %s", got)
	}
	if a := (Access{}); a.Admits(netip.MustParseAddr(own)) {
		t.Error("the zero Access admits one")
	}
}

// TestOtherNamespace: a policy is in force in its own namespace alone.
func TestOtherNamespace(t *testing.T) {
	policies := parse(t, `{podSelector: {}}`)
	policies[0].Namespace = "other"
	if in, err := Of(policies, example(), netip.MustParseAddr(own), cluster()); err != nil || text(in.Access(8080)) != "any" {
		t.Errorf("it admits %s, %v", text(in.Access(8080)), err)
	}
}

// TestPeersThatCannotBeRead: the others count, and the error is told.
func TestPeersThatCannotBeRead(t *testing.T) {
	forbidden := errors.New("forbidden")
	peers := &Peers{
		Pods:       func(string) ([]*corev1.Pod, error) { return nil, forbidden },
		Namespaces: func() ([]*corev1.Namespace, error) { return nil, forbidden },
	}
	for _, from := range []string{"podSelector: {}", "namespaceSelector: {}"} {
		policies := parse(t, `{podSelector: {}, ingress: [{from: [{`+from+`}, {ipBlock: {cidr: 192.0.2.0/24}}]}]}`)
		in, err := Of(policies, example(), netip.MustParseAddr(own), peers)
		if !errors.Is(err, forbidden) || text(in.Access(8080)) != "192.0.2.0/24" {
			t.Errorf("%s: it admits %s, %v", from, text(in.Access(8080)), err)
		}
	}
}

// TestMost: what is beyond admits nobody, however long the list is.
func TestMost(t *testing.T) {
	var from, except []string
	for i := range Most + 5 {
		from = append(from, fmt.Sprintf("{ipBlock: {cidr: 10.%d.%d.0/24}}", i/256, i%256))
	}
	for i := range 5000 {
		except = append(except, fmt.Sprintf("'2001:db8:%x::1/128'", i))
	}
	for _, c := range []struct {
		spec, at, last string
		least          int // beyond
	}{
		{`{podSelector: {}, ingress: [{from: [` + strings.Join(from, ", ") + `]}]}`, own, "10.0.255.0/24", 5},
		{`{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: "2001:db8::/32", except: [` + strings.Join(except, ", ") + `]}}]}]}`, own6, "", 1},
	} {
		in, err := Of(parse(t, c.spec), example(), netip.MustParseAddr(c.at), cluster())
		if err != nil {
			t.Fatal(err)
		}
		a := in.Access(8080)
		if len(a.Clients) != Most || a.Beyond < c.least || c.last != "" && a.Clients[Most-1].String() != c.last {
			t.Errorf("it admits %d and %d are beyond; the last is %s", len(a.Clients), a.Beyond, a.Clients[len(a.Clients)-1])
		}
		if a.Admits(netip.MustParseAddr("10.1.0.7")) || a.Admits(netip.MustParseAddr("2001:db8::1")) {
			t.Error("it admits what is beyond, or excepted")
		}
	}
}

func TestPublish(t *testing.T) {
	v4, v6 := netip.MustParseAddr(own), netip.MustParseAddr(own6)
	some := Access{Clients: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.0.2.7/32")}}
	for _, c := range []struct {
		a    Access
		at   netip.Addr
		want string
	}{
		{Access{Any: true}, v4, "10.1.0.1:80:8080"},
		{Access{Any: true}, v6, "[fd00::1]:80:8080"},
		{Access{}, v4, "10.1.0.1:80:8080@0.0.0.0/32"},
		{Access{}, v6, "[fd00::1]:80:8080@::/128"},
		{some, v4, "10.1.0.1:80:8080@10.0.0.0/8+192.0.2.7/32"},
	} {
		if got := c.a.Publish(c.at, 80, 8080); got != c.want {
			t.Errorf("%s, not %s", got, c.want)
		}
	}
	for client, want := range map[string]bool{"10.2.3.4": true, "::ffff:10.2.3.4": true, "192.0.2.7": true, "192.0.2.8": false, "fd00::2": false} {
		if got := some.Admits(netip.MustParseAddr(client)); got != want {
			t.Errorf("%s is admitted: %t", client, got)
		}
	}
}
