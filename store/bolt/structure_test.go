package bolt

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/warmcache/warmcache/store"
)

// structured returns a file with a tree of three levels and small buckets.
func structured(t testing.TB) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file.db")
	db, err := bbolt.Open(path, fileMode, boltOptions())
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		for i := range 200 {
			if _, err := tx.CreateBucket(fmt.Appendf(nil, "small-%03d", i)); err != nil {
				return err
			}
		}
		big, err := tx.CreateBucket([]byte("big"))
		for i := 0; i < 400 && err == nil; i++ {
			err = big.Put([]byte(fmt.Sprintf("%04d", i)+strings.Repeat("k", 500)), bytes.Repeat([]byte{1}, 300))
		}
		return err
	})
	if err == nil {
		// A second transaction leaves free pages.
		err = db.Update(func(tx *bbolt.Tx) error {
			return tx.Bucket([]byte("big")).Put([]byte("0000"), []byte("x"))
		})
	}
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// pageOf returns the first page of a kind with the most elements.
func pageOf(t *testing.T, file []byte, flags uint16) (id int, page []byte) {
	t.Helper()
	most := 0
	for i := 2; i < len(file)/pageSize; i++ {
		p := file[i*pageSize : (i+1)*pageSize]
		if count := int(order.Uint16(p[10:])); order.Uint64(p) == uint64(i) && order.Uint16(p[8:]) == flags && count > most {
			id, page, most = i, p, count
		}
	}
	if page == nil {
		t.Fatalf("no page of kind %#x", flags)
	}
	return id, page
}

func TestCheckTrees_Sound(t *testing.T) {
	file := structured(t)
	if err := checkTrees(bytes.NewReader(file), int64(len(file)), nil); err != nil {
		t.Error(err)
	}
}

// TestCheckTrees_Damage damages what bbolt does not check itself, one thing
// at a time.
func TestCheckTrees_Damage(t *testing.T) {
	element := func(p []byte, i int) []byte { return p[pageHeader+i*pageElement:] }
	for name, damage := range map[string]func(t *testing.T, file []byte){
		"branch refers to itself": func(t *testing.T, file []byte) {
			id, p := pageOf(t, file, flagBranch)
			order.PutUint64(element(p, 1)[8:], uint64(id))
		},
		"branch refers to a page twice": func(t *testing.T, file []byte) {
			_, p := pageOf(t, file, flagBranch)
			order.PutUint64(element(p, 1)[8:], order.Uint64(element(p, 2)[8:]))
		},
		"branch refers beyond the end": func(t *testing.T, file []byte) {
			_, p := pageOf(t, file, flagBranch)
			order.PutUint64(element(p, 1)[8:], 1<<40)
		},
		"branch refers to a meta page": func(t *testing.T, file []byte) {
			_, p := pageOf(t, file, flagBranch)
			order.PutUint64(element(p, 1)[8:], 1)
		},
		"branch key out of order": func(t *testing.T, file []byte) {
			_, p := pageOf(t, file, flagBranch)
			e := element(p, 1)
			p[pageHeader+pageElement+int(order.Uint32(e))] = 0xff
		},
		"branch key outside of the page": func(t *testing.T, file []byte) {
			_, p := pageOf(t, file, flagBranch)
			order.PutUint32(element(p, 1)[4:], 1<<31)
		},
		"branch without elements": func(t *testing.T, file []byte) {
			_, p := pageOf(t, file, flagBranch)
			order.PutUint16(p[10:], 0)
		},
		"branch with too many elements": func(t *testing.T, file []byte) {
			_, p := pageOf(t, file, flagBranch)
			order.PutUint16(p[10:], 60000)
		},
		"branch of another kind": func(t *testing.T, file []byte) {
			_, p := pageOf(t, file, flagBranch)
			order.PutUint16(p[8:], flagFreelist)
		},
		"branch with another id": func(t *testing.T, file []byte) {
			id, p := pageOf(t, file, flagBranch)
			order.PutUint64(p, uint64(id+1))
		},
		"branch with overflow beyond the end": func(t *testing.T, file []byte) {
			_, p := pageOf(t, file, flagBranch)
			order.PutUint32(p[12:], 1<<30)
		},
		"directory with something else": func(t *testing.T, file []byte) {
			_, p := pageOf(t, file, flagLeaf)
			order.PutUint32(element(p, 0), 0)
		},
		"directory with too many elements": func(t *testing.T, file []byte) {
			_, p := pageOf(t, file, flagLeaf)
			order.PutUint16(p[10:], 60000)
		},
		"directory entry outside of the page": func(t *testing.T, file []byte) {
			_, p := pageOf(t, file, flagLeaf)
			order.PutUint32(element(p, 0)[12:], 1<<31)
		},
		"free list with a page in use": func(t *testing.T, file []byte) {
			id, _ := pageOf(t, file, flagBranch)
			_, p := pageOf(t, file, flagFreelist)
			order.PutUint16(p[10:], 1)
			order.PutUint64(p[pageHeader:], uint64(id))
		},
		"free list beyond its page": func(t *testing.T, file []byte) {
			_, p := pageOf(t, file, flagFreelist)
			order.PutUint16(p[10:], 0xffff)
			order.PutUint64(p[pageHeader:], 1<<60)
		},
		"free list out of order": func(t *testing.T, file []byte) {
			_, p := pageOf(t, file, flagFreelist)
			order.PutUint16(p[10:], 2)
			copy(p[pageHeader+8:], p[pageHeader:pageHeader+8])
		},
		"free list of another kind": func(t *testing.T, file []byte) {
			_, p := pageOf(t, file, flagFreelist)
			order.PutUint16(p[8:], flagLeaf)
		},
		"both meta pages": func(_ *testing.T, file []byte) {
			file[pageHeader+20]++
			file[pageSize+pageHeader+20]++
		},
		"truncated": func(_ *testing.T, file []byte) {
			clear(file[8*pageSize:])
		},
	} {
		t.Run(name, func(t *testing.T) {
			file := structured(t)
			damage(t, file)
			if err := checkTrees(bytes.NewReader(file), int64(len(file)), nil); !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("got %v, want ErrCorrupt", err)
			}
		})
	}
}

func TestCheckTrees_OneMetaPageIsEnough(t *testing.T) {
	for i := range 2 {
		file := structured(t)
		file[i*pageSize+pageHeader+20]++
		if err := checkTrees(bytes.NewReader(file), int64(len(file)), nil); err != nil {
			t.Errorf("meta page %d damaged: %v", i, err)
		}
	}
}

// FuzzCheckTrees must end, whatever the file.
func FuzzCheckTrees(f *testing.F) {
	file := structured(f)
	file = file[:40*pageSize]
	f.Add(file[:pageSize*4], uint32(0), uint64(0))
	f.Fuzz(func(t *testing.T, start []byte, at uint32, value uint64) {
		damaged := bytes.Clone(file)
		copy(damaged[2*pageSize:], start)
		order.PutUint64(damaged[int(at)%(len(damaged)-8):], value)
		err := checkTrees(bytes.NewReader(damaged), int64(len(damaged)), nil)
		if err != nil && !errors.Is(err, store.ErrCorrupt) && !errors.Is(err, errForeign) {
			t.Errorf("got %v", err)
		}
	})
}
