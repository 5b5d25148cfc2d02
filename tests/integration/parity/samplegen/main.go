// Command samplegen prints tests/unit/apiserver/protobuf.json: objects with every field set, as Go programs send them in
// Protobuf and in JSON. Run it in tests/envtest/apiserver, whose module has the types:
//
//	go run ../../integration/parity/samplegen/main.go > ../../unit/apiserver/protobuf.json
package main

import (
	"encoding/json"
	"os"
	"reflect"
	"strconv"
	"time"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	events "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

type object interface{ Marshal() ([]byte, error) }

type sample struct {
	Protobuf []byte          `json:"protobuf"`
	JSON     json.RawMessage `json:"json"`
}

var roots = []struct {
	version, kind string
	object        object
}{
	{"v1", "Node", &core.Node{}},
	{"v1", "Service", &core.Service{}},
	{"v1", "PersistentVolume", &core.PersistentVolume{}},
	{"v1", "Event", &core.Event{}},
	{"v1", "Namespace", &core.Namespace{}},
	{"v1", "ServiceAccount", &core.ServiceAccount{}},
	{"v1", "ConfigMap", &core.ConfigMap{}},
	{"v1", "Secret", &core.Secret{}},
	{"events.k8s.io/v1", "Event", &events.Event{}},
	{"coordination.k8s.io/v1", "Lease", &coordination.Lease{}},
	{"admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", &admissionregistration.MutatingWebhookConfiguration{}},
	{"admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", &admissionregistration.ValidatingWebhookConfiguration{}},
	{"authentication.k8s.io/v1", "TokenReview", &authentication.TokenReview{}},
	{"authentication.k8s.io/v1", "TokenRequest", &authentication.TokenRequest{}},
	{"authorization.k8s.io/v1", "SubjectAccessReview", &authorization.SubjectAccessReview{}},
	{"authorization.k8s.io/v1", "SelfSubjectAccessReview", &authorization.SelfSubjectAccessReview{}},
	{"authorization.k8s.io/v1", "SelfSubjectRulesReview", &authorization.SelfSubjectRulesReview{}},
	{"v1", "DeleteOptions", &meta.DeleteOptions{}},
}

var (
	count  = 0
	moment = time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC)
)

// fill sets every field: numbers count up, so that no two values are alike, every third one is negative.
func fill(v reflect.Value) {
	count++
	switch v.Interface().(type) {
	case meta.Time:
		v.Set(reflect.ValueOf(meta.NewTime(moment)))
		return
	case meta.MicroTime:
		v.Set(reflect.ValueOf(meta.NewMicroTime(moment)))
		return
	case meta.TypeMeta:
		return
	case meta.FieldsV1:
		v.Set(reflect.ValueOf(meta.FieldsV1{Raw: []byte(`{"f:a":{}}`)}))
		return
	case resource.Quantity:
		v.Set(reflect.ValueOf(resource.MustParse(strconv.Itoa(count) + "Mi")))
		return
	case intstr.IntOrString:
		if count%2 == 0 {
			v.Set(reflect.ValueOf(intstr.FromString("p" + strconv.Itoa(count))))
		} else {
			v.Set(reflect.ValueOf(intstr.FromInt32(int32(count))))
		}
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("ä" + strconv.Itoa(count))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		if count%3 == 0 {
			v.SetInt(int64(-count))
		} else {
			v.SetInt(int64(count))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes([]byte{0, 1, byte(count)})
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0))
		fill(v.Index(1))
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key)
		fill(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := 0; i < v.NumField(); i++ {
			fill(v.Field(i))
		}
	default:
		panic(v.Type().String())
	}
}

func main() {
	var samples []sample
	for _, root := range roots {
		for _, full := range []bool{true, false} {
			value := reflect.ValueOf(root.object)
			value.Elem().SetZero()
			if full {
				fill(value.Elem())
			}
			raw, err := root.object.Marshal()
			check(err)
			envelope := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: root.version, Kind: root.kind}, Raw: raw}
			wrapped, err := envelope.Marshal()
			check(err)
			value.Elem().FieldByName("TypeMeta").Set(reflect.ValueOf(meta.TypeMeta{APIVersion: root.version, Kind: root.kind}))
			text, err := json.Marshal(root.object)
			check(err)
			samples = append(samples, sample{append([]byte("k8s\x00"), wrapped...), text})
		}
	}
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetIndent("", "")
	check(encoder.Encode(samples))
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
