// Package control is the daemon's local control API: HTTP/1.1 and JSON over a
// Unix socket. `sluicegate status`, `explain` and the like are its clients.
//
// What guards it, from the outside in; each layer holds without the others:
//
//	folder      owned by the user who runs the daemon, writable by nobody else
//	socket      mode 0600
//	peer uid    must be the own one (package identity), or the connection is
//	            closed without reading a byte
//	connection  at most 32, with time-outs and small limits
//	request     Host "sluicegate", no Origin and no Sec-Fetch-Site: a web page
//	            that reaches the socket through some relay can't drive it
//
// Where the operating system doesn't name the peer of a Unix socket (Windows),
// the folder's permissions are the guard.
//
// One daemon at a time has a socket: a lock on PATH.lock is held for as long as
// the server lives, and everything that judges or removes an old socket happens
// under it. The lock file is never removed, because removing it would let two
// daemons lock two different files of the same name.
//
// What is not here: routes. internal/daemon supplies the handler and answers
// with [WriteJSON] and [WriteError]; [Client] understands both.
package control
