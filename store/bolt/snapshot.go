package bolt

import "go.etcd.io/bbolt"

// snapshot is one state of the file: of bbolt, once it may read the file, or of the
// pages as they were when it was opened.
type snapshot interface {
	// bucket returns the bucket of the given name, or nil.
	bucket(name []byte) (fileBucket, error)
	// names walks the names of all buckets.
	names() fileCursor
}

// fileBucket is a bucket of the file. What it returns is valid as long as the
// snapshot.
type fileBucket interface {
	// get returns the value of key, or nil.
	get(key []byte) ([]byte, error)
	cursor() fileCursor
}

// fileCursor walks the keys of a bucket. The key is nil at the end and with an error.
type fileCursor interface {
	// seek moves to the first key >= from.
	seek(from []byte) (key, value []byte, err error)
	// next moves on. It must not be called at the end.
	next() (key, value []byte, err error)
}

// boltSnapshot is a transaction of bbolt.
type (
	boltSnapshot struct{ *bbolt.Tx }
	boltBucket   struct{ *bbolt.Bucket }
	boltCursor   struct{ *bbolt.Cursor }
)

func (s boltSnapshot) bucket(name []byte) (fileBucket, error) {
	if b := s.Bucket(name); b != nil {
		return boltBucket{b}, nil
	}
	return nil, nil
}

func (s boltSnapshot) names() fileCursor { return boltCursor{s.Cursor()} }

func (b boltBucket) get(key []byte) ([]byte, error) { return b.Get(key), nil }
func (b boltBucket) cursor() fileCursor             { return boltCursor{b.Cursor()} }

func (c boltCursor) seek(from []byte) (key, value []byte, err error) {
	key, value = c.Seek(from)
	return key, value, nil
}

func (c boltCursor) next() (key, value []byte, err error) {
	key, value = c.Next()
	return key, value, nil
}

// pageSnapshot is the file as it was opened. It is the directory of the buckets.
type pageSnapshot struct{ pageBucket }

// pages returns the state in which the file was opened, which holds until the first
// commit. Spoiled is told why something cannot be read, and returns the error to return.
func (f *openFile) pages(spoiled func(error) error) snapshot {
	return &pageSnapshot{pageBucket{
		walker: walker{file: f.file, pages: f.meta.pages},
		root:   f.meta.root, flags: leafIsBucket, spoiled: spoiled,
	}}
}

func (s *pageSnapshot) bucket(name []byte) (fileBucket, error) {
	value, err := s.get(name)
	if err != nil || value == nil {
		return nil, err
	}
	if len(value) < bucketHeader {
		return nil, s.spoiled(damaged("%q is not a bucket", name))
	}
	return &pageBucket{
		walker: s.walker, root: order.Uint64(value), small: &bucket{name: name, value: value},
		spoiled: s.spoiled,
	}, nil
}

func (s *pageSnapshot) names() fileCursor { return s.cursor() }
