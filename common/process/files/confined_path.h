// Paths that come with a call: they must stay inside the folders that the configuration names.
#pragma once

#include <string>
#include <vector>

#include <absl/status/status.h>

namespace tandem {

// How the parts of a path are looked up beneath a folder.
enum class PathLookup {
  kAny,     // openat2, or part by part where the kernel or a filter of system calls has none
  kByPart,  // as if openat2 were missing; no symbolic link at all is followed
};

// OK if `path` names one of `folders`, something inside, or something to be made there: relative
// paths count from this process's working directory, as those of the configuration do. A folder
// itself may be or lie behind a symbolic link, because its name is the configuration's; a part of
// `path` beneath it may be one only if it leads to a place inside again.
// InvalidArgument: the path is empty, has a part "..", or is outside by its text; PermissionDenied:
// a symbolic link leads outside. Both with `what`, the path, the folders and the remedy.
// What was checked can change only by who may write in the folders, which are the run's own.
absl::Status CheckConfined(const std::string& what,
                           const std::string& path,
                           const std::vector<std::string>& folders,
                           PathLookup lookup = PathLookup::kAny);

}  // namespace tandem
