// Converts the controller's reply to the engine's options. Pure except for reading the model's
// config.
#pragma once

#include <memory>
#include <string>

#include <absl/status/statusor.h>

#include "common/text/tokenizer.h"
#include "rollout_worker/engine.h"
#include "tandem/v1/controller.pb.h"

namespace tandem {

// The path of the Unix socket that the paired trainer passes its slots through: in the directory of
// `listen` if that is a Unix socket, else in the run directory; in the system's temporary directory
// if that path is too long for a socket.
std::string PairSocketPath(const std::string& listen, const std::string& run_dir, int rank);

// Errors: those of LoadModelSpec; FailedPrecondition: `tokenizer` is not the controller's;
// InvalidArgument: rollout.max_model_len exceeds the model's positions.
absl::StatusOr<EngineOptions> MakeEngineOptions(const v1::RegisterResponse& registration,
                                                int rank,
                                                const std::string& listen,
                                                std::shared_ptr<const Tokenizer> tokenizer);

}  // namespace tandem
