package apitest

import (
	"bytes"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
)

// frames writes watch events in one form.
type frames struct {
	form    form
	encoder runtime.Encoder
	w       io.Writer
}

// newFrames uses the stream serializer and framer that clients use, too.
func newFrames(w io.Writer, f form) (*frames, error) {
	info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), f.contentType())
	if !ok || info.StreamSerializer == nil {
		return nil, fmt.Errorf("no stream serializer for %s", f.contentType())
	}
	return &frames{
		form:    f,
		encoder: info.StreamSerializer.Serializer,
		w:       info.StreamSerializer.Framer.NewFrameWriter(w),
	}, nil
}

// streamContentType is what a watch of the form says it is.
func (f form) streamContentType() string {
	if f.protobuf {
		return runtime.ContentTypeProtobuf + ";stream=watch"
	}
	return runtime.ContentTypeJSON
}

func (fr *frames) record(event watch.EventType, rec *record) error {
	raw, err := envelope(fr.form, fr.form.kind(rec.res), rec)
	if err != nil {
		return err
	}
	return fr.raw(event, raw)
}

// blank is an empty object of the kind that events of res carry.
func (fr *frames) blank(res *resource) (runtime.Object, error) {
	obj := runtime.Object(&metav1.PartialObjectMetadata{})
	if !fr.form.metadata {
		var err error
		if obj, err = res.newObject(); err != nil {
			return nil, err
		}
	}
	obj.GetObjectKind().SetGroupVersionKind(fr.form.kind(res))
	return obj, nil
}

// object sends an event with an object that has no record.
func (fr *frames) object(event watch.EventType, obj runtime.Object) error {
	var raw bytes.Buffer
	if err := encodeObject(&raw, fr.form, obj); err != nil {
		return err
	}
	return fr.raw(event, raw.Bytes())
}

func (fr *frames) raw(event watch.EventType, raw []byte) error {
	var frame bytes.Buffer
	e := &metav1.WatchEvent{Type: string(event), Object: runtime.RawExtension{Raw: raw}}
	if err := fr.encoder.Encode(e, &frame); err != nil {
		return err
	}
	_, err := fr.w.Write(frame.Bytes())
	return err
}
