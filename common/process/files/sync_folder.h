// Renames that survive a power failure.
#pragma once

#include <string>

namespace tandem {

// Waits until the names in `folder` (empty: the current one) are on the disk. Returns 0 or an
// errno; 0 also on network file systems that cannot sync folders.
int SyncFolder(const std::string& folder);

}  // namespace tandem
