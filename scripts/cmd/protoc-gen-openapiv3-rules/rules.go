package main

import (
	"fmt"
	"sort"
	"strings"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/genproto/googleapis/api/serviceconfig"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
	"sigs.k8s.io/yaml"
)

// takeRules splits a plugin parameter into the value of rules= and everything else.
func takeRules(parameter string) (rules, rest string, err error) {
	var kept []string
	for part := range strings.SplitSeq(parameter, ",") {
		if v, ok := strings.CutPrefix(part, "rules="); ok {
			rules = v
		} else if part != "" {
			kept = append(kept, part)
		}
	}
	if rules == "" {
		return "", "", fmt.Errorf("parameter %q has no rules=FILE", parameter)
	}
	return rules, strings.Join(kept, ","), nil
}

// annotate puts the HTTP rules of a gRPC API configuration into the methods that they select. A rule for a method that
// does not exist is an error: it is a misspelt selector, and its path would be missing from the document.
func annotate(req *pluginpb.CodeGeneratorRequest, config []byte) error {
	j, err := yaml.YAMLToJSON(config)
	if err != nil {
		return fmt.Errorf("reading YAML: %w", err)
	}
	service := &serviceconfig.Service{}
	// "type" names the message and is no field of it.
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(j, service); err != nil {
		return fmt.Errorf("reading the service configuration: %w", err)
	}
	rules := make(map[string]*annotations.HttpRule)
	for _, r := range service.GetHttp().GetRules() {
		if rules[r.GetSelector()] != nil {
			return fmt.Errorf("two rules for %s", r.GetSelector())
		}
		rules[r.GetSelector()] = r
	}
	for _, file := range req.GetProtoFile() {
		for _, s := range file.GetService() {
			for _, m := range s.GetMethod() {
				name := file.GetPackage() + "." + s.GetName() + "." + m.GetName()
				rule, ok := rules[name]
				if !ok {
					continue
				}
				delete(rules, name)
				if m.Options == nil {
					m.Options = &descriptorpb.MethodOptions{}
				}
				proto.SetExtension(m.Options, annotations.E_Http, rule)
			}
		}
	}
	if len(rules) > 0 {
		var unknown []string
		for name := range rules {
			unknown = append(unknown, name)
		}
		sort.Strings(unknown)
		return fmt.Errorf("no such method: %s", strings.Join(unknown, ", "))
	}
	return nil
}
