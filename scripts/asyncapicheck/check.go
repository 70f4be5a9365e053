package asyncapicheck

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/throughline/throughline/pkg/messaging"

	// The payloads of events.
	_ "github.com/throughline/throughline/proto/gen/throughline/order/v1"
	_ "github.com/throughline/throughline/proto/gen/throughline/payment/v1"
	_ "github.com/throughline/throughline/proto/gen/throughline/shipping/v1"
)

// Check tells what of a message, as it came from the broker, is not as the document says: its subject, each header, and the
// payload. It is stricter than a consumer may be: a header or a field that the document does not have is an error.
// All that is wrong is in the error.
func (d *Document) Check(subject string, header map[string][]string, payload []byte) error {
	channel, err := d.channel(subject)
	if err != nil {
		return err
	}
	message, err := d.message(channel)
	if err != nil {
		return err
	}
	rules, err := d.headersOf(message)
	if err != nil {
		return err
	}
	if err := errors.Join(checkHeaders(rules, header), checkPayload(message, header, payload)); err != nil {
		return fmt.Errorf("a message on %s is not as the document says: %w", subject, err)
	}
	return nil
}

func checkHeaders(rules map[string]headerRule, header map[string][]string) error {
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(rules)) {
		rule, values := rules[name], header[name]
		switch {
		case len(values) == 0 && rule.required:
			problems = append(problems, fmt.Errorf("header %s is missing", name))
		case len(values) > 1:
			problems = append(problems, fmt.Errorf("header %s has the values %q, want one", name, values))
		case len(values) == 1 && rule.value != "" && values[0] != rule.value:
			problems = append(problems, fmt.Errorf("header %s: got %q, want %q", name, values[0], rule.value))
		case len(values) == 1 && rule.pattern != "":
			pattern, err := regexp.Compile(rule.pattern)
			if err != nil {
				problems = append(problems, fmt.Errorf("header %s: reading its pattern: %w", name, err))
			} else if !pattern.MatchString(values[0]) {
				problems = append(problems, fmt.Errorf("header %s: got %q, want a match of %s", name, values[0], rule.pattern))
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(header)) {
		if _, ok := rules[name]; !ok {
			problems = append(problems, fmt.Errorf("header %s is not in the document", name))
		}
	}
	for _, pair := range [][2]string{{messaging.HeaderCEID, messaging.HeaderMessageID}, {messaging.HeaderCESubject, messaging.HeaderOrderID}} {
		if a, b := header[pair[0]], header[pair[1]]; !slices.Equal(a, b) {
			problems = append(problems, fmt.Errorf("headers %s and %s differ: %q and %q", pair[0], pair[1], a, b))
		}
	}
	return errors.Join(problems...)
}

// checkPayload decodes the payload as the type that the document names, without anything left over.
func checkPayload(message object, header map[string][]string, payload []byte) error {
	name, _ := message["name"].(string)
	typ, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(name))
	if err != nil {
		return fmt.Errorf("finding %s: %w", name, err)
	}
	m := typ.New()
	if err := proto.Unmarshal(payload, m.Interface()); err != nil {
		return fmt.Errorf("decoding the payload as %s: %w", name, err)
	}
	if n := len(m.GetUnknown()); n > 0 {
		return fmt.Errorf("the payload has %d bytes of fields that %s does not have", n, name)
	}
	id := typ.Descriptor().Fields().ByName("order_id")
	if id == nil {
		return fmt.Errorf("%s has no field order_id", name)
	}
	if got, want := m.Get(id).String(), header[messaging.HeaderOrderID]; len(want) != 1 || got != want[0] {
		return fmt.Errorf("order_id in the payload: got %q, header %s has %q", got, messaging.HeaderOrderID, want)
	}
	return nil
}
