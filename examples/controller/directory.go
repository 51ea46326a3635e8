package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/cache"
)

// outcome says what became of a file.
type outcome string

const (
	written   outcome = "written"
	unchanged outcome = "unchanged"
	removed   outcome = "removed"
	// absent: there was no file to remove.
	absent outcome = "absent"
)

// directory is the world outside the cluster that the controller manages:
// <path>/<namespace>/<name>.json has the data of a ConfigMap.
type directory struct{ path string }

// file returns the path of the file of an object. The API server allows no
// separators in names.
func (d directory) file(key cache.ObjectName) string {
	return filepath.Join(d.path, key.Namespace, key.Name+".json")
}

// write makes the file of an object have its data.
func (d directory) write(key cache.ObjectName, data map[string]string) (outcome, error) {
	content, err := json.Marshal(data)
	if err != nil {
		return "", fmt.Errorf("encoding %s: %w", key, err)
	}
	path := d.file(key)
	if current, err := os.ReadFile(path); err == nil && bytes.Equal(current, content) {
		return unchanged, nil
	}
	if err := replaceFile(path, content); err != nil {
		return "", fmt.Errorf("writing the file of %s: %w", key, err)
	}
	return written, nil
}

// replaceFile never leaves half a file at path.
func replaceFile(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	temporary := path + ".tmp"
	if err := os.WriteFile(temporary, content, 0o644); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}

// remove makes sure that an object has no file.
func (d directory) remove(key cache.ObjectName) (outcome, error) {
	err := os.Remove(d.file(key))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return absent, nil
	case err != nil:
		return "", fmt.Errorf("removing the file of %s: %w", key, err)
	}
	return removed, nil
}
