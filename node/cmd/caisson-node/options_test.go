package main

import "testing"

func TestMostPods(t *testing.T) {
	for args, want := range map[[2]string]int64{
		{"--max-pods=0", "--port=1"}: 0, {"--max-pods=0", "--pod-cidr=10.0.0.0/24"}: 255,
		{"--max-pods=9", "--pod-cidr=10.0.0.0/24"}: 9, {"--max-pods=900", "--pod-cidr=10.0.0.0/24"}: 255,
	} {
		o, err := parse(append([]string{"--node-name=n", "--address=192.0.2.1"}, args[:]...))
		if err != nil || o.most() != want {
			t.Errorf("%q: %d, %v", args, o.most(), err)
		}
	}
}

func TestBadFlags(t *testing.T) {
	for _, args := range [][]string{
		{}, {"--address=192.0.2.1", "extra"}, {"--address=192.0.2.1", "--pod-cidr=x"}, {"--address=192.0.2.1", "--refresh-files=1ms"},
		{"--address=192.0.2.1", "--refresh-files=6m"},
		{"--address=192.0.2.1", "--bootstrap-kubeconfig=x"},
		{"--address=192.0.2.1", "--network-policies=off"},
	} {
		if _, err := parse(append([]string{"--node-name=n"}, args...)); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
}

func TestNetworkPolicies(t *testing.T) {
	for args, ignored := range map[string]bool{"--port=1": false, "--network-policies=enforce": false, "--network-policies=ignore": true} {
		if o, err := parse([]string{"--node-name=n", "--address=192.0.2.1", args}); err != nil || o.ignorePolicies != ignored {
			t.Errorf("%s: ignored %t, %v", args, o.ignorePolicies, err)
		}
	}
}
