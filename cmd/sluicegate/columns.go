package main

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"sluicegate/audit"
)

// Escape sequences of a terminal.
const (
	ansiDim    = "\x1b[2m"
	ansiRed    = "\x1b[31m"
	ansiGreen  = "\x1b[32m"
	ansiYellow = "\x1b[33m"
	ansiReset  = "\x1b[0m"
)

// columns lays out records for people, one line each. A column is as wide as the
// widest value so far, within bounds, so that lines align though later ones are
// not known yet; a longer value is shown as it is.
type columns struct {
	colour bool
	widths [len(columnWidths)]int
	// day is the local date of the line before; a line of another date gets the
	// date in front.
	day string
}

// columnWidths are the least and the greatest width of decision, reason, profile,
// proto, destination and detail.
var columnWidths = [...]struct{ least, most int }{{10, 10}, {14, 22}, {20, 32}, {7, 8}, {24, 48}, {18, 44}}

// newColumns returns columns for output that begins at now.
func newColumns(colour bool, now time.Time) *columns {
	c := &columns{colour: colour, day: now.Local().Format(time.DateOnly)}
	for i, w := range columnWidths {
		c.widths[i] = w.least
	}
	return c
}

// line returns the line of a record, with its newline. after is put at its end.
func (c *columns) line(e *audit.Event, after string) string {
	var b strings.Builder
	local := e.Time.Local()
	if day := local.Format(time.DateOnly); day != c.day {
		c.day = day
		b.WriteString(c.paint(ansiDim, "--- "+day+" ---") + "\n")
	}
	b.WriteString(c.paint(ansiDim, local.Format(time.TimeOnly)))

	decision := orDash(escape(e.Decision))
	for i, value := range [...]string{
		decision, what(e), orDash(escape(e.Profile)), orDash(escape(e.Proto)), destination(e), orDash(detail(e)),
	} {
		b.WriteString("  ")
		c.widths[i] = max(c.widths[i], min(len(value), columnWidths[i].most))
		pad := strings.Repeat(" ", max(0, c.widths[i]-len(value)))
		if i == 0 {
			value = c.paint(decisionColour[decision], value)
		}
		b.WriteString(value + pad)
	}
	b.WriteString("  " + c.paint(ansiDim, orDash(escape(e.ID))))
	if after != "" {
		b.WriteString("  " + after)
	}
	b.WriteByte('\n')
	return b.String()
}

// note returns a line that is not a record.
func (c *columns) note(at time.Time, text string) string {
	return c.paint(ansiDim, at.Local().Format(time.TimeOnly)+"  "+text) + "\n"
}

var decisionColour = map[string]string{
	audit.DecisionDeny: ansiRed, audit.DecisionError: ansiYellow,
	audit.DecisionWouldDeny: ansiYellow, audit.DecisionAllow: ansiGreen,
}

func (c *columns) paint(colour, s string) string {
	if !c.colour || colour == "" {
		return s
	}
	return colour + s + ansiReset
}

// what is the reason, for what observe mode let through the one it relaxed, and
// for events without one their name.
func what(e *audit.Event) string {
	switch {
	case e.Would != "":
		return escape(e.Would)
	case e.Reason != "":
		return escape(e.Reason)
	default:
		return orDash(escape(string(e.Event)))
	}
}

// destination is host:port, or what was asked where that is not a destination.
func destination(e *audit.Event) string {
	host := escape(e.Dest)
	switch {
	case host == "" && e.Request != nil && e.Request.TargetRaw != "":
		return strings.ReplaceAll(escapeText(e.Request.TargetRaw), " ", `\x20`)
	case host == "":
		return "-"
	case e.Port == 0:
		return host
	case strings.Contains(host, ":"):
		return "[" + host + "]:" + strconv.Itoa(int(e.Port))
	default:
		return host + ":" + strconv.Itoa(int(e.Port))
	}
}

// detail is the rule that decided, how something ended, or the record's sentence.
func detail(e *audit.Event) string {
	switch {
	case e.End != nil:
		return ending(e)
	case e.Event == audit.EgressOpened:
		return strings.TrimSpace("opened " + rule(e))
	case e.Decision != "":
		return rule(e)
	default:
		return escapeText(e.Msg)
	}
}

func rule(e *audit.Event) string {
	switch r := e.Rule; {
	case r != nil && r.File != "":
		return fmt.Sprintf("%s %s:%d", escape(r.ID), escape(filepath.Base(r.File)), r.Line)
	case e.MatchedRange != "":
		return escapeText(e.MatchedRange)
	case r != nil && r.ID != "":
		return escape(r.ID)
	default:
		return escape(e.Layer)
	}
}

func ending(e *audit.Event) string {
	s := "closed by " + orDash(escape(e.End.Who)) + ": " + orDash(escape(e.End.Why))
	if e.DurationMS != nil {
		s += ", " + time.Duration(*e.DurationMS*float64(time.Millisecond)).Round(time.Millisecond).String()
	}
	if e.BytesIn != nil && e.BytesOut != nil {
		s += fmt.Sprintf(", %d B in, %d B out", *e.BytesIn, *e.BytesOut)
	}
	return s
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// escape returns a value of a record as printable ASCII without spaces, so that
// whatever a client sent can neither drive a terminal nor look like another
// column. It is unambiguous: a backslash is doubled.
func escape(s string) string {
	return strings.ReplaceAll(escapeText(strings.ReplaceAll(s, `\`, `\\`)), " ", `\x20`)
}

// escapeText returns text as printable ASCII: other characters become \uXXXX or
// \UXXXXXXXX, invalid bytes \xNN.
func escapeText(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r >= 0x20 && r <= 0x7e:
			b.WriteByte(s[i])
		case r == utf8.RuneError && size == 1:
			_, _ = fmt.Fprintf(&b, `\x%02x`, s[i])
		case r <= 0xffff:
			_, _ = fmt.Fprintf(&b, `\u%04x`, r)
		default:
			_, _ = fmt.Fprintf(&b, `\U%08x`, r)
		}
		i += size
	}
	return b.String()
}
