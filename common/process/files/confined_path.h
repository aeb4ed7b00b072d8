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

// OK if `path` is one of `folders` or below one; it need not exist. Relative paths start at the
// working directory, as in the configuration. A folder itself may be reached through symbolic
// links, because the configuration chose it. Below the folder, links are followed only if they stay
// inside.
// InvalidArgument: the path is empty, has a part "..", or is outside by its text; PermissionDenied:
// a symbolic link leads outside. Both with `what`, the path, the folders and the remedy.
// The result can become outdated only by a process that may write in these folders, which belong to
// the run.
absl::Status CheckConfined(const std::string& what,
                           const std::string& path,
                           const std::vector<std::string>& folders,
                           PathLookup lookup = PathLookup::kAny);

}  // namespace tandem
