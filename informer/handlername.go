package informer

import (
	"fmt"
	"reflect"
	"runtime"
	"strings"

	"k8s.io/client-go/tools/cache"
)

// handlerName names a handler to people who wait for it, by client-go's rules
// (tools/cache/event_handler_name.go): a type by its package and name, a handler
// made of functions by where these are.
func handlerName(handler cache.ResourceEventHandler) string {
	switch h := handler.(type) {
	case cache.ResourceEventHandlerFuncs:
		return funcsName(h)
	case *cache.ResourceEventHandlerFuncs:
		if h != nil {
			return funcsName(*h)
		}
	}
	v := reflect.ValueOf(handler)
	if v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	if !v.IsValid() || v.Type().PkgPath() == "" || v.Type().Name() == "" {
		return fmt.Sprintf("%T", handler)
	}
	return v.Type().PkgPath() + "." + v.Type().Name()
}

// funcsName returns what the names of the functions that are set share up to a
// dot, usually the function or method that made the handler, or else all of them.
func funcsName(h cache.ResourceEventHandlerFuncs) string {
	var names []string
	places := map[string]bool{}
	var place string
	for _, f := range []any{h.AddFunc, h.UpdateFunc, h.DeleteFunc} {
		fn := runtime.FuncForPC(reflect.ValueOf(f).Pointer())
		if fn == nil {
			continue // not set
		}
		names = append(names, fn.Name())
		place = fn.Name()
		if dot := strings.LastIndexByte(place, '.'); dot > 0 {
			place = place[:dot]
		}
		places[place] = true
	}
	switch len(places) {
	case 0:
		return fmt.Sprintf("%T", h)
	case 1:
		return place
	}
	return strings.Join(names, "+")
}
