#include "controller/web/dashboard_server.h"

#include <utility>

#include <absl/strings/numbers.h>
#include <fmt/format.h>

#include "common/base/status.h"

namespace tandem {
namespace {

constexpr int kFirstPort = 7460, kPorts = 100;

absl::StatusOr<HttpServerOptions> ReadListen(const std::string& listen) {
  if (listen == "auto") return HttpServerOptions{.first_port = kFirstPort, .ports = kPorts};
  const size_t colon = listen.rfind(':');
  std::string host = listen.substr(0, colon);
  if (host == "localhost") host = "127.0.0.1";
  int port = 0;
  const bool has_port = colon != std::string::npos &&
                        absl::SimpleAtoi(listen.substr(colon + 1), &port) && port >= 0 &&
                        port <= 65535;
  if (!has_port) {
    return InvalidArgument(
        "\"{}\" is no address to listen on: give auto, or a number and a port such as "
        "127.0.0.1:8000",
        listen);
  }
  if (host != "127.0.0.1" && host != "[::1]") {
    return InvalidArgument(
        "the dashboard listens on 127.0.0.1 or [::1], which only this host reaches, not on {}: "
        "from "
        "another host, go through a tunnel (ssh -L {}:127.0.0.1:{} HOST)",
        host, port, port);
  }
  return HttpServerOptions{.address = host == "[::1]" ? "::1" : host, .first_port = port};
}

absl::StatusOr<std::string> ReadOrMakeToken(const RunToken* file, const std::string& path) {
  return file == nullptr ? MakeSecret() : ReadRunToken(path);
}

}  // namespace

DashboardServer::DashboardServer(std::unique_ptr<Dashboard> dashboard,
                                 std::unique_ptr<RunToken> token_file,
                                 std::unique_ptr<HttpServer> server,
                                 std::string host,
                                 std::string token)
    : dashboard_(std::move(dashboard)),
      token_file_(std::move(token_file)),
      server_(std::move(server)),
      host_(std::move(host)),
      token_(std::move(token)) {}

absl::StatusOr<std::unique_ptr<DashboardServer>> DashboardServer::Start(
    std::vector<std::string> roots,
    const std::string& listen,
    const std::string& token_file,
    Clock& clock) {
  TANDEM_ASSIGN_OR_RETURN(const HttpServerOptions options, ReadListen(listen));
  std::unique_ptr<RunToken> file;
  if (!token_file.empty()) {
    TANDEM_ASSIGN_OR_RETURN(file, RunToken::Make(token_file));
  }
  TANDEM_ASSIGN_OR_RETURN(std::string token, ReadOrMakeToken(file.get(), token_file));
  TANDEM_ASSIGN_OR_RETURN(std::string session, MakeSecret());
  auto dashboard = std::make_unique<Dashboard>(std::move(roots), token, std::move(session), clock);
  auto server =
      HttpServer::Start(options, [dashboard = dashboard.get()](const HttpRequest& request) {
        return dashboard->Answer(request);
      });
  if (!server.ok()) return Annotate(server.status(), "the dashboard");
  std::string host = options.address == "::1" ? "[::1]" : options.address;
  return std::unique_ptr<DashboardServer>(new DashboardServer(std::move(dashboard), std::move(file),
                                                              *std::move(server), std::move(host),
                                                              std::move(token)));
}

std::string DashboardServer::Address() const {
  return fmt::format("http://{}:{}/#t={}", host_, server_->port(), token_);
}

}  // namespace tandem
