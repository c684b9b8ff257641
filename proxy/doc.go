// Package proxy is the gate's HTTP side: listeners, CONNECT tunnels, forwarding
// of plain HTTP, refusals, and the guarded dialer that both go through.
//
// # One connection
//
//	accept → cap → peer's uid → raw head, validated by our own bounded reader
//	  CONNECT          → judge → resolve → judge every address → dial → tunnel
//	  any other method → net/http over the same validated bytes → judge → goproxy
//
// CONNECT never enters net/http or goproxy: the head is parsed here and both
// ends of a tunnel stay bare *net.TCPConn, so that the kernel's fast paths and
// half-close keep working. What is not CONNECT is served by net/http, which
// reads from a [requestConn]: that releases a request's bytes only after its
// head was validated and its body's framing understood, so that net/http and
// the gate can't disagree on where a request ends. A CONNECT that arrives later
// on a kept connection is taken back from net/http the same way.
//
// goproxy forwards judged plain requests and nothing else; forward.go is the
// only file that imports it, and the settings it must not have are off there.
//
// Nothing is looked up and nothing dialled before the verdict on the name; then
// the name is resolved once, every address judged, exactly a judged address
// dialled, and the socket's address judged again before it connects.
//
// What is not here: who decides (package policy), how names resolve (dnsguard),
// where records go (audit), which profiles and ports exist (internal/daemon).
package proxy
