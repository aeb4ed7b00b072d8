#include "tests/gpu/bench/bench_rollout.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/status.h"
#include "common/net/channel.h"
#include "common/net/grpc_status.h"
#include "tandem/v1/rollout.grpc.pb.h"

namespace tandem::testing {
namespace {

constexpr absl::Duration kDeadline = absl::Seconds(60);

}  // namespace

absl::Status SkipLateStream(CudaApi& cuda) {
  TANDEM_ASSIGN_OR_RETURN(const CudaStream late, cuda.CreateStream());
  return cuda.DestroyStream(late);
}

absl::StatusOr<std::unique_ptr<BenchRollout>> BenchRollout::Start(const std::string& size,
                                                                  const std::string& directory) {
  char program[4096] = {};
  if (readlink("/proc/self/exe", program, sizeof(program) - 1) < 0) {
    return Internal("/proc/self/exe: {}", std::strerror(errno));
  }
  int ready[2];
  if (pipe(ready) != 0) return Internal("pipe: {}", std::strerror(errno));
  std::string arguments[] = {program, "rollout", size, directory};
  char* argv[] = {arguments[0].data(), arguments[1].data(), arguments[2].data(),
                  arguments[3].data(), nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addclose(&actions, ready[0]);
  if (ready[1] != kReadyDescriptor) {
    posix_spawn_file_actions_adddup2(&actions, ready[1], kReadyDescriptor);
    posix_spawn_file_actions_addclose(&actions, ready[1]);
  }
  std::unique_ptr<BenchRollout> rollout(new BenchRollout());
  const int failed = posix_spawn(&rollout->process_, program, &actions, nullptr, argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ready[1]);
  char byte = 0;
  const bool serves = failed == 0 && read(ready[0], &byte, 1) == 1;
  close(ready[0]);
  if (failed != 0) {
    rollout->process_ = 0;
    return Internal("{}: {}", program, std::strerror(failed));
  }
  if (!serves) {
    return MakeStatus(absl::StatusCode::kUnavailable, "the rollout's process ended at its start");
  }
  TANDEM_ASSIGN_OR_RETURN(rollout->channel_, MakeChannel("unix:" + directory + "/rollout.sock"));
  return rollout;
}

BenchRollout::~BenchRollout() {
  if (process_ == 0) return;
  kill(process_, SIGKILL);
  waitpid(process_, nullptr, 0);
}

absl::StatusOr<double> BenchRollout::CopySeconds(int64_t version) {
  grpc::ClientContext context;
  SetDeadline(context, kDeadline);
  v1::RolloutStatusResponse now;
  const auto stub = v1::RolloutService::NewStub(channel_);
  TANDEM_RETURN_IF_ERROR(FromGrpcStatus(stub->GetStatus(&context, {}, &now)));
  if (now.state() != v1::SERVING || now.version() != version) {
    return FailedPrecondition("the rollout is {} with version {}, not serving {}",
                              v1::RolloutState_Name(now.state()), now.version(), version);
  }
  return std::stod(now.last_action());
}

}  // namespace tandem::testing
