// Sockets that killed processes left behind.
#pragma once

#include <string>

namespace tandem {

// Removes the Unix sockets NAME.sock in `folder` at which nobody listens. Nobody may be about to
// listen there. Best effort: what cannot be asked or removed stays.
void RemoveDeadSockets(const std::string& folder);

}  // namespace tandem
