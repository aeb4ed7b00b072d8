// tandemctl ui: runs in a browser.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include <absl/status/status.h>

namespace tandem {

struct UiOptions {
  std::vector<std::string> roots;  // run directories, or folders with some below them
  std::string listen = "auto";     // as DashboardServer::Start
};

// Prints the address that a browser opens, and serves until SIGINT or SIGTERM. Call it before the
// process has started a thread. Errors as DashboardServer::Start; NotFound: a root that is none.
absl::Status UiCommand(const UiOptions& options, std::ostream& out);

}  // namespace tandem
