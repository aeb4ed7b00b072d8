// Converts the controller's registration reply to the engine's options. Pure, except that it reads
// the model's config.
#pragma once

#include <memory>
#include <string>

#include <absl/status/statusor.h>

#include "common/text/tokenizer.h"
#include "rollout_worker/engine.h"
#include "tandem/v1/controller.pb.h"

namespace tandem {

// The path of the Unix socket through which a trainer passes its slots. The socket is in
// the directory of `listen` if that is a Unix socket, else in `local_dir` (cluster.local_dir or,
// where it is empty, the run directory), or in the system's temporary directory if that path is too
// long for a socket.
std::string PairSocketPath(const std::string& listen, const std::string& local_dir, int rank);

// Errors: those of LoadModelSpec and WithAdapters; FailedPrecondition: `tokenizer` differs from the
// controller's; InvalidArgument: rollout.max_model_len exceeds the model's positions.
absl::StatusOr<EngineOptions> MakeEngineOptions(const v1::RegisterResponse& registration,
                                                int rank,
                                                const std::string& listen,
                                                std::shared_ptr<const Tokenizer> tokenizer);

}  // namespace tandem
