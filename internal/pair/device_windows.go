package pair

import (
	"errors"

	"golang.org/x/sys/windows/registry"
)

// policyKey is below HKLM and HKCU; its value Settings is JSON.
const policyKey = `SOFTWARE\Policies\ClaudeCode`

// Device reads the registry, strongest first. With another root it is not that of
// the system in question.
func Device(_ Places, root string) []Document {
	out := []Document{
		{Name: "registry", Place: `HKLM\` + policyKey},
		{Name: "registry of the user", Place: `HKCU\` + policyKey, Weak: true},
	}
	for i, key := range []registry.Key{registry.LOCAL_MACHINE, registry.CURRENT_USER} {
		if root != "" {
			out[i].Unchecked = "the registry of another root can not be read"
			continue
		}
		out[i].Data, out[i].Err = registrySettings(key)
	}
	return out
}

func registrySettings(root registry.Key) ([]byte, error) {
	key, err := registry.OpenKey(root, policyKey, registry.QUERY_VALUE)
	if errors.Is(err, registry.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = key.Close() }()
	text, _, err := key.GetStringValue("Settings")
	switch {
	case errors.Is(err, registry.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case len(text) > maxFile:
		return nil, errTooBig
	}
	return []byte(text), nil
}
