//go:build windows

package audit

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/windows"
)

// openRead opens a file of a log for reading and refuses anything that is not a
// regular file. Unlike os.Open it shares the right to rename and delete: a reader
// that keeps the live file open would otherwise stop its rotation.
func openRead(path string) (*os.File, error) {
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	// Only a folder needs more flags to be opened, and a folder is refused.
	h, err := windows.CreateFile(name, windows.GENERIC_READ,
		windows.FILE_SHARE_READ|windows.FILE_SHARE_WRITE|windows.FILE_SHARE_DELETE,
		nil, windows.OPEN_EXISTING, windows.FILE_ATTRIBUTE_NORMAL, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}

	f := os.NewFile(uintptr(h), path)
	info, err := f.Stat()
	if err == nil {
		err = checkRegular(path, info)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}

	return f, nil
}
