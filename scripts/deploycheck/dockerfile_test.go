package deploycheck

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// instruction is one line of a Dockerfile, continuations joined.
type instruction struct{ name, rest string }

// dockerfile reads deploy/Dockerfile.
func dockerfile(t *testing.T) []instruction {
	t.Helper()
	src, err := os.ReadFile(filepath.Join(deploy, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	var list []instruction
	for line := range strings.Lines(strings.ReplaceAll(string(src), "\\\n", " ")) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, rest, _ := strings.Cut(line, " ")
		list = append(list, instruction{name, strings.Join(strings.Fields(rest), " ")})
	}
	return list
}

// final are the instructions of the stage that becomes the image.
func final(list []instruction) []instruction {
	last := 0
	for i, in := range list {
		if in.name == "FROM" {
			last = i
		}
	}
	return list[last:]
}

func TestImageIsBareAndNotRoot(t *testing.T) {
	t.Parallel()
	stage := final(dockerfile(t))
	if stage[0].rest != "scratch" {
		t.Errorf("the image is made FROM %s, want scratch", stage[0].rest)
	}
	var user, entrypoint string
	for _, in := range stage {
		switch in.name {
		case "USER":
			user = in.rest
		case "ENTRYPOINT":
			entrypoint = in.rest
		}
	}
	// By number: the image has no /etc/passwd to look a name up in, and orchestrators can check a number only.
	uid, err := strconv.Atoi(strings.Split(user, ":")[0])
	if err != nil || uid == 0 {
		t.Errorf("USER: got %q, want a number other than 0", user)
	}
	if entrypoint != `["/service"]` {
		t.Errorf("ENTRYPOINT: got %q, want the program, in the form that needs no shell", entrypoint)
	}
}

func TestBuildIsPinnedAndStatic(t *testing.T) {
	t.Parallel()
	list := dockerfile(t)
	var env string
	for _, in := range list {
		switch in.name {
		case "FROM":
			if image, _, _ := strings.Cut(in.rest, " "); image != "scratch" && !pinned(image) {
				t.Errorf("FROM: got %q, want an exact version", image)
			}
		case "ENV":
			env += " " + in.rest
		case "ADD":
			t.Errorf("ADD %s: use COPY, which does not fetch or unpack", in.rest)
		case "COPY":
			for _, path := range copied(in.rest) {
				if _, err := os.Stat(filepath.Join(deploy, "..", path)); err != nil {
					t.Errorf("COPY %s: %v", in.rest, err)
				}
			}
		}
	}
	for _, want := range []string{"CGO_ENABLED=0", "GOWORK=off", "-trimpath"} {
		if !strings.Contains(env, want) {
			t.Errorf("ENV: got %q, want it to have %s", env, want)
		}
	}
}

// copied are the paths of the context that a COPY takes; those that it takes from another stage are not.
func copied(rest string) []string {
	args := strings.Fields(rest)
	if strings.HasPrefix(args[0], "--from=") {
		return nil
	}
	return args[:len(args)-1]
}

var goLine = regexp.MustCompile(`(?m)^go (\d+)\.(\d+)(?:\.(\d+))?$`)

func TestBuilderIsNewEnough(t *testing.T) {
	t.Parallel()
	mod, err := os.ReadFile("../../services/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	builder := regexp.MustCompile(`^golang:(\d+)\.(\d+)\.(\d+)`).FindStringSubmatch(dockerfile(t)[0].rest)
	needs := goLine.FindStringSubmatch(string(mod))
	if builder == nil || needs == nil {
		t.Fatalf("got builder %q and go line %q, want both", dockerfile(t)[0].rest, needs)
	}
	if slices.Compare(numbers(builder[1:]), numbers(needs[1:])) < 0 {
		t.Errorf("the builder has Go %v, services needs %v", builder[1:], needs[1:])
	}
}

func numbers(s []string) []int {
	n := make([]int, len(s))
	for i := range s {
		n[i], _ = strconv.Atoi(s[i]) // an absent last part counts as 0
	}
	return n
}
