package controlplane

import "testing"

const sampleAuditLog = `{"auditID":"1","stage":"RequestReceived","requestURI":"/api/v1/pods?limit=500","verb":"list","user":{"username":"admin"},"userAgent":"x","objectRef":{"resource":"pods","apiVersion":"v1"},"requestReceivedTimestamp":"2026-01-02T03:04:05.000006Z"}
{"auditID":"2","stage":"RequestReceived","requestURI":"/api/v1/pods?watch=true","verb":"watch","user":{"username":"admin"}}
{"auditID":"1","stage":"ResponseComplete","requestURI":"/api/v1/pods?limit=500","verb":"list","user":{"username":"admin"},"userAgent":"x","objectRef":{"resource":"pods","apiVersion":"v1"},"responseStatus":{"code":200},"requestReceivedTimestamp":"2026-01-02T03:04:05.000006Z"}
{"auditID":"2","stage":"ResponseStarted","requestURI":"/api/v1/pods?watch=true","verb":"watch","user":{"username":"admin"},"responseStatus":{"code":200}}
{"auditID":"3","stage":"Requ`

func TestParseAuditLog_MergesStagesAndIgnoresALineBeingWritten(t *testing.T) {
	events, err := parseAuditLog([]byte(sampleAuditLog))
	if err != nil {
		t.Fatal(err)
	}
	if len(events) != 2 {
		t.Fatalf("got %d events, want 2: %+v", len(events), events)
	}
	list, watch := events[0], events[1]
	if list.ID != "1" || list.Code != 200 || !list.Ended || list.Resource != "pods" || list.UserAgent != "x" {
		t.Errorf("list: %+v", list)
	}
	if watch.ID != "2" || watch.Code != 200 || watch.Ended {
		t.Errorf("watch: %+v", watch)
	}
}

func TestParseAuditLog_ReportsALineThatIsNoJSON(t *testing.T) {
	if _, err := parseAuditLog([]byte("nonsense\n")); err == nil {
		t.Error("no error")
	}
}

func TestAuditEvent_ListsCollection(t *testing.T) {
	for _, test := range []struct {
		verb, uri string
		want      bool
	}{
		{"list", "/api/v1/pods", true},
		{"list", "/api/v1/pods?limit=500", true},
		{"list", "/api/v1/pods?limit=1", false},
		{"watch", "/api/v1/pods?resourceVersion=7&watch=true", false},
		{"watch", "/api/v1/pods?sendInitialEvents=true&watch=true", true},
		{"get", "/api/v1/namespaces/a/pods/b", false},
	} {
		if got := (AuditEvent{Verb: test.verb, URI: test.uri}).ListsCollection(); got != test.want {
			t.Errorf("%s %s: %v, want %v", test.verb, test.uri, got, test.want)
		}
	}
}
