// Command schemagen prints cloudprovider/testing/apiserver/kinds/schema.json: the JSON fields of the API types that the embedded
// API server keeps, read off the Go types by reflection. Run it in tests/lab/envtest/kubernetes, whose module has them:
//
//	go run ../../integration/parity/schemagen/main.go > ../../../cloudprovider/testing/apiserver/kinds/schema.json
//
// A field reads "type [omit] [patch=strategy] [key=merge key]". Types: * pointer, [] list, {} map, a capital letter a struct.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"

	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	certificates "k8s.io/api/certificates/v1"
	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

var roots = []any{
	core.Node{}, core.Service{}, core.Event{}, coordination.Lease{}, certificates.CertificateSigningRequest{},
	authentication.TokenReview{}, authentication.TokenRequest{}, authorization.SubjectAccessReview{}, authorization.SelfSubjectAccessReview{},
}

var special = map[reflect.Type]string{
	reflect.TypeOf(meta.Time{}):          "time",
	reflect.TypeOf(meta.MicroTime{}):     "microtime",
	reflect.TypeOf(meta.Duration{}):      "string",
	reflect.TypeOf(meta.FieldsV1{}):      "any",
	reflect.TypeOf(resource.Quantity{}):  "quantity",
	reflect.TypeOf(intstr.IntOrString{}): "intstr",
}

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
		return t.Name()
	case reflect.Bool, reflect.String, reflect.Int, reflect.Int32, reflect.Int64:
		return t.Kind().String()
	}
	panic(fmt.Sprintf("no name for %v", t))
}

func walk(t reflect.Type) {
	if _, ok := types[t.Name()]; ok {
		return
	}
	types[t.Name()] = map[string]string{}
	fields(t, types[t.Name()])
}

func fields(t reflect.Type, into map[string]string) {
	for i := 0; i < t.NumField(); i++ {
		field := t.Field(i)
		tag := strings.Split(field.Tag.Get("json"), ",")
		if tag[0] == "-" {
			continue
		}
		if field.Anonymous && tag[0] == "" {
			fields(field.Type, into)
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
		into[tag[0]] = text
	}
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
