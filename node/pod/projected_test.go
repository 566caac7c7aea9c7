package pod

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func withSources(sources ...corev1.VolumeProjection) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "all", VolumeSource: corev1.VolumeSource{
			Projected: &corev1.ProjectedVolumeSource{Sources: sources}}})
	}
}

func tokenSource(audience, path string) corev1.VolumeProjection {
	return corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: audience, Path: path}}
}

func TestProjected(t *testing.T) {
	p := example()
	withSources(tokenSource("vault", "deep/token"),
		corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "m"}}},
		corev1.VolumeProjection{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}}})(p)
	if refusals := Check(p, Offer{}); len(refusals) > 0 {
		t.Fatalf("refused: %s", Text(refusals))
	}
	vault := Token{Audience: "vault", Seconds: 3600}
	if got := Tokens(p); len(got) != 1 || got[0] != vault {
		t.Errorf("the tokens are %v", got)
	}
	f := Facts{Tokens: map[Token]string{vault: "jwt"},
		ConfigMaps: map[string]*corev1.ConfigMap{"m": {Data: map[string]string{"a": "1"}}},
		Secrets:    map[string]*corev1.Secret{"s": {Data: map[string][]byte{"b": []byte("2")}}}}
	volumes, err := Files(p, f)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]File{}
	for _, file := range volumes["all"] {
		got[file.Path] = file
	}
	for path, want := range map[string]File{"deep/token": {Mode: 0o600, Data: []byte("jwt")}, "a": {Mode: 0o644, Data: []byte("1")}, "b": {Mode: 0o644, Data: []byte("2")}} {
		if file := got[path]; file.Mode != want.Mode || string(file.Data) != string(want.Data) {
			t.Errorf("%s is %o, %q", path, file.Mode, file.Data)
		}
	}
	p.Spec.SecurityContext = nil
	if volumes, err = Files(p, f); err != nil || volumes["all"][0].Mode != 0o644 {
		t.Errorf("of no certain user: %+v, %v", volumes["all"], err)
	}
}

// TestVolumesApart: one that lacks something leaves the others.
func TestVolumesApart(t *testing.T) {
	p := example()
	withSources(tokenSource("", "token"))(p)
	var missing *Missing
	volumes, err := Files(p, Facts{Tokens: map[Token]string{{Seconds: 3600}: "jwt"}})
	if !errors.As(err, &missing) || len(volumes) != 1 || string(volumes["all"][0].Data) != "jwt" {
		t.Errorf("Files = %+v, %v", volumes, err)
	}
}

// TestAPIAccess: the volume that the API server adds is left out. None of its sources is requested.
func TestAPIAccess(t *testing.T) {
	p := example()
	withSources(tokenSource("", "token"), corev1.VolumeProjection{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{Path: "name"}}}},
		corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}}})(p)
	if len(Check(p, Offer{})) != 1 {
		t.Error("downwardAPI is not refused in another volume")
	}
	p.Spec.Volumes[2].Name = "kube-api-access-x"
	if r := Check(p, Offer{}); len(r) > 0 {
		t.Errorf("refused: %s", Text(r))
	}
	configMaps, _ := References(p)
	volumes, _ := Files(p, Facts{Secrets: map[string]*corev1.Secret{"s": {}}})
	if len(configMaps) > 0 || len(Tokens(p)) > 0 || volumes["kube-api-access-x"] != nil {
		t.Errorf("it has %q, %v, %v", configMaps, Tokens(p), volumes)
	}
}

// TestOwnUsers: a file of another user is refused wherever one can be asked for.
func TestOwnUsers(t *testing.T) {
	user := int64(7)
	item := []corev1.KeyToPath{{Key: "a", Path: "a", User: &user}}
	token := tokenSource("", "token")
	token.ServiceAccountToken.User = &user
	for name, set := range map[string]func(*corev1.Pod){
		"token":     withSources(token),
		"configMap": withSources(corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{Items: item}}),
		"secret":    withSources(corev1.VolumeProjection{Secret: &corev1.SecretProjection{Items: item}}),
		"volume":    func(p *corev1.Pod) { p.Spec.Volumes[0].ConfigMap.DefaultUser = &user },
	} {
		p := example()
		if p.Spec.Volumes[0].ConfigMap == nil {
			p.Spec.Volumes[0] = corev1.Volume{Name: "m", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}}
		}
		set(p)
		if r := Check(p, Offer{}); len(r) != 1 {
			t.Errorf("%s: refusals %s", name, Text(r))
		}
	}
}
