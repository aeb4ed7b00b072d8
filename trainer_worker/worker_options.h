// From the controller's reply to the trainer's options. Pure.
#pragma once

#include <cstdint>

#include <absl/status/statusor.h>

#include "tandem/v1/controller.pb.h"
#include "trainer_worker/trainer.h"

namespace tandem {

// `gpu_bytes`: the memory of the GPU that the pair shares; 0: it has its share of this host. It
// decides what the trainer may hold. InvalidArgument names the key of a value that this program
// does not know.
absl::StatusOr<TrainerOptions> MakeTrainerOptions(const v1::RegisterResponse& registration,
                                                  int rank,
                                                  int64_t gpu_bytes = 0);

}  // namespace tandem
