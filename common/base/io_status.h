// What an errno of a local file means as a status.
#pragma once

#include <string>

#include <absl/status/status.h>

namespace tandem {

// ResourceExhausted: disk, quota, file size or open files are used up. NotFound: no such path.
// PermissionDenied: rights, or a read-only file system. InvalidArgument: the path cannot be what
// is meant (a folder, too long, a loop of links). DataLoss: the device fails. Internal: any other.
// Never Unavailable, which says that a peer process is gone and makes the controller recover.
absl::StatusCode IoErrorCode(int error);

// Makes `path` with its parents. PermissionDenied where no folder can be made there, also because
// the path leads through a file or a system folder; ResourceExhausted: the disk is full.
absl::Status MakeFolder(const std::string& path);

// Whether the disk, a quota or a file size limit is full.
bool IsDiskFull(int error);

}  // namespace tandem
