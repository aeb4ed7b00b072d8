// Whether somebody listens at an address, whatever they speak.
#pragma once

#include <string>

namespace tandem {

// Connects to host:port and hangs up; false for other addresses too. Blocks for a name's resolution
// and a connection attempt.
bool AcceptsConnections(const std::string& address);

}  // namespace tandem
