// Package pair tells other programs to use the gate, and says whether they do.
//
// For Claude Code it makes one file of managed settings ([Settings], [Write],
// [Remove]) and reads every source of settings in the product's own order to say
// what weakens the boundary ([Check]). For everything else it makes environment
// variables ([Variables]).
//
// The order of the sources, strongest first, and what this package knows of them:
//
//	server-managed settings            held by the product's server: not checked
//	managed preferences (macOS),       read on their system through [Device]
//	  HKLM (Windows)
//	managed-settings.json and          read; merged in the order of their names
//	  managed-settings.d/*.json
//	HKCU (Windows)                     read through [Device]
//	command line                       not checked
//	.claude/settings.local.json        read
//	.claude/settings.json              read
//	~/.claude/settings.json            read
//	environment of the process         the proxy variables only
//
// Of the managed sources only the first that has a policy key counts; env is
// merged by variable over all of them.
//
// The package opens no connection and knows no daemon: ports, paths, the
// operating system and file access are handed in, so that the rules of all three
// systems are tested on any of them.
package pair
