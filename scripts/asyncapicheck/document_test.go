package asyncapicheck

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/throughline/throughline/scripts/internal/topology"
)

func load(t *testing.T) *Document {
	t.Helper()
	d, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func eventsOf(t *testing.T, d *Document) []Event {
	t.Helper()
	events, err := d.Events()
	if err != nil {
		t.Fatal(err)
	}
	return events
}

func constants(t *testing.T) topology.Events {
	t.Helper()
	e, err := topology.ReadEvents(filepath.Join("../..", topology.File))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestDocumentHasEveryEventAndNoOther(t *testing.T) {
	t.Parallel()
	d := load(t)
	var got []string
	for _, e := range eventsOf(t, d) {
		got = append(got, e.Subject)
		service := strings.Split(e.Subject, ".")[1]
		if want := "throughline." + service + ".v1."; !strings.HasPrefix(e.Type, want) {
			t.Errorf("%s: got type %q, want one of %s", e.Subject, e.Type, want)
		}
		if want := "/" + service; e.Source != want {
			t.Errorf("%s: got source %q, want %q", e.Subject, e.Source, want)
		}
	}
	if want := constants(t).Subjects; !slices.Equal(got, want) {
		t.Errorf("subjects: got %q, want those of %s, %q", got, topology.File, want)
	}
}

func TestEveryEventCanBeReceived(t *testing.T) {
	t.Parallel()
	d := load(t)
	received := make(map[string]int)
	for name, o := range d.object("operations") {
		operation, _ := o.(object)
		if operation["action"] != "receive" {
			t.Errorf("operation %s: got action %v, want receive", name, operation["action"])
		}
		channel, err := d.resolve(operation["channel"])
		if err != nil {
			t.Errorf("operation %s: %v", name, err)
			continue
		}
		received[fmt.Sprint(channel["address"])]++
	}
	for _, e := range eventsOf(t, d) {
		if received[e.Subject] != 1 {
			t.Errorf("%s: got %d operations, want 1", e.Subject, received[e.Subject])
		}
	}
}

func TestReferencesLeadSomewhere(t *testing.T) {
	t.Parallel()
	d := load(t)
	references := 0
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case object:
			if v["$ref"] != nil {
				references++
				if _, err := d.resolve(v); err != nil {
					t.Error(err)
				}
			}
			for _, c := range v {
				walk(c)
			}
		case []any:
			for _, c := range v {
				walk(c)
			}
		}
	}
	walk(d.root)
	if references == 0 {
		t.Error("found no reference")
	}
}

func TestRetentionIsThatOfTheTopology(t *testing.T) {
	t.Parallel()
	stream, want := load(t).object("x-jetstream"), constants(t)
	if got := stream["stream"]; got != want.Stream {
		t.Errorf("stream: got %v, want %s", got, want.Stream)
	}
	age, err := time.ParseDuration(fmt.Sprint(stream["maxAge"]))
	if err != nil || age != want.MaxAge {
		t.Errorf("maxAge: got %v (%v), want %s", stream["maxAge"], err, want.MaxAge)
	}
}

func TestFieldsAreThoseOfTheDescriptors(t *testing.T) {
	t.Parallel()
	d := load(t)
	schemas := d.object("components", "schemas")
	compared := make(map[string]bool)
	var compare func(m protoreflect.MessageDescriptor)
	compare = func(m protoreflect.MessageDescriptor) {
		name := string(m.FullName())
		if compared[name] {
			return
		}
		compared[name] = true
		schema, _ := schemas[name].(object)
		got, want := make(map[string]string), make(map[string]string)
		properties, _ := schema["properties"].(object)
		for field, p := range properties {
			property, _ := p.(object)
			wire, _ := property["x-protobuf"].(object)
			got[field] = fmt.Sprintf("%v %v, repeated: %v", wire["number"], wire["type"], property["type"] == "array" && wire["repeated"] == true)
		}
		for i := range m.Fields().Len() {
			f := m.Fields().Get(i)
			typ := f.Kind().String()
			if f.Message() != nil {
				typ = string(f.Message().FullName())
				if !strings.HasPrefix(typ, "google.") {
					compare(f.Message())
				}
			}
			want[f.JSONName()] = fmt.Sprintf("%d %s, repeated: %v", f.Number(), typ, f.IsList())
		}
		if !maps.Equal(got, want) {
			t.Errorf("fields of %s: got %v, want %v", name, got, want)
		}
	}
	for _, e := range eventsOf(t, d) {
		typ, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(e.Type))
		if err != nil {
			t.Errorf("%s: %v", e.Subject, err)
			continue
		}
		compare(typ.Descriptor())
	}
	for name := range schemas {
		if name != "EventHeaders" && !compared[name] {
			t.Errorf("schema %s belongs to no event", name)
		}
	}
}
