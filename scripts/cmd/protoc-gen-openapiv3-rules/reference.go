package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"slices"
	"strings"
)

// reference is the document as a page for people. It has no script, and loads nothing.
//
//go:embed reference.html.tmpl
var reference string

type page struct {
	Title, Version string
	Description    []template.HTML
	Operations     []pageOperation
	Schemas        []pageSchema
	Problems       []pageProblem
}

type pageOperation struct {
	ID, Method, Path, Summary string
	Description               []template.HTML
	Parameters                []pageMember
	Body, BodyExample         string // the name of a schema, and JSON
	Responses                 []pageResponse
}

type pageResponse struct {
	Status, Description, Schema, Example string
	Headers                              []pageMember
}

type pageSchema struct {
	Name        string
	Description []template.HTML
	Members     []pageMember
	Values      string
}

type pageMember struct {
	Name, In, Type, Link string
	Required             bool
	Description          []template.HTML
	Limits, Example      string
}

type pageProblem struct {
	Type, Reason, Title string
	Status              int
}

// renderReference renders a complete document.
func renderReference(doc object) (string, error) {
	t, err := template.New("reference").Parse(reference)
	if err != nil {
		return "", fmt.Errorf("reading the template of the reference: %w", err)
	}
	info := child(doc, "info")
	p := page{Title: text(info, "title"), Version: text(info, "version"), Description: paragraphs(text(info, "description"))}
	for _, about := range problems {
		p.Problems = append(p.Problems, pageProblem{problemType(about.reason), about.reason, about.title, about.status})
	}
	components := child(doc, "components")
	paths := child(doc, "paths")
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		item := child(paths, path)
		for _, method := range slices.Sorted(maps.Keys(item)) {
			p.Operations = append(p.Operations, operationOf(components, child(item, method), strings.ToUpper(method), path))
		}
	}
	schemas := child(components, "schemas")
	for _, name := range slices.Sorted(maps.Keys(schemas)) {
		p.Schemas = append(p.Schemas, schemaOf(name, child(schemas, name)))
	}
	var b strings.Builder
	if err := t.Execute(&b, p); err != nil {
		return "", fmt.Errorf("rendering the reference: %w", err)
	}
	return b.String(), nil
}

func operationOf(components, op object, method, path string) pageOperation {
	o := pageOperation{
		ID: text(op, "operationId"), Method: method, Path: path, Summary: text(op, "summary"), Description: paragraphs(text(op, "description")),
	}
	parameters, _ := op["parameters"].([]any)
	for _, p := range parameters {
		p := resolve(components, p.(object))
		m := memberOf(text(p, "name"), child(p, "schema"))
		m.In, m.Description, m.Example = text(p, "in"), paragraphs(text(p, "description")), asJSON(p["example"])
		m.Required = p["required"] == true
		o.Parameters = append(o.Parameters, m)
	}
	if body, ok := op["requestBody"].(object); ok {
		media := child(child(body, "content"), "application/json")
		o.Body, o.BodyExample = refName(child(media, "schema")), asJSON(media["example"])
	}
	responses := child(op, "responses")
	for _, status := range slices.Sorted(maps.Keys(responses)) {
		r := resolve(components, child(responses, status))
		one := pageResponse{Status: status, Description: text(r, "description")}
		content := child(r, "content")
		for _, media := range slices.Sorted(maps.Keys(content)) {
			one.Schema, one.Example = refName(child(child(content, media), "schema")), asJSON(child(content, media)["example"])
		}
		headers := child(r, "headers")
		for _, name := range slices.Sorted(maps.Keys(headers)) {
			h := resolve(components, child(headers, name))
			m := memberOf(name, child(h, "schema"))
			m.Description = paragraphs(text(h, "description"))
			one.Headers = append(one.Headers, m)
		}
		o.Responses = append(o.Responses, one)
	}
	return o
}

func schemaOf(name string, s object) pageSchema {
	out := pageSchema{Name: name, Description: paragraphs(text(s, "description"))}
	if values, ok := s["enum"].([]any); ok {
		out.Values = joined(values)
	}
	required, _ := s["required"].([]any)
	properties := child(s, "properties")
	for _, member := range slices.Sorted(maps.Keys(properties)) {
		m := memberOf(member, child(properties, member))
		m.Required = slices.Contains(required, any(member))
		out.Members = append(out.Members, m)
	}
	return out
}

// memberOf describes a schema that stands at a name.
func memberOf(name string, s object) pageMember {
	m := pageMember{Name: name, Type: text(s, "type"), Link: refName(s), Description: paragraphs(text(s, "description"))}
	if m.Link != "" {
		m.Type = ""
	}
	if m.Type == "array" {
		items := child(s, "items")
		m.Type, m.Link = "list of "+text(items, "type"), refName(items)
	}
	if format := text(s, "format"); format != "" && format != "int64" {
		m.Type += " (" + format + ")"
	}
	var limits []string
	for _, limit := range []struct{ name, words string }{
		{"minLength", "at least %v characters"}, {"maxLength", "at most %v characters"}, {"minItems", "at least %v"}, {"maxItems", "at most %v"},
		{"minimum", "from %v"}, {"maximum", "to %v"}, {"maxProperties", "at most %v entries"}, {"pattern", "matches %v"},
	} {
		if v, ok := s[limit.name]; ok {
			limits = append(limits, fmt.Sprintf(limit.words, number(v)))
		}
	}
	if values, ok := s["enum"].([]any); ok && len(values) < 5 {
		limits = append(limits, joined(values))
	}
	m.Limits = strings.Join(limits, ", ")
	return m
}

// number writes numbers as they are, and not as powers of ten.
func number(v any) any {
	if f, ok := v.(float64); ok {
		return int64(f)
	}
	return v
}

// resolve follows a reference to a component.
func resolve(components, o object) object {
	at, ok := o["$ref"].(string)
	if !ok {
		return o
	}
	parts := strings.Split(at, "/")
	return child(child(components, parts[len(parts)-2]), parts[len(parts)-1])
}

func refName(s object) string {
	if at, ok := s["$ref"].(string); ok {
		return shortName(strings.ReplaceAll(at, "/", "."))
	}
	return ""
}

func text(o object, name string) string {
	s, _ := o[name].(string)
	return s
}

func joined(values []any) string {
	all := make([]string, len(values))
	for i, v := range values {
		all[i] = fmt.Sprint(v)
	}
	return strings.Join(all, ", ")
}

func asJSON(v any) string {
	if v == nil {
		return ""
	}
	if s, ok := v.(string); ok {
		return s
	}
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return ""
	}
	return string(b)
}

// paragraphs splits words at empty lines, and makes **words** strong. Everything else is text.
func paragraphs(words string) []template.HTML {
	var all []template.HTML
	for p := range strings.SplitSeq(words, "\n\n") {
		if p = strings.TrimSpace(p); p == "" {
			continue
		}
		var b strings.Builder
		for i, part := range strings.Split(template.HTMLEscapeString(p), "**") {
			if i%2 == 1 {
				part = "<strong>" + part + "</strong>"
			}
			b.WriteString(part)
		}
		all = append(all, template.HTML(b.String())) //nolint:gosec // escaped above
	}
	return all
}
