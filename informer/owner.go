package informer

import (
	"fmt"
	"path"
	"runtime"
	"strings"
)

// makers are prefixes of functions that make informers for somebody else.
var makers = []string{
	"github.com/warmcache/warmcache/informer.",
	"github.com/warmcache/warmcache/factory.",
	"k8s.io/client-go/",
	"sigs.k8s.io/controller-runtime/",
	"sync.",
	"reflect.",
}

// ownerOf names an informer to people; see Options.Owner.
func ownerOf(o Options) string {
	if o.Owner != "" {
		return o.Owner
	}
	if name := o.Identifier.Name(); name != "" {
		return name
	}
	pcs := make([]uintptr, 32)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	for {
		frame, more := frames.Next()
		if !made(frame.Function) {
			return fmt.Sprintf("%s (%s:%d)", frame.Function, path.Base(frame.File), frame.Line)
		}
		if !more {
			return "unknown"
		}
	}
}

func made(function string) bool {
	for _, prefix := range makers {
		if strings.HasPrefix(function, prefix) {
			return true
		}
	}
	return false
}
