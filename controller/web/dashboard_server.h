// The dashboard on a port of this host.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/base/clock.h"
#include "common/http/server.h"
#include "common/process/files/run_token.h"
#include "controller/web/dashboard.h"

namespace tandem {

class DashboardServer {
 public:
  // `roots`: run directories, or folders with some below them. `listen`: "auto", the first free
  // port of 127.0.0.1 from 7460 on, or "127.0.0.1:8000", "[::1]:8000", with port 0 for any. The
  // token is written to `token_file` for the life of the server, unless that is "". `clock` must
  // outlive it. InvalidArgument: another address than this host's own, which nobody else can reach;
  // Unavailable: the port is taken; errors of the file as RunToken::Make.
  static absl::StatusOr<std::unique_ptr<DashboardServer>> Start(std::vector<std::string> roots,
                                                                const std::string& listen,
                                                                const std::string& token_file,
                                                                Clock& clock);

  // "http://127.0.0.1:7460/#t=TOKEN": what the user opens. What follows "#" is not sent to a
  // server.
  std::string Address() const;

 private:
  DashboardServer(std::unique_ptr<Dashboard> dashboard,
                  std::unique_ptr<RunToken> token_file,
                  std::unique_ptr<HttpServer> server,
                  std::string host,
                  std::string token);

  const std::unique_ptr<Dashboard> dashboard_;
  const std::unique_ptr<RunToken> token_file_;  // null: the token is in no file
  const std::unique_ptr<HttpServer> server_;
  const std::string host_, token_;
};

}  // namespace tandem
