package stack

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// operatorFile keeps the operator credential of an embedded system in its data folder, for its owner only.
const operatorFile = "operator-credential"

// OperatorCredential reads the operator credential of the system with this data folder; "" if there is none.
func OperatorCredential(data string) (string, error) {
	text, err := os.ReadFile(filepath.Join(data, operatorFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("reading the operator credential: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// operatorCredential gives the credential that operators show: the one of the environment, or one that is made once and kept.
func (o *Options) operatorCredential() (string, error) {
	if o.Operator != "" {
		return o.Operator, nil
	}
	credential, err := OperatorCredential(o.Data)
	if err != nil || credential != "" {
		return credential, err
	}
	credential = secret()
	if err := os.WriteFile(filepath.Join(o.Data, operatorFile), []byte(credential+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("keeping the operator credential: %w", err)
	}
	return credential, nil
}
