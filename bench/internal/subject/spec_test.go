package subject

import (
	"slices"
	"testing"
)

func TestParseKinds(t *testing.T) {
	for s, want := range map[string][]Kind{
		"disk":                    {Disk},
		"disk,client-go":          {ClientGo, Disk},
		"memory,client-go,memory": {ClientGo, Memory},
		"":                        nil,
		"disk,tape":               nil,
	} {
		got, err := ParseKinds(s)
		if !slices.Equal(got, want) && err == nil || (want == nil) != (err != nil) {
			t.Errorf("%q: %v, %v; want %v", s, got, err, want)
		}
	}
}
