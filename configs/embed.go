// Package configs is the policy that ships with Sluicegate, embedded in the
// program: the daemon's settings, one file per agent product, and the host
// groups those files use. It is what runs when one user starts the daemon and has
// no policy file at all; with --system a missing policy is never replaced by it.
//
// The package holds files and no logic. Their format and meaning are package
// policy's and internal/daemon's; a reader of the files passes [FS] on.
package configs

import "embed"

// FS holds sluicegate.yaml, products/*.yaml and groups/*.yaml under these names.
// It is read-only and safe for concurrent use.
//
//go:embed sluicegate.yaml products/*.yaml groups/*.yaml
var FS embed.FS
