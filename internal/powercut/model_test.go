//go:build linux

package powercut

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestPowerCut_NoticesMissingSyncs takes the syncs out of a recording, which is
// what an engine without them would have done.
func TestPowerCut_NoticesMissingSyncs(t *testing.T) {
	needStrace(t)
	r := record(t, campaigns[0], 0, 2)
	for name, missing := range map[string]func(op) bool{
		"of files":       func(o op) bool { return o.kind == opSync && o.file >= 0 },
		"of directories": func(o op) bool { return o.kind == opSync && o.file < 0 },
	} {
		t.Run(name, func(t *testing.T) {
			without := *r
			without.ops = slices.DeleteFunc(slices.Clone(r.ops), missing)
			without.damaging = make([]bool, len(without.ops))
			random := rand.New(rand.NewPCG(1, 1))
			if failures := openStates(t, &without, without.cuts().plan(60, random), map[string]int{}); len(failures) == 0 {
				t.Error("nothing was noticed")
			}
		})
	}
}

func TestParseTrace(t *testing.T) {
	const trace = `7  openat(AT_FDCWD<\x2f>, "\x2f\x61", O_RDWR|O_CREAT, 0600) = 3<\x2f\x61>
8 fsync(4<\x2f\x62> <unfinished ...>
7 pwrite64(3<\x2f\x61>, "\x2c\x29", 2, 4096) = 2
8 <... fsync resumed>)              = -1 EIO (Input/output error) (INJECTED)
7 fstat(3<\x2f\x61>, {st_dev=makedev(0, 0x1), st_ino=5, st_mode=S_IFREG|0600}) = 0
7 exit_group(0) = ?
7 +++ exited with 0 +++
`
	var got []call
	err := parseTrace(strings.NewReader(trace), func(c call) error {
		got = append(got, c)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []call{
		{"openat", []string{`AT_FDCWD<\x2f>`, `"\x2f\x61"`, "O_RDWR|O_CREAT", "0600"}, 3},
		{"pwrite64", []string{`3<\x2f\x61>`, `"\x2c\x29"`, "2", "4096"}, 2},
		{"fsync", []string{`4<\x2f\x62>`}, -1},
		{"fstat", []string{`3<\x2f\x61>`, "{st_dev=makedev(0, 0x1), st_ino=5, st_mode=S_IFREG|0600}"}, 0},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(call{})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// escape writes a string as strace does.
func escape(s string) string {
	var b strings.Builder
	for i := range len(s) {
		b.WriteString(`\x`)
		b.WriteByte("0123456789abcdef"[s[i]>>4])
		b.WriteByte("0123456789abcdef"[s[i]&15])
	}
	return b.String()
}

func TestTracer_RefusesWhatIsNotModelled(t *testing.T) {
	for name, c := range map[string]call{
		"by path":       {"symlinkat", []string{`"` + escape("/else") + `"`, `AT_FDCWD<` + escape("/") + `>`, `"` + escape("/root/a") + `"`}, 0},
		"by descriptor": {"fallocate", []string{"3<" + escape("/root/a") + ">", "0", "0", "4096"}, 0},
	} {
		tr := newTracer("/root")
		tr.live["a"] = 0
		if err := tr.take(c); err == nil {
			t.Errorf("%s: taken without an error", name)
		}
		if err := newTracer("/elsewhere").take(c); err != nil {
			t.Errorf("%s, of another directory: %v", name, err)
		}
	}
}

// page is a write of two sectors.
func page(b byte) op {
	return op{kind: opWrite, path: "a", data: bytes.Repeat([]byte{b}, 2*sectorSize)}
}

// content is the first byte of each sector of "a" in a state, or nothing if there
// is no such file.
func content(ops []op, s state) string {
	d := &disk{}
	for i, o := range ops {
		d.apply(i, o)
	}
	im, exists := d.images(s)["a"]
	if !exists {
		return "none"
	}
	sectors := bytes.Repeat([]byte{'0'}, int(im.size/sectorSize))
	for _, e := range im.extents {
		for i := 0; i < len(e.data); i += sectorSize {
			sectors[(e.offset+int64(i))/sectorSize] = e.data[i]
		}
	}
	return string(sectors)
}

func TestDisk_Images(t *testing.T) {
	create := op{kind: opCreate, path: "a"}
	syncDir, syncFile, failed := op{kind: opSync, path: ".", file: -1}, op{kind: opSync, path: "a"}, op{kind: opFail, path: "a"}
	for _, test := range []struct {
		name  string
		ops   []op
		data  dataKind
		names namesKind
		want  string
	}{
		{"name not synced", []op{create, page('x'), syncFile}, dataEverything, namesNothing, "none"},
		{"name that got there", []op{create, page('x'), syncFile}, dataNothing, namesEverything, "xx"},
		{"data not synced", []op{create, syncDir, page('x')}, dataNothing, namesNothing, ""},
		{"data that got there", []op{create, syncDir, page('x')}, dataEverything, namesNothing, "xx"},
		{"synced, then written", []op{create, syncDir, page('x'), syncFile, page('y')}, dataNothing, namesNothing, "xx"},
		{"the first of two", []op{create, syncDir, page('x'), syncFile, page('y'), page('z')}, dataFirst, namesNothing, "yy"},
		{"after a failed sync", []op{create, syncDir, page('x'), syncFile, page('y'), failed, syncFile}, dataNothing, namesNothing, "xx"},
		{"written again after it", []op{create, syncDir, page('x'), syncFile, page('y'), failed, page('y'), syncFile}, dataNothing, namesNothing, "yy"},
		{"truncated", []op{create, syncDir, page('x'), syncFile, {kind: opTruncate, path: "a", size: sectorSize}}, dataEverything, namesNothing, "x"},
		{"not truncated", []op{create, syncDir, page('x'), syncFile, {kind: opTruncate, path: "a", size: sectorSize}}, dataNothing, namesNothing, "xx"},
		{"grown", []op{create, syncDir, {kind: opTruncate, path: "a", size: 2 * sectorSize}, syncFile}, dataNothing, namesNothing, "00"},
	} {
		if got := content(test.ops, state{data: test.data, names: test.names}); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

// TestDisk_Images_Torn wants each mixture of the sectors of one write.
func TestDisk_Images_Torn(t *testing.T) {
	ops := []op{{kind: opCreate, path: "a"}, {kind: opSync, path: ".", file: -1}, page('x'), {kind: opSync, path: "a"}, page('y')}
	seen := map[string]bool{}
	for salt := range uint64(100) {
		seen[content(ops, state{data: dataTorn, salt: salt})] = true
	}
	if want := map[string]bool{"xx": true, "xy": true, "yx": true, "yy": true}; !cmp.Equal(seen, want) {
		t.Errorf("seen %v, want %v", seen, want)
	}
}

// TestDisk_Namespace_IsPossible wants every order of independent changes, and
// never a change of a name without the one before.
func TestDisk_Namespace_IsPossible(t *testing.T) {
	d := &disk{}
	for i, o := range []op{
		{kind: opCreate, path: "new", file: 0},
		{kind: opRename, path: "new", to: "a", file: 0},
		{kind: opCreate, path: "b", file: 1},
	} {
		d.apply(i, o)
	}
	for names, want := range map[namesKind][]string{
		namesNothing:    {""},
		namesEverything: {"a b"},
		namesPrefix:     {"a", "a b", "new"},
		namesSubset:     {"", "a", "a b", "b", "b new", "new"},
	} {
		seen := map[string]bool{}
		for salt := range uint64(200) {
			s := state{names: names, salt: salt}
			var all []string
			for name := range d.namespace(s.reachedNames(d.names)) {
				if name != "." {
					all = append(all, name)
				}
			}
			slices.Sort(all)
			seen[strings.Join(all, " ")] = true
		}
		got := make([]string, 0, len(seen))
		for s := range seen {
			got = append(got, s)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", names, got, want)
		}
	}
}
