package pair

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Device reads the managed preferences, strongest first. A property list is
// binary; the system's own tool makes JSON of it.
func Device(p Places, _ string) []Document {
	var out []Document
	for _, path := range p.Preferences {
		d := Document{Name: "managed preferences", Place: path}
		d.Data, d.Err = propertyList(path)
		out = append(out, d)
	}
	return out
}

func propertyList(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errNotRegular
	case info.Size() > maxFile:
		return nil, errTooBig
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "/usr/bin/plutil", "-convert", "json", "-o", "-", "--", path)
	cmd.Stderr = &stderr
	data, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("plutil makes no JSON of it: %w %s", err, quote(strings.TrimSpace(stderr.String())))
	}
	return data, nil
}
