// Package browser drives a headless Chromium in tests: one tab that notes whatever goes wrong in it.
package browser

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"

	"github.com/throughline/throughline/pkg/sysinstall"
)

// chromium is the browser in package managers.
var chromium = sysinstall.Package{
	Name: "Chromium", Apt: "chromium", Dnf: "chromium", Apk: "chromium", Brew: "chromium", Cask: true,
	Home: "https://www.chromium.org/getting-involved/download-chromium/",
}

// Find gives the path of a Chromium or Chrome; "" if there is none.
func Find() string {
	for _, name := range []string{
		"chromium", "chromium-browser", "google-chrome", "google-chrome-stable",
		"/Applications/Chromium.app/Contents/MacOS/Chromium", "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
	} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// FindOrInstall gives the path of a Chromium or Chrome, and installs Chromium where there is none and that is allowed. The error says what to
// type.
func FindOrInstall(ctx context.Context, progress io.Writer) (string, error) {
	if path := Find(); path != "" {
		return path, nil
	}
	if err := chromium.Install(ctx, progress); err != nil {
		return "", err
	}
	if path := Find(); path != "" {
		return path, nil
	}
	return "", fmt.Errorf("%w: Chromium was installed and is not in PATH, which is %s", sysinstall.ErrNotInstalled, os.Getenv("PATH"))
}
