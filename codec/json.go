package codec

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/runtime"
	kjson "k8s.io/apimachinery/pkg/util/json"
)

// jsonPayload leaves the encoding to the Go type, which is written for JSON:
// Quantity, IntOrString, RawExtension and their like have JSON methods and would
// lose their content in a codec that reflects over exported fields.
type jsonPayload struct{}

func (jsonPayload) kind() PayloadKind { return PayloadJSON }

func (jsonPayload) encode(s *scratch, obj runtime.Object) ([]byte, error) {
	enc := json.NewEncoder(&s.record)
	// Raw JSON inside the object stays as the server wrote it; escaping would
	// rewrite <, > and & in it.
	enc.SetEscapeHTML(false)
	if err := enc.Encode(obj); err != nil {
		return nil, err
	}
	s.record.Truncate(s.record.Len() - 1) // the newline
	return s.newRecord(0), nil
}

// decode reads as clients do: case-sensitive, and with int64 for integers where
// the type leaves it open.
func (jsonPayload) decode(data []byte, _ header, into runtime.Object) error {
	return kjson.Unmarshal(data, into)
}
