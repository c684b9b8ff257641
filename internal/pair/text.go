package pair

import (
	"strconv"
	"strings"
)

// quote returns a string of somebody else's file as printable ASCII in quotes,
// cut where it is long: nothing for a terminal to obey.
func quote(s string) string {
	const most = 80
	if len(s) > most {
		return strconv.QuoteToASCII(strings.ToValidUTF8(s[:most], "")) + "..."
	}
	return strconv.QuoteToASCII(s)
}

// plain returns text, such as an error of a library that repeats what it read, as
// printable ASCII.
func plain(s string) string {
	quoted := strconv.QuoteToASCII(s)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

// show is a value in a few words. Only for values that can hold no secret.
func show(v *value) string {
	switch v.kind {
	case kindBool:
		return strconv.FormatBool(v.boolean)
	case kindNumber:
		if len(v.text) > 20 {
			return "a number of " + strconv.Itoa(len(v.text)) + " characters"
		}
		return v.text
	case kindString:
		return quote(v.text)
	default:
		return string(v.kind)
	}
}

// list is up to five strings in quotes.
func list(all []string) string {
	const most = 5
	var out []string
	for _, s := range all[:min(len(all), most)] {
		out = append(out, quote(s))
	}
	if len(all) > most {
		out = append(out, "and "+strconv.Itoa(len(all)-most)+" more")
	}
	return strings.Join(out, ", ")
}
