package finding

import "testing"

func TestAnswers(t *testing.T) {
	for a, want := range map[Answer]string{Yes: "yes", No: "no", Unknown: "could not tell", Yes + 1: "could not tell"} {
		if text, err := a.MarshalText(); string(text) != want || err != nil {
			t.Errorf("%d is %q, %v; want %q", a, text, err, want)
		}
	}
	if Of(true) != Yes || Of(false) != No {
		t.Errorf("found is %s, not found is %s", Of(true), Of(false))
	}
}
