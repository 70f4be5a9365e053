package main

import (
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

func request() *pluginpb.CodeGeneratorRequest {
	return &pluginpb.CodeGeneratorRequest{ProtoFile: []*descriptorpb.FileDescriptorProto{{
		Package: proto.String("shop.v1"),
		Service: []*descriptorpb.ServiceDescriptorProto{{
			Name:   proto.String("Shop"),
			Method: []*descriptorpb.MethodDescriptorProto{{Name: proto.String("Buy")}, {Name: proto.String("Look")}},
		}},
	}}}
}

func TestAnnotate(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, config string
		path         string // the POST path of Buy afterwards
		err          string // or what the error names
	}{
		{"rule for a method", "type: google.api.Service\nhttp: {rules: [{selector: shop.v1.Shop.Buy, post: /buy}]}", "/buy", ""},
		{"no rules", "type: google.api.Service", "", ""},
		{"misspelt selector", "http: {rules: [{selector: shop.v1.Shop.Bye, post: /buy}]}", "", "shop.v1.Shop.Bye"},
		{"two rules for a method", "http: {rules: [{selector: shop.v1.Shop.Buy, post: /a}, {selector: shop.v1.Shop.Buy, post: /b}]}", "", "two rules"},
		{"not YAML", "http: [", "", "reading YAML"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			req := request()
			err := annotate(req, []byte(tt.config))
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("got error %v, want one that names %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatalf("annotating: %v", err)
			}
			methods := req.GetProtoFile()[0].GetService()[0].GetMethod()
			rule, _ := proto.GetExtension(methods[0].GetOptions(), annotations.E_Http).(*annotations.HttpRule)
			if rule.GetPost() != tt.path {
				t.Errorf("path of Buy: got %q, want %q", rule.GetPost(), tt.path)
			}
			if methods[1].GetOptions() != nil {
				t.Errorf("options of Look: got %v, want none", methods[1].GetOptions())
			}
		})
	}
}

func TestTakeRules(t *testing.T) {
	t.Parallel()
	tests := []struct{ parameter, rules, rest string }{
		{"rules=a/b.yaml", "a/b.yaml", ""},
		{"x=1,rules=b.yaml,y", "b.yaml", "x=1,y"},
	}
	for _, tt := range tests {
		rules, rest, err := takeRules(tt.parameter)
		if err != nil || rules != tt.rules || rest != tt.rest {
			t.Errorf("takeRules(%q): got %q, %q, %v, want %q, %q", tt.parameter, rules, rest, err, tt.rules, tt.rest)
		}
	}
	if _, _, err := takeRules("x=1"); err == nil {
		t.Error("takeRules without rules: got no error")
	}
}
