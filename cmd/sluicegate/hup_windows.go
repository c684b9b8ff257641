package main

import "os"

// reloadSignal delivers nothing here: use "sluicegate policy reload".
func reloadSignal() (<-chan os.Signal, func()) { return nil, func() {} }
