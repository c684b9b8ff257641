package control

// maxPath is UNIX_PATH_MAX of afunix.h without the final NUL.
const maxPath = 107
