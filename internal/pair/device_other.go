//go:build !darwin && !windows

package pair

// Device reads what a device manager sets outside of files; there is no such
// source here.
func Device(Places, string) []Document { return nil }
