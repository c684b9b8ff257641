//go:build windows

package audit

import "golang.org/x/sys/windows"

var (
	errNoSpace = windows.ERROR_DISK_FULL
	errQuota   = windows.ERROR_DISK_QUOTA_EXCEEDED
)
