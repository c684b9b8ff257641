package pair

// Document is a managed source that is not a file of settings.
type Document struct {
	// Name is the kind of source, Place where it is.
	Name, Place string
	// Weak marks a source below the file, which the user can write.
	Weak bool
	// Data is JSON; nil if the source is absent.
	Data []byte
	// Err is why it could not be read.
	Err error
	// Unchecked is why it was not looked at, "" if it was.
	Unchecked string
}
