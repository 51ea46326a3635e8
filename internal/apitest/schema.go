package apitest

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ChangeSchema does to a resource what a new schema in its
// CustomResourceDefinition does: the hash of its group version in the
// /openapi/v3 index changes, its watches end, its history is forgotten, and
// change, unless it is nil, is applied to every object that is read from now on,
// as a new default would be. Their resourceVersions stay.
func (s *Server) ChangeSchema(gvr schema.GroupVersionResource, change func(runtime.Object)) error {
	t, ok := s.storage.table(gvr)
	if !ok {
		return fmt.Errorf("apitest: %v is not served", gvr)
	}
	return s.storage.changeSchema(t, change)
}

func (s *storage) changeSchema(t *table, change func(runtime.Object)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	rows := slices.Clone(t.rows)
	for i, row := range rows {
		if change == nil {
			break
		}
		obj, err := row.decode()
		if err != nil {
			return err
		}
		change(obj)
		if rows[i], err = newRecord(t.res, obj, row.rv, row.written); err != nil {
			return err
		}
	}
	t.rows = rows
	t.schema++
	t.restartLocked(s.mu.rv)
	return nil
}

// openAPIPaths is the index of OpenAPI v3 documents. The documents themselves
// are not served; what matters to a cache is that a hash changes.
type openAPIPaths struct {
	Paths map[string]openAPIPath `json:"paths"`
}

type openAPIPath struct {
	ServerRelativeURL string `json:"serverRelativeURL"`
}

func (s *Server) openAPIIndex() openAPIPaths {
	index := openAPIPaths{Paths: map[string]openAPIPath{}}
	for path, hash := range s.storage.schemaHashes() {
		index.Paths[path] = openAPIPath{ServerRelativeURL: "/openapi/v3/" + path + "?hash=" + hash}
	}
	return index
}

// schemaHashes has a hash for each group version by its path.
func (s *storage) schemaHashes() map[string]string {
	schemas := map[string][]string{}
	s.mu.RLock()
	for gvr, t := range s.mu.tables {
		path := "apis/" + gvr.Group + "/" + gvr.Version
		if gvr.Group == "" {
			path = "api/" + gvr.Version
		}
		schemas[path] = append(schemas[path], fmt.Sprint(gvr.Resource, " ", t.schema))
	}
	s.mu.RUnlock()
	hashes := map[string]string{}
	for path, all := range schemas {
		slices.Sort(all)
		h := fnv.New64a()
		// A hash does not fail to write.
		_, _ = h.Write([]byte(strings.Join(all, "\n")))
		hashes[path] = fmt.Sprintf("%016X", h.Sum64())
	}
	return hashes
}
