// Sockets that killed processes left behind.
#pragma once

#include <functional>
#include <string>

namespace tandem {

// Removes the Unix sockets in `folder` whose file names are `ours`, and at which nobody listens.
// Whoever could listen there has ended: on a socket of another host, or one that is about to
// listen, nobody seems to listen either. Best effort: what cannot be asked or removed stays.
void RemoveDeadSockets(const std::string& folder,
                       const std::function<bool(const std::string& name)>& ours);

}  // namespace tandem
