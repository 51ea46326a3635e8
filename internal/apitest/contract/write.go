package contract

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var writeTests = []test{
	{"Create_SetsServerFields", testCreateSetsServerFields},
	{"Create_GeneratesName", testCreateGeneratesName},
	{"Create_Twice_AlreadyExists", testCreateTwice},
	{"Create_WithVersion_Fails", testCreateWithVersion},
	{"Write_VersionsIncreaseAcrossResources", testVersionsIncrease},
	{"Update_StaleVersion_Conflict", testUpdateConflict},
	{"Update_WithoutVersion_Wins", testUpdateUnconditional},
	{"Update_Absent_NotFound", testUpdateAbsent},
	{"Update_WithoutChange_KeepsVersion", testUpdateNoChange},
	{"Update_KeepsUID", testUpdateKeepsUID},
	{"Patch_Merges", testPatchMerges},
	{"Patch_StaleVersion_Conflict", testPatchConflict},
	{"Delete_Absent_NotFound", testDeleteAbsent},
	{"Delete_OtherUID_Conflict", testDeletePrecondition},
	{"Delete_Recreate_NewUID", testRecreate},
	{"DeleteCollection_Selects", testDeleteCollection},
}

func testCreateSetsServerFields(t *testing.T, s *suite) {
	cm := s.put(t, "a", nil)
	if cm.UID == "" || cm.ResourceVersion == "" || cm.CreationTimestamp.IsZero() {
		t.Errorf("UID %q, resourceVersion %q, creationTimestamp %v: want all set", cm.UID, cm.ResourceVersion, cm.CreationTimestamp)
	}
	got := must(s.configMaps().Get(s.ctx, "a", metav1.GetOptions{}))(t)
	if got.UID != cm.UID || got.ResourceVersion != cm.ResourceVersion || got.Data["key"] != cm.Data["key"] {
		t.Errorf("GET returned %v, CREATE %v", got, cm)
	}
}

func testCreateGeneratesName(t *testing.T, s *suite) {
	cm := &corev1.ConfigMap{ObjectMeta: objectMeta(s.ns, "", nil)}
	cm.GenerateName = "gen-"
	cm = must(s.configMaps().Create(s.ctx, cm, metav1.CreateOptions{}))(t)
	if !strings.HasPrefix(cm.Name, "gen-") || len(cm.Name) <= len("gen-") {
		t.Errorf("name %q, want gen- and more", cm.Name)
	}
}

func testCreateTwice(t *testing.T, s *suite) {
	cm := s.put(t, "a", nil)
	cm.ResourceVersion = ""
	if _, err := s.configMaps().Create(s.ctx, cm, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("got %v, want AlreadyExists", err)
	}
}

func testCreateWithVersion(t *testing.T, s *suite) {
	cm := &corev1.ConfigMap{ObjectMeta: objectMeta(s.ns, "a", nil)}
	cm.ResourceVersion = "1"
	if _, err := s.configMaps().Create(s.ctx, cm, metav1.CreateOptions{}); err == nil {
		t.Error("an object with a resourceVersion was created")
	}
}

func testVersionsIncrease(t *testing.T, s *suite) {
	before := s.put(t, "a", nil).ResourceVersion
	other := s.touchOther(t)
	after := s.put(t, "b", nil).ResourceVersion
	if compare(t, before, other) >= 0 || compare(t, other, after) >= 0 {
		t.Errorf("versions %s, %s, %s of writes in this order do not increase", before, other, after)
	}
}

func testUpdateConflict(t *testing.T, s *suite) {
	stale := s.put(t, "a", nil)
	s.change(t, stale, func(cm *corev1.ConfigMap) { cm.Data["key"] = "new" })
	stale.Data["key"] = "other"
	if _, err := s.configMaps().Update(s.ctx, stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("got %v, want Conflict", err)
	}
}

func testUpdateUnconditional(t *testing.T, s *suite) {
	cm := s.put(t, "a", nil)
	got := s.change(t, cm, func(cm *corev1.ConfigMap) {
		cm.ResourceVersion = ""
		cm.Data["key"] = "new"
	})
	if got.Data["key"] != "new" || compare(t, got.ResourceVersion, cm.ResourceVersion) <= 0 {
		t.Errorf("got %q at %s, want new at a version above %s", got.Data["key"], got.ResourceVersion, cm.ResourceVersion)
	}
}

