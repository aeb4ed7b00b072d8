// Folders and files that only this process's user can open, whatever the umask.
#pragma once

#include <cstddef>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace tandem {

// What this process makes from now on has no mode by which other users may write, whatever the
// umask was. For the start of a program, before it has threads.
void KeepOthersFromWriting();

// Creates the folder `path` with mode 0700. Missing parents are created readable by others as the
// umask allows, never writable. If `path` exists, its permissions for others are removed and that
// is logged. PermissionDenied: it belongs to another user, is shared such as /tmp, or its mode
// cannot be changed. Otherwise as MakeFolder.
absl::Status MakePrivateFolder(const std::string& path);

// Whether MakePrivateFolder would refuse the folder `path` for who owns it and who may write in it.
// Changes nothing; OK where there is no folder. PermissionDenied as MakePrivateFolder.
absl::Status CheckPrivateFolder(const std::string& path);

// Creates the folder of a socket with mode 0700 if it is missing. An existing folder may be
// readable by others, because the socket has its own mode. It must not be writable by others, who
// could replace the socket: that permission is removed and logged. A sticky folder such as /tmp is
// left as it is. PermissionDenied: others can write in it, and this user cannot change its mode.
absl::Status MakeSocketFolder(const std::string& path);

// Whether MakeSocketFolder would refuse the folder `path`, which must exist. Changes nothing.
// NotFound: there is none; PermissionDenied as MakeSocketFolder.
absl::Status CheckSocketFolder(const std::string& path);

// Writes `text` as `path` with mode 0600 in one step: a reader sees the old text or the new one,
// also after a power failure, and a link at `path` is replaced, not followed. On the disk when it
// returns. Errors by IoErrorCode.
absl::Status WritePrivateFile(const std::string& path, const std::string& text);

// The same where nothing is at `path` yet: of several that write one at once, one does.
// AlreadyExists: something is there, if only a link to nowhere, and stays as it is. The folder's
// file system has hard links.
absl::Status WriteNewPrivateFile(const std::string& path, const std::string& text);

// At most `limit` bytes of a regular file that belongs to this user or to root, and that no other
// user can read or write. NotFound: there is none; FailedPrecondition: not such a file, with what
// it is instead and the remedy.
absl::StatusOr<std::string> ReadPrivateFile(const std::string& path, size_t limit);

}  // namespace tandem
