package audit

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestVerifyFindsTampering(t *testing.T) {
	const a, b, live = 0, 1, 2

	replace := func(line []byte, from, to string) []byte {
		changed := bytes.Replace(line, []byte(from), []byte(to), 1)
		if bytes.Equal(changed, line) {
			panic("nothing replaced: " + from)
		}

		return changed
	}
	type sealed = []sealedFile
	for _, tc := range []struct {
		name   string
		tamper func(log sealed) sealed
		file   int // of the log as it was
		line   int
		seq    uint64
		kind   Kind
		n      int // problems
		text   string
	}{
		{"byte edited", func(log sealed) sealed {
			log[b].lines[2] = replace(log[b].lines[2], "host7", "host8")

			return log
		}, b, 3, 7, KindAltered, 1, "not the ones that were hashed"},
		{"first line edited", func(log sealed) sealed {
			log[a].lines[0] = replace(log[a].lines[0], "host1", "host8")

			return log
		}, a, 1, 1, KindAltered, 1, ""},
		{"last line edited", func(log sealed) sealed {
			log[live].lines[3] = replace(log[live].lines[3], "host12", "host13")

			return log
		}, live, 4, 12, KindAltered, 1, ""},
		{"number edited", func(log sealed) sealed {
			log[b].lines[2] = replace(log[b].lines[2], `"seq":7`, `"seq":8`)

			return log
		}, b, 3, 8, KindAltered, 1, ""},
		{"hash replaced", func(log sealed) sealed {
			p, _ := splitLine(log[b].lines[2])
			log[b].lines[2] = replace(log[b].lines[2], p.link.HashString(), strings.Repeat("ab", 32))

			return log
		}, b, 3, 7, KindAltered, 1, ""},
		{"hash replaced by the one of another line", func(log sealed) sealed {
			p, _ := splitLine(log[b].lines[2])
			q, _ := splitLine(log[a].lines[1])
			log[b].lines[2] = replace(log[b].lines[2], p.link.HashString(), q.link.HashString())

			return log
		}, b, 3, 7, KindAltered, 1, ""},
		{"form broken", func(log sealed) sealed {
			log[b].lines[2] = replace(log[b].lines[2], `,"hash":"`, `,"HASH":"`)

			return log
		}, b, 3, 0, KindNotRecord, 1, "is not a record"},
		{"line deleted", func(log sealed) sealed {
			log[b].lines = slices.Delete(log[b].lines, 2, 3)

			return log
		}, b, 3, 8, KindChain, 1, "record 7 is missing in front of this record"},
		{"lines deleted", func(log sealed) sealed {
			log[b].lines = slices.Delete(log[b].lines, 1, 3)

			return log
		}, b, 2, 8, KindChain, 1, "records 6 to 7 are missing in front"},
		{"first line deleted", func(log sealed) sealed {
			log[a].lines = log[a].lines[1:]

			return log
		}, a, 1, 2, KindChain, 1, "record 1 was removed from its start"},
		{"first line of a later file deleted", func(log sealed) sealed {
			log[b].lines = log[b].lines[1:]

			return log
		}, b, 1, 6, KindChain, 1, "record 5 was removed from its start"},
		{"first line of the live file deleted", func(log sealed) sealed {
			log[live].lines = log[live].lines[1:]

			return log
		}, live, 1, 10, KindChain, 1, "record 9 is missing"},
		{"first line of the only file deleted", func(log sealed) sealed {
			log[live].lines = log[live].lines[1:]

			return log[live:]
		}, live, 1, 10, KindChain, 1, "begins with audit.rotated"},
		{"copied line inserted", func(log sealed) sealed {
			log[b].lines = slices.Insert(log[b].lines, 3, log[a].lines[1])

			return log
		}, b, 4, 2, KindChain, 1, "record 2 stands behind record 7"},
		{"line doubled", func(log sealed) sealed {
			log[b].lines = slices.Insert(log[b].lines, 2, log[b].lines[2])

			return log
		}, b, 4, 7, KindChain, 1, "record 7 stands behind record 7"},
		{"lines swapped", func(log sealed) sealed {
			l := log[b].lines
			l[1], l[2] = l[2], l[1]

			return log
		}, b, 2, 7, KindChain, 2, "record 6 is missing"},
		{"line sealed anew", func(log sealed) sealed {
			var enc encoder
			e := denied("forged.example.com")
			enc.encode(&e)
			prev, _ := splitLine(log[b].lines[1])
			log[b].lines[2], _ = newSealer().seal(nil, enc.buf, prev.link)

			return log
		}, b, 4, 8, KindChain, 1, "written after another record 7"},
		{"garbage inserted", func(log sealed) sealed {
			log[b].lines = slices.Insert(log[b].lines, 2, []byte("{}\n"))

			return log
		}, b, 3, 0, KindNotRecord, 1, "is not a record"},
		{"empty line inserted", func(log sealed) sealed {
			log[b].lines = slices.Insert(log[b].lines, 2, []byte("\n"))

			return log
		}, b, 3, 0, KindNotRecord, 1, ""},
		{"garbage appended", func(log sealed) sealed {
			log[live].lines = append(log[live].lines, []byte("garbage\n"), []byte("more\n"))

			return log
		}, live, 5, 0, KindNotRecord, 2, ""},
		{"garbage in the place of a line", func(log sealed) sealed {
			log[b].lines[2] = []byte("garbage\n")

			return log
		}, b, 3, 0, KindNotRecord, 1, ""},
		{"garbage and a hole", func(log sealed) sealed {
			log[b].lines = slices.Replace(log[b].lines, 1, 3, []byte("garbage\n"))

			return log
		}, b, 2, 0, KindNotRecord, 2, ""},
		{"over-long line", func(log sealed) sealed {
			log[b].lines = slices.Insert(log[b].lines, 2, append(bytes.Repeat([]byte("x"), 200<<10), '\n'))

			return log
		}, b, 3, 0, KindNotRecord, 1, "this line of 204800 bytes is longer than any record"},
		{"line a little longer than any", func(log sealed) sealed {
			log[b].lines = slices.Insert(log[b].lines, 2, append(bytes.Repeat([]byte("x"), maxLine+1), '\n'))

			return log
		}, b, 3, 0, KindNotRecord, 1, "16385 bytes"},
		{"two lines joined", func(log sealed) sealed {
			log[b].lines[1] = bytes.TrimSuffix(log[b].lines[1], []byte("\n"))

			return log
		}, b, 2, 7, KindAltered, 2, ""},
		{"end of a rotated file cut", func(log sealed) sealed {
			log[b].lines = log[b].lines[:2]

			return log
		}, b, 3, 7, KindCutTail, 1, "records 7 to 8 are not here"},
		{"rotated file emptied", func(log sealed) sealed {
			log[b].lines = nil

			return log
		}, b, 1, 5, KindCutTail, 1, "records 5 to 8 are not here"},
		{"rotated file deleted", func(log sealed) sealed {
			return slices.Delete(log, b, b+1)
		}, live, 1, 9, KindMissingFile, 1, "records 5 to 8 are not here: the file before this one, audit-20261128T100000Z-000000000005.jsonl"},
		{"rotated file renamed away", func(log sealed) sealed {
			log[b].name += ".bak"

			return log
		}, live, 1, 9, KindMissingFile, 1, ""},
		{"names of rotated files swapped", func(log sealed) sealed {
			log[a].name, log[b].name = log[b].name, log[a].name

			return log
		}, a, 1, 5, KindChain, 2, "by its name this file begins with record 1"},
		{"live and rotated file swapped", func(log sealed) sealed {
			log[b].name, log[live].name = log[live].name, log[b].name

			return log
		}, b, 1, 9, KindChain, 2, "by its name this file begins with record 5: it is another file"},
		{"another schema, sealed by it", func(log sealed) sealed {
			body := log[live].lines[3]
			at := bytes.LastIndex(body, []byte(seqKey))
			prev, _ := splitLine(log[live].lines[2])
			s := newSealer()
			s.tag = []byte("sluicegate.audit/2\x00")
			log[live].lines[3], _ = s.seal(nil, replace(body[:at], Schema, "sluicegate.audit/2"), prev.link)

			return log
		}, live, 4, 12, KindSchema, 1, "can't read the schema"},
		{"schema edited", func(log sealed) sealed {
			log[live].lines[3] = replace(log[live].lines[3], Schema, "sluicegate.audit/2")

			return log
		}, live, 4, 12, KindAltered, 1, ""},
		{"schema edited to another family", func(log sealed) sealed {
			log[live].lines[3] = replace(log[live].lines[3], Schema, "sluicegate.audix/1")

			return log
		}, live, 4, 12, KindAltered, 1, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			log := sealedLog()
			path := writeFiles(t, tc.tamper(sealedLog()))
			r := verified(t, path)
			require.NotNil(t, r.Problem)
			got := *r.Problem
			assert.Contains(t, got.Text, tc.text)
			got.Text = ""
			assert.Equal(t, Problem{File: log[tc.file].name, Line: tc.line, Seq: tc.seq, Kind: tc.kind}, got)
			assert.Equal(t, tc.n, r.Problems)
		})
	}
}
