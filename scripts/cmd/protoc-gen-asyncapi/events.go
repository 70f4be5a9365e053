package main

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"

	"github.com/throughline/throughline/pkg/messaging"
)

// event is one event of the protos.
type event struct {
	subject string
	message protoreflect.MessageDescriptor
	// about is the message's comment without the sentence that names the subject.
	about string
}

// service is who publishes the event, as subjects name it.
func (e event) service() string {
	service, _, _ := strings.Cut(strings.TrimPrefix(e.subject, messaging.EventPrefix), ".")
	return service
}

// subjectSentence names the subject of an event in its message's comment.
var subjectSentence = regexp.MustCompile(`\bSubject (` + regexp.QuoteMeta(messaging.EventPrefix) + `[a-z_]+\.[a-z_]+)\.(?: |$)`)

// find gives the events of the files that code is generated for, sorted by subject.
func find(req *pluginpb.CodeGeneratorRequest) ([]event, error) {
	files, err := protodesc.NewFiles(&descriptorpb.FileDescriptorSet{File: req.GetProtoFile()})
	if err != nil {
		return nil, fmt.Errorf("reading the descriptors: %w", err)
	}
	var events []event
	for _, name := range req.GetFileToGenerate() {
		file, err := files.FindFileByPath(name)
		if err != nil {
			return nil, fmt.Errorf("reading the descriptors: %w", err)
		}
		for i := range file.Messages().Len() {
			m := file.Messages().Get(i)
			about := comment(m)
			found := subjectSentence.FindAllStringSubmatchIndex(about, -1)
			switch len(found) {
			case 0:
			case 1:
				at := found[0]
				events = append(events, event{
					subject: about[at[2]:at[3]], message: m,
					about: strings.TrimSpace(about[:at[0]] + about[at[1]:]),
				})
			default:
				return nil, fmt.Errorf("the comment of %s names more than one subject", m.FullName())
			}
		}
	}
	slices.SortFunc(events, func(a, b event) int { return cmp.Compare(a.subject, b.subject) })
	return events, nil
}

// comment gives what is written above a descriptor, as one paragraph.
func comment(d protoreflect.Descriptor) string {
	text := d.ParentFile().SourceLocations().ByDescriptor(d).LeadingComments
	return strings.Join(strings.Fields(text), " ")
}

// agree finds subjects without a message, messages with a subject that nobody publishes, and names that occur twice.
func agree(subjects []string, events []event) error {
	var problems []error
	bySubject, byName := make(map[string]protoreflect.FullName), make(map[protoreflect.Name]protoreflect.FullName)
	for _, e := range events {
		full := e.message.FullName()
		if other, ok := bySubject[e.subject]; ok {
			problems = append(problems, fmt.Errorf("%s and %s have the same subject, %s", other, full, e.subject))
		}
		if other, ok := byName[full.Name()]; ok {
			problems = append(problems, fmt.Errorf("%s and %s have the same last name, which the document goes by", other, full))
		}
		bySubject[e.subject], byName[full.Name()] = full, full
		if !slices.Contains(subjects, e.subject) {
			problems = append(problems, fmt.Errorf("%s says that its subject is %s, which is no constant", full, e.subject))
		}
	}
	for _, s := range subjects {
		if _, ok := bySubject[s]; !ok {
			problems = append(problems, fmt.Errorf("no message says %q in its comment", "Subject "+s+"."))
		}
	}
	return errors.Join(problems...)
}
