package audit

import _ "embed"

//go:embed schema.json
var jsonSchema []byte

// JSONSchema is the JSON Schema (draft 2020-12) of a line of the log. It allows
// keys that it does not know, because additive changes keep the schema's name.
// It is generated from [Event]; the caller must not change it.
func JSONSchema() []byte { return jsonSchema }