func testUpdateAbsent(t *testing.T, s *suite) {
	cm := &corev1.ConfigMap{ObjectMeta: objectMeta(s.ns, "absent", nil)}
	cm.ResourceVersion = "1"
	if _, err := s.configMaps().Update(s.ctx, cm, metav1.UpdateOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("got %v, want NotFound", err)
	}
}

func testUpdateNoChange(t *testing.T, s *suite) {
	cm := s.put(t, "a", nil)
	if got := s.change(t, cm, func(*corev1.ConfigMap) {}); got.ResourceVersion != cm.ResourceVersion {
		t.Errorf("version went from %s to %s without a change", cm.ResourceVersion, got.ResourceVersion)
	}
}

func testUpdateKeepsUID(t *testing.T, s *suite) {
	cm := s.put(t, "a", nil)
	got := s.change(t, cm, func(cm *corev1.ConfigMap) {
		cm.UID = ""
		cm.Data["key"] = "new"
	})
	if got.UID != cm.UID || !got.CreationTimestamp.Equal(&cm.CreationTimestamp) {
		t.Errorf("UID %s created %v became %s created %v", cm.UID, cm.CreationTimestamp, got.UID, got.CreationTimestamp)
	}
}

func testPatchMerges(t *testing.T, s *suite) {
	cm := s.put(t, "a", nil)
	for kind, patch := range map[types.PatchType]string{
		types.MergePatchType:          `{"data":{"merge":"yes"}}`,
		types.StrategicMergePatchType: `{"data":{"strategic":"yes"}}`,
		types.JSONPatchType:           `[{"op":"add","path":"/data/json","value":"yes"}]`,
	} {
		cm = must(s.configMaps().Patch(s.ctx, "a", kind, []byte(patch), metav1.PatchOptions{}))(t)
	}
	if len(cm.Data) != 4 || cm.Data["merge"] != "yes" || cm.Data["strategic"] != "yes" || cm.Data["json"] != "yes" {
		t.Errorf("data is %v after three patches", cm.Data)
	}
}

func testPatchConflict(t *testing.T, s *suite) {
	cm := s.put(t, "a", nil)
	s.change(t, cm, func(cm *corev1.ConfigMap) { cm.Data["key"] = "new" })
	patch := `{"metadata":{"resourceVersion":"` + cm.ResourceVersion + `"},"data":{"key":"other"}}`
	_, err := s.configMaps().Patch(s.ctx, "a", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if !apierrors.IsConflict(err) {
		t.Errorf("got %v, want Conflict", err)
	}
}

func testDeleteAbsent(t *testing.T, s *suite) {
	if err := s.configMaps().Delete(s.ctx, "absent", metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("got %v, want NotFound", err)
	}
}

func testDeletePrecondition(t *testing.T, s *suite) {
	s.put(t, "a", nil)
	other := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions("0a0a0a0a-0000-4000-8000-000000000000")}
	if err := s.configMaps().Delete(s.ctx, "a", other); !apierrors.IsConflict(err) {
		t.Errorf("got %v, want Conflict", err)
	}
}

func testRecreate(t *testing.T, s *suite) {
	first := s.put(t, "a", nil)
	s.remove(t, "a")
	if second := s.put(t, "a", nil); second.UID == first.UID {
		t.Errorf("both have UID %s", first.UID)
	}
}

func testDeleteCollection(t *testing.T, s *suite) {
	s.put(t, "a", map[string]string{"go": "yes"})
	s.put(t, "b", nil)
	s.put(t, "c", map[string]string{"go": "yes"})
	err := s.configMaps().DeleteCollection(s.ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "go=yes"})
	if err != nil {
		t.Fatal(err)
	}
	if got := names(s.list(t, metav1.ListOptions{LabelSelector: labelSuite})); len(got) != 1 || got[0] != "b" {
		t.Errorf("%v are left, want b", got)
	}
}
