// Whether those who register, workers and agents, understand this controller.
#pragma once

#include <string>

#include <absl/status/status.h>

namespace tandem {

struct BuildName {
  std::string text;  // shown to users: version, commit, flags
  std::string id;    // BuildId(): equal for builds that may work together
};

// `who` names the one that registers. InvalidArgument: it speaks another protocol.
absl::Status CheckProtocol(const std::string& who, int protocol);

// "rollout 0 is of another build (...) than this controller (...)"; empty: it is of the same.
std::string OtherBuildText(const std::string& who, const BuildName& its, const BuildName& own);

// FailedPrecondition: it is of another build; with what that may do, and what to do.
absl::Status CheckSameBuild(const std::string& who, const BuildName& its, const BuildName& own);

}  // namespace tandem
