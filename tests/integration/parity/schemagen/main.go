// Command schemagen prints cloudprovider/testing/apiserver/schema.json: the JSON fields of the API types that the embedded
// API server keeps, read off the Go types by reflection. Run it in tests/envtest/apiserver, whose module has them:
//
//	go run ../../integration/parity/schemagen/main.go > ../../../cloudprovider/testing/apiserver/schema.json
//
// A field reads "type [omit] [patch=strategy] [key=merge key] n=number". Types: * pointer, [] list, {} map, a capital letter a
// struct. The number is the field's in Protobuf, 2/5 where it is the fifth of a message that is the second.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	events "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

var roots = []any{
	core.Node{}, core.Service{}, core.PersistentVolume{}, core.Event{}, core.Namespace{}, core.ServiceAccount{}, core.ConfigMap{}, core.Secret{}, coordination.Lease{},
	events.Event{}, admissionregistration.MutatingWebhookConfiguration{}, admissionregistration.ValidatingWebhookConfiguration{},
	authentication.TokenReview{}, authentication.TokenRequest{}, authentication.SelfSubjectReview{}, authorization.SubjectAccessReview{},
	authorization.SelfSubjectAccessReview{}, authorization.LocalSubjectAccessReview{}, authorization.SelfSubjectRulesReview{},
	meta.DeleteOptions{},
}

var special = map[reflect.Type]string{
	reflect.TypeOf(meta.Time{}):          "time",
	reflect.TypeOf(meta.MicroTime{}):     "microtime",
	reflect.TypeOf(meta.Duration{}):      "string",
	reflect.TypeOf(meta.FieldsV1{}):      "any",
	reflect.TypeOf(resource.Quantity{}):  "quantity",
	reflect.TypeOf(intstr.IntOrString{}): "intstr",
}

// none stands for the fields of TypeMeta, which travel in the envelope.
const none = "-"

var types = map[string]map[string]string{}

func name(t reflect.Type) string {
	if known, ok := special[t]; ok {
		return known
	}
	switch t.Kind() {
	case reflect.Pointer:
		return "*" + name(t.Elem())
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "bytes"
		}
		return "[]" + name(t.Elem())
	case reflect.Map:
		return "{}" + name(t.Elem())
	case reflect.Struct:
		walk(t)
		return title(t)
	case reflect.Bool, reflect.String, reflect.Int, reflect.Int32, reflect.Int64:
		return t.Kind().String()
	}
	panic(fmt.Sprintf("no name for %v", t))
}

// title names a type in the table. Both groups of events have an Event: those of events.k8s.io are named with the group.
func title(t reflect.Type) string {
	if t.PkgPath() == "k8s.io/api/events/v1" {
		return "Events" + t.Name()
	}
	return t.Name()
}

func walk(t reflect.Type) {
	if _, ok := types[title(t)]; ok {
		return
	}
	types[title(t)] = map[string]string{}
	fields(t, types[title(t)], "")
}

func fields(t reflect.Type, into map[string]string, inside string) {
	for i := 0; i < t.NumField(); i++ {
		field := t.Field(i)
		tag := strings.Split(field.Tag.Get("json"), ",")
		if tag[0] == "-" {
			continue
		}
		if field.Anonymous && tag[0] == "" {
			outer := number(field)
			if outer == "" {
				outer = none
			} else {
				outer += "/"
			}
			fields(field.Type, into, outer)
			continue
		}
		text := name(field.Type)
		options := strings.Join(tag[1:], ",")
		// omitempty never leaves out a struct, omitzero does.
		if strings.Contains(options, "omitzero") || (strings.Contains(options, "omitempty") && field.Type.Kind() != reflect.Struct) {
			text += " omit"
		}
		if strategy := field.Tag.Get("patchStrategy"); strategy != "" {
			text += " patch=" + strategy
		}
		if key := field.Tag.Get("patchMergeKey"); key != "" {
			text += " key=" + key
		}
		if found := number(field); found != "" && inside != none {
			text += " n=" + inside + found
		}
		into[tag[0]] = text
	}
}

// number is the field's number in Protobuf, "" if it has none.
func number(field reflect.StructField) string {
	parts := strings.Split(field.Tag.Get("protobuf"), ",")
	if len(parts) < 2 {
		return ""
	}
	return parts[1]
}

func main() {
	for _, root := range roots {
		walk(reflect.TypeOf(root))
	}
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(types); err != nil {
		panic(err)
	}
}
