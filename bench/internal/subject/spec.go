// Package subject is the informer of Pods under observation: client-go's, or ours
// in either residency. Nothing but the constructor differs between them.
package subject

import (
	"fmt"
	"strings"
)

// Kind says whose informer it is, and where it keeps its objects.
type Kind string

// The kinds, in the order of reports.
const (
	// ClientGo is client-go's, which every other is compared with.
	ClientGo Kind = "client-go"
	// Memory is ours in memory residency, with a file.
	Memory Kind = "memory"
	// Disk is ours in disk residency.
	Disk Kind = "disk"
)

// Kinds are all of them.
var Kinds = []Kind{ClientGo, Memory, Disk}

// ParseKinds reads a list of kinds that are separated by commas.
func ParseKinds(s string) ([]Kind, error) {
	wanted := map[Kind]bool{}
	for name := range strings.SplitSeq(s, ",") {
		wanted[Kind(name)] = true
	}
	var kinds []Kind
	for _, k := range Kinds {
		if wanted[k] {
			kinds = append(kinds, k)
			delete(wanted, k)
		}
	}
	for name := range wanted {
		return nil, fmt.Errorf("no such subject: %q; there are %v", name, Kinds)
	}
	return kinds, nil
}

// Spec says what informer to make.
type Spec struct {
	Kind Kind `json:"kind"`
	// Host is the URL of the server.
	Host string `json:"host"`
	// File is where ours persists.
	File string `json:"file,omitempty"`
	// Budget is the memory budget of disk residency in bytes; 0 is the default.
	Budget int64 `json:"budget,omitempty"`
	// Resumed selects the start policy: synced as soon as the server has accepted
	// the watch from the stored version.
	Resumed bool `json:"resumed,omitempty"`
	// NoHandler leaves out the handler: a program that only reads.
	NoHandler bool `json:"noHandler,omitempty"`
}
