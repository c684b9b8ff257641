package audit

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

// readBlock is how much of a file readers that go through all of it take at once.
const readBlock = 64 << 10

// rawLine is a line as it stands in a file, whatever it is.
type rawLine struct {
	// text is without the newline and only valid until the next line is read;
	// nil if the line is longer than maxLine.
	text []byte
	// length is that of the line without its newline, also what text lacks.
	length int64
	// ended is false for bytes at the end that no newline follows.
	ended bool
}

// lineReader splits a stream into lines in bounded memory. It is not safe for
// concurrent use.
type lineReader struct{ br *bufio.Reader }

func newLineReader() *lineReader {
	return &lineReader{br: bufio.NewReaderSize(nil, readBlock)}
}

// reset makes r the stream that is read.
func (l *lineReader) reset(r io.Reader) { l.br.Reset(r) }

// next returns the next line. After the last one it returns io.EOF as it is.
func (l *lineReader) next() (line rawLine, err error) {
	for {
		part, err := l.br.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			line.length += int64(len(part))

			continue
		case errors.Is(err, io.EOF):
			if line.length += int64(len(part)); line.length == 0 {
				return line, io.EOF
			}
		case err != nil:
			return line, fmt.Errorf("reading audit log: %w", err)
		default:
			part = part[:len(part)-1]
			line.length += int64(len(part))
			line.ended = true
		}
		if line.length <= maxLine {
			line.text = part
		}

		return line, nil
	}
}
