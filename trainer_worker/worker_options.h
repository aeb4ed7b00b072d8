// Converts the controller's registration reply to the trainer's options. Pure.
#pragma once

#include <cstdint>

#include <absl/status/statusor.h>

#include "tandem/v1/controller.pb.h"
#include "trainer_worker/trainer.h"
#include "trainer_worker/trainer_service.h"

namespace tandem {

// `gpu_bytes`: the memory of the GPU that the pair shares; 0: the pair computes on the CPU and has
// a share of the host's memory. It determines how much memory the trainer may hold. InvalidArgument
// names the config key whose value this program does not know.
absl::StatusOr<TrainerOptions> MakeTrainerOptions(const v1::RegisterResponse& registration,
                                                  int rank,
                                                  int64_t gpu_bytes = 0);

// What paths a controller with this configuration names in its calls.
CallFolders MakeCallFolders(const v1::Config& config);

}  // namespace tandem
