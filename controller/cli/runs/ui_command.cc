#include "controller/cli/runs/ui_command.h"

#include <filesystem>
#include <memory>
#include <system_error>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/process/stop_signal.h"
#include "controller/web/dashboard_server.h"

namespace tandem {

absl::Status UiCommand(const UiOptions& options, std::ostream& out) {
  for (const std::string& root : options.roots) {
    std::error_code error;
    if (std::filesystem::is_directory(root, error)) continue;
    return MakeStatus(absl::StatusCode::kNotFound,
                      "there is no folder {}: name a run directory, or a folder that holds some",
                      root);
  }
  StopSignal stop;
  TANDEM_ASSIGN_OR_RETURN(
      const std::unique_ptr<DashboardServer> server,
      DashboardServer::Start(options.roots, options.listen, /*token_file=*/"", RealClock()));
  out << "dashboard: " << server->Address() << "\nCtrl-C ends it." << std::endl;
  return stop.Wait();
}

}  // namespace tandem
