package factory

import (
	"testing"

	"go.uber.org/goleak"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

func TestMain(m *testing.M) {
	// The other default handler slows errors down by a time that it remembers
	// across bubbles: it would sleep for years.
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1] //nolint:reassign // the variable is there to be set
	goleak.VerifyTestMain(m)
}
