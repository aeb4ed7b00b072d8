// tandem-letter-rewards ADDRESS: a reward service for the fault matrix. It scores the share of a
// response's characters that are letters from a to m, until SIGTERM, and reaches the fault points
// "start" and "score" of the role "reward".
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <string>

#include "common/net/server.h"
#include "common/process/fault_injection.h"
#include "tandem/v1/reward.grpc.pb.h"

namespace tandem {
namespace {

class LetterService final : public v1::RewardService::Service {
 public:
  grpc::Status Score(grpc::ServerContext*,
                     const v1::ScoreRequest* request,
                     v1::ScoreResponse* reply) override {
    FaultPoint("score");
    for (const v1::ScoreItem& item : request->items()) {
      const std::string& text = item.response();
      const auto letters =
          std::count_if(text.begin(), text.end(), [](char c) { return c >= 'a' && c <= 'm'; });
      reply->add_scores()->set_score(
          text.empty() ? 0.0 : static_cast<double>(letters) / static_cast<double>(text.size()));
    }
    return grpc::Status::OK;
  }
};

int Serve(const std::string& address) {
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigprocmask(SIG_BLOCK, &ends, nullptr);
  LetterService service;
  const auto server = RpcServer::Start(address, {&service}, {.open_to_this_host = true});
  if (!server.ok()) {
    std::fprintf(stderr, "%s\n", server.status().ToString().c_str());
    return 74;
  }
  int signal = 0;
  sigwait(&ends, &signal);
  return 0;
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: tandem-letter-rewards ADDRESS\n", stderr);
    return 64;
  }
  tandem::InitFaultPoints("reward", 0);
  tandem::FaultPoint("start");
  return tandem::Serve(argv[1]);
}
