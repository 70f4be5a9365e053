package main

import (
	"fmt"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// maxInteger is 2^53-1: what every JSON reader takes without loss. No amount or quantity of ours is above.
const maxInteger = 1<<53 - 1

const timestamp = "google.protobuf.Timestamp"

// addMessage adds the schema of a message, and of those that it holds, to schemas, and gives a reference to it. The schema
// describes the message in our JSON form; the number and type of each field, which is what is on the wire, are in x-protobuf.
func addMessage(schemas object, m protoreflect.MessageDescriptor) (object, error) {
	name := string(m.FullName())
	to := ref("components/schemas/" + name)
	if schemas[name] != nil {
		return to, nil
	}
	properties := object{}
	schemas[name] = object{"type": "object", "properties": properties}
	if about := subjectSentence.ReplaceAllString(comment(m), ""); about != "" {
		schemas[name].(object)["description"] = about
	}
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		schema, err := field(schemas, f)
		if err != nil {
			return nil, fmt.Errorf("field %s: %w", f.Name(), err)
		}
		if about := comment(f); about != "" {
			schema["description"] = about
		}
		properties[f.JSONName()] = schema
	}
	return to, nil
}

// field gives the schema of a field, as an object that may be added to.
func field(schemas object, f protoreflect.FieldDescriptor) (object, error) {
	if f.IsMap() {
		return nil, fmt.Errorf("events hold no maps")
	}
	schema, err := single(schemas, f)
	if err != nil {
		return nil, err
	}
	wire := object{"number": int(f.Number()), "type": typeName(f)}
	if f.IsList() {
		schema = object{"type": "array", "items": schema}
		wire["repeated"] = true
	} else if schema["$ref"] != nil {
		// Members beside a reference are ignored.
		schema = object{"allOf": []any{schema}}
	}
	schema["x-protobuf"] = wire
	return schema, nil
}

// single gives the schema of one value of a field.
func single(schemas object, f protoreflect.FieldDescriptor) (object, error) {
	switch f.Kind() {
	case protoreflect.StringKind:
		return object{"type": "string"}, nil
	case protoreflect.BoolKind:
		return object{"type": "boolean"}, nil
	case protoreflect.Int32Kind:
		return object{"type": "integer", "format": "int32"}, nil
	case protoreflect.Int64Kind:
		return object{"type": "integer", "format": "int64", "maximum": maxInteger}, nil
	case protoreflect.MessageKind:
		if f.Message().FullName() == timestamp {
			return object{"type": "string", "format": "date-time"}, nil
		}
		return addMessage(schemas, f.Message())
	default:
		return nil, fmt.Errorf("this plugin has no schema for %s yet: say how its JSON form is to be described", f.Kind())
	}
}

// typeName gives the type of one value of a field as the protos name it.
func typeName(f protoreflect.FieldDescriptor) string {
	if f.Kind() == protoreflect.MessageKind {
		return string(f.Message().FullName())
	}
	return f.Kind().String()
}
