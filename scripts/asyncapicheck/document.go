package asyncapicheck

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/throughline/throughline/proto/asyncapi"
)

type object = map[string]any

// Document is the AsyncAPI document, read.
type Document struct {
	root object
}

// Event is one event of the document.
type Event struct {
	Subject string
	// Type is the full name of the payload's protobuf message.
	Type string
	// Source is the service that publishes it.
	Source string
}

// Load reads the embedded document.
func Load() (*Document, error) {
	var root object
	if err := yaml.UnmarshalStrict(asyncapi.YAML, &root); err != nil {
		return nil, fmt.Errorf("reading the AsyncAPI document: %w", err)
	}
	return &Document{root}, nil
}

// Events gives all events, sorted by subject.
func (d *Document) Events() ([]Event, error) {
	var events []Event
	for name, c := range d.object("channels") {
		channel, _ := c.(object)
		subject, _ := channel["address"].(string)
		m, err := d.message(channel)
		if err != nil {
			return nil, fmt.Errorf("channel %s: %w", name, err)
		}
		h, err := d.headersOf(m)
		if err != nil {
			return nil, fmt.Errorf("channel %s: %w", name, err)
		}
		events = append(events, Event{Subject: subject, Type: h["ce-type"].value, Source: h["ce-source"].value})
	}
	slices.SortFunc(events, func(a, b Event) int { return strings.Compare(a.Subject, b.Subject) })
	return events, nil
}

// object gives a member of the document by its path; an empty object when there is none.
func (d *Document) object(path ...string) object {
	at := d.root
	for _, p := range path {
		at, _ = at[p].(object)
	}
	return at
}

// resolve follows references until there is none.
func (d *Document) resolve(v any) (object, error) {
	o, ok := v.(object)
	if !ok {
		return nil, fmt.Errorf("%v is not an object", v)
	}
	for {
		ref, ok := o["$ref"].(string)
		if !ok {
			return o, nil
		}
		path, ok := strings.CutPrefix(ref, "#/")
		if !ok {
			return nil, fmt.Errorf("reference %q leads out of the document", ref)
		}
		if o = d.object(strings.Split(path, "/")...); o == nil {
			return nil, fmt.Errorf("reference %q leads nowhere", ref)
		}
	}
}

// channel finds the channel of a subject.
func (d *Document) channel(subject string) (object, error) {
	for _, c := range d.object("channels") {
		if channel, ok := c.(object); ok && channel["address"] == subject {
			return channel, nil
		}
	}
	return nil, fmt.Errorf("the document has no channel with the address %q", subject)
}

// message gives the one message of a channel.
func (d *Document) message(channel object) (object, error) {
	messages, _ := channel["messages"].(object)
	if len(messages) != 1 {
		return nil, fmt.Errorf("got the messages %q, want one", slices.Sorted(maps.Keys(messages)))
	}
	for _, m := range messages {
		return d.resolve(m)
	}
	return nil, nil
}

// headerRule is what the document says of one header.
type headerRule struct {
	value    string // the only value; empty: many
	pattern  string
	required bool
}

// headersOf gives the rules for the headers of a message, by name, from its schemas all together.
func (d *Document) headersOf(message object) (map[string]headerRule, error) {
	headers, err := d.resolve(message["headers"])
	if err != nil {
		return nil, err
	}
	parts, _ := headers["allOf"].([]any)
	rules := make(map[string]headerRule)
	for _, part := range parts {
		schema, err := d.resolve(part)
		if err != nil {
			return nil, err
		}
		properties, _ := schema["properties"].(object)
		for name, p := range properties {
			property, _ := p.(object)
			r := rules[name]
			if v, ok := property["const"].(string); ok {
				r.value = v
			}
			if v, ok := property["pattern"].(string); ok {
				r.pattern = v
			}
			rules[name] = r
		}
		required, _ := schema["required"].([]any)
		for _, name := range required {
			name, _ := name.(string)
			r := rules[name]
			r.required = true
			rules[name] = r
		}
	}
	if len(rules) == 0 {
		return nil, fmt.Errorf("message %v has no headers", message["name"])
	}
	return rules, nil
}
