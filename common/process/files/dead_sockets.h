// Sockets that killed processes left behind.
#pragma once

#include <functional>
#include <string>

namespace tandem {

// Removes the Unix sockets in `folder` whose names satisfy `ours` and on which no process listens.
// Call it only when every possible owner has ended: a socket of another host, or one that is bound
// but not yet listening, looks dead too. Best effort: a socket that cannot be checked or removed
// stays.
void RemoveDeadSockets(const std::string& folder,
                       const std::function<bool(const std::string& name)>& ours);

}  // namespace tandem
