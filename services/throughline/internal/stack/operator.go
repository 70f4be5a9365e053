package stack

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// operatorFile and consoleFile keep the credentials of an embedded system in its data folder, for its owner only: what operators show the
// services, and what they show the console.
const (
	operatorFile = "operator-credential"
	consoleFile  = "console-credential"
)

// OperatorCredential reads the operator credential of the system with this data folder; "" if there is none.
func OperatorCredential(data string) (string, error) { return readCredential(data, operatorFile) }

func readCredential(data, file string) (string, error) {
	text, err := os.ReadFile(filepath.Join(data, file))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("reading %s: %w", file, err)
	}
	return strings.TrimSpace(string(text)), nil
}

// keptCredential gives a credential: the one that is given, or one that is made once and kept in a file of the data folder.
func (o *Options) keptCredential(given, file string) (string, error) {
	if given != "" {
		return given, nil
	}
	credential, err := readCredential(o.Data, file)
	if err != nil || credential != "" {
		return credential, err
	}
	credential = secret()
	if err := os.WriteFile(filepath.Join(o.Data, file), []byte(credential+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("keeping %s: %w", file, err)
	}
	return credential, nil
}
