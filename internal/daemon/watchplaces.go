package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/fsnotify/fsnotify"
)

// watched is the set of folders in which an event can concern the policy: the
// policy folder, its nearest parent that exists (the folder may be made or
// replaced), and the folders that symbolic links lead to.
type watched struct {
	dir string
	fw  *fsnotify.Watcher

	mu sync.Mutex
	// linked are folders outside dir where any event counts.
	linked map[string]bool
}

// renew watches what has to be watched now. Watching again does nothing, and a
// folder that can't be watched is found by the poll.
func (w *watched) renew() {
	for parent := filepath.Dir(w.dir); w.fw.Add(parent) != nil && parent != filepath.Dir(parent); {
		parent = filepath.Dir(parent)
	}
	_ = w.fw.Add(w.dir)
	linked := map[string]bool{}
	link := func(path string) {
		if target, err := filepath.EvalSymlinks(path); err == nil && target != path {
			linked[filepath.Dir(target)] = true
		}
	}
	if target, err := filepath.EvalSymlinks(w.dir); err == nil && target != w.dir {
		linked[target] = true
	}
	entries, _ := os.ReadDir(w.dir)
	for _, e := range entries {
		if e.Type()&os.ModeSymlink != 0 {
			link(filepath.Join(w.dir, e.Name()))
		}
	}
	for dir := range linked {
		_ = w.fw.Add(dir)
	}
	w.mu.Lock()
	w.linked = linked
	w.mu.Unlock()
}

// concerns tells whether an event at path can change the policy: inside the
// folder or a linked one, or at a folder above it.
func (w *watched) concerns(path string) bool {
	if path == w.dir || within(path, w.dir) || within(w.dir, path) {
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.linked[filepath.Dir(path)]
}

// within tells whether path lies below dir.
func within(path, dir string) bool {
	return strings.HasPrefix(path, strings.TrimSuffix(dir, string(filepath.Separator))+string(filepath.Separator))
}
