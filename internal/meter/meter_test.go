package meter

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/rest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTraffic_Count_TellsListsFromProbesAndWatches(t *testing.T) {
	const pods = "https://host/api/v1/namespaces/x/pods"
	for request, want := range map[string]struct{ lists, probes int64 }{
		"GET " + pods: {1, 0},
		"GET " + pods + "?limit=500&resourceVersion=0":            {1, 0},
		"GET " + pods + "?limit=500&continue=abc":                 {0, 0},
		"GET " + pods + "?limit=1":                                {0, 1},
		"GET " + pods + "?limit=1&continue=abc":                   {1, 0},
		"GET " + pods + "?watch=true&resourceVersion=7":           {0, 0},
		"GET " + pods + "?watch=1&sendInitialEvents=true":         {1, 0},
		"GET " + pods + "?watch=true&sendInitialEvents=false":     {0, 0},
		"GET " + pods + "/one":                                    {0, 0},
		"GET https://host/api/v1/namespaces/x/configmaps?limit=1": {0, 0},
		"POST " + pods:   {0, 0},
		"DELETE " + pods: {0, 0},
	} {
		method, rawURL, _ := strings.Cut(request, " ")
		u, err := url.Parse(rawURL)
		if err != nil {
			t.Fatal(err)
		}
		traffic := &Traffic{resource: "pods"}
		traffic.count(method, u)
		if traffic.Lists() != want.lists || traffic.Probes() != want.probes {
			t.Errorf("%s: %d lists, %d probes; want %+v", request, traffic.Lists(), traffic.Probes(), want)
		}
	}
}

func TestAttach_CountsTheWireAndKeepsTheDialer(t *testing.T) {
	body := strings.Repeat("x", 100_000)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, body)
	}))
	defer server.Close()
	dialed := 0
	config := &rest.Config{Host: server.URL, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		dialed++
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}}
	traffic := Attach(config, "pods")
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	reply, err := client.Get(server.URL + "/api/v1/pods")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, reply.Body); err != nil {
		t.Fatal(err)
	}
	_ = reply.Body.Close()
	if got := traffic.BytesReceived(); got <= int64(len(body)) || got > int64(len(body))+2000 {
		t.Errorf("received %d bytes, want a little more than %d", got, len(body))
	}
	if traffic.Lists() != 1 || dialed != 1 {
		t.Errorf("%d lists over %d connections, want 1 over 1", traffic.Lists(), dialed)
	}
}

func TestWatchHeap_TakesALastSample(t *testing.T) {
	peak := WatchHeap(time.Hour) // no tick comes
	const size = 64 << 20
	block := make([]byte, size)
	got := peak()
	runtime.KeepAlive(block)
	if got < size {
		t.Errorf("peak = %d, want at least %d", got, size)
	}
}
